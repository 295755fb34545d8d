"""``results.sarif`` as code scanning reads it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from ci_autotest.report import sarif
from ci_autotest.report.merge import merge
from ci_autotest.values.finding import Location
from ci_autotest.version import VERSION
from tests import report_samples as samples

if TYPE_CHECKING:
    from ci_autotest.values.result import RunResult


def log_of(result: RunResult, folder) -> dict:
    sarif.write(result, folder / "results.sarif")
    return json.loads((folder / "results.sarif").read_bytes())


def only_result(folder, **changes) -> dict:
    (found,) = log_of(samples.misaligned(findings=(samples.finding(**changes),)), folder)["runs"][0]["results"]
    return found


def test_write__a_finding__is_one_result_at_the_line_of_its_test(tmp_path) -> None:
    environment = msgspec.structs.replace(samples.run().environment, folder="lib")
    finding = samples.finding()

    log = log_of(samples.misaligned(environment=environment, findings=(finding,), exit_code=1), tmp_path)

    rule = f"{samples.OPERATOR}/value"
    assert log == {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "ci-autotest", "version": VERSION,
                "rules": [{"id": rule, "shortDescription": {"text": f"{samples.OPERATOR}: value"}}],
            }},
            "invocations": [{"executionSuccessful": True, "exitCode": 1}],
            "results": [{
                "ruleId": rule, "ruleIndex": 0, "level": "error",
                "message": {
                    "text": f"{finding.headline}\n\n{samples.MESSAGE}\n\n{samples.PROGRAM}\n\nreplay: {finding.replay}"
                },
                "locations": [{"physicalLocation": {
                    "artifactLocation": {"uri": f"lib/{samples.FILE}"}, "region": {"startLine": 12},
                }}],
                "partialFingerprints": {"ciAutotestFinding/v1": "layer_norm-3f2a"},
            }],
        }],
    }  # fmt: skip


def test_write__a_finding_of_a_known_kernel__is_at_the_kernel_s_line_with_the_test_beside_it(tmp_path) -> None:
    kernels = msgspec.structs.replace(
        samples.KERNELS, kernels={samples.OPERATOR: Location(file="lib/norms.py", line=7)}
    )

    (found,) = log_of(samples.misaligned(candidates=(kernels,)), tmp_path)["runs"][0]["results"]

    assert found["locations"] == [
        {"physicalLocation": {"artifactLocation": {"uri": "lib/norms.py"}, "region": {"startLine": 7}}}
    ]
    (related,) = found["relatedLocations"]
    assert related["physicalLocation"]["artifactLocation"] == {"uri": samples.FILE}
    assert related["message"] == {"text": "the test"}


@pytest.mark.parametrize(
    ("change", "level"),
    [
        pytest.param({}, "error", id="misaligned"),
        pytest.param({"outcome": "crashed", "kind": "crash"}, "error", id="crashed"),
        pytest.param({"kind": "leniency", "demanded": True}, "error", id="demanded leniency"),
        pytest.param({"kind": "leniency"}, "note", id="leniency"),
        pytest.param({"outcome": "flaky"}, "note", id="flaky"),
        pytest.param({"blame": "reference"}, "note", id="reference-blamed"),
        pytest.param({"known": "int32 indices"}, "note", id="accepted"),
    ],
)
def test_write__finding__is_an_error_where_it_counts_against_the_run(tmp_path, change, level) -> None:
    assert only_result(tmp_path, **change)["level"] == level


def test_write__accepted_finding__is_suppressed_with_its_reason(tmp_path) -> None:
    assert only_result(tmp_path, known="int32 indices")["suppressions"] == [
        {"kind": "external", "justification": "int32 indices"}
    ]


def test_write__one_operator_on_two_candidates__is_one_rule_with_two_fingerprints(tmp_path) -> None:
    other = samples.finding(id="layer_norm-77aa", candidate="compiled")
    run = log_of(samples.misaligned(findings=(samples.finding(), other)), tmp_path)["runs"][0]

    assert len(run["tool"]["driver"]["rules"]) == 1
    assert {(item["ruleIndex"], *item["partialFingerprints"].values()) for item in run["results"]} == {
        (0, "layer_norm-3f2a"), (0, "layer_norm-77aa"),
    }  # fmt: skip


def test_write__no_location__names_the_file_of_the_test(tmp_path) -> None:
    (location,) = only_result(tmp_path, location=None)["locations"]

    assert location == {"physicalLocation": {"artifactLocation": {"uri": samples.FILE}}}


@pytest.mark.parametrize("exit_code", [2, 3, 4, 130])
def test_write__run_that_did_not_compare_all__is_not_called_successful(tmp_path, exit_code) -> None:
    (invocation,) = log_of(samples.run(exit_code=exit_code), tmp_path)["runs"][0]["invocations"]

    assert invocation == {"executionSuccessful": False, "exitCode": exit_code}


def test_write__merged_shards__has_the_findings_of_all(tmp_path) -> None:
    shards = [
        samples.misaligned(shard=(index, 2), findings=(samples.numbered(index),)) for index in (1, 2)
    ]  # fmt: skip

    results = log_of(merge(shards), tmp_path)["runs"][0]["results"]

    assert [item["ruleId"] for item in results] == ["torch.op00001/value", "torch.op00002/value"]


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_write__hostile_text__is_read_back_in_one_line_where_a_name_stands(tmp_path, name) -> None:
    planted = samples.HOSTILE[name]
    location = msgspec.structs.replace(samples.finding().location, file=f"../../{planted}")

    found = only_result(tmp_path, operator=planted, headline=planted, message=planted, location=location)

    assert len(found["ruleId"].splitlines()) == 1
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].isascii()
    assert not set(found["message"]["text"]) & {"\x00", "\x1b", "\x07", "\u202e", "\udc80"}

"""`report.json` is written in one way and read strictly."""

from __future__ import annotations

import json
import math
from importlib.resources import files

import jsonschema
import msgspec
import pytest

from ci_autotest.errors import OutputError
from ci_autotest.report import report_json
from ci_autotest.values.result import CaseCounts, RunError
from tests import report_samples as samples


@pytest.fixture
def path(tmp_path):
    return tmp_path / "report.json"


@pytest.fixture
def written(path):
    """The JSON of a written report, to be damaged."""
    report_json.write(samples.everything(), path)
    return json.loads(path.read_bytes())


def test_read__written_report__is_the_same_run(path):
    result = report_json.ordered(samples.everything())

    report_json.write(result, path)

    assert report_json.read(path) == result


def test_write__other_order_of_results__same_bytes(path, tmp_path):
    result = samples.everything()
    turned = msgspec.structs.replace(result, results=result.results[::-1], findings=result.findings[::-1])

    report_json.write(result, path)
    report_json.write(turned, tmp_path / "turned.json")

    assert path.read_bytes() == (tmp_path / "turned.json").read_bytes()


def test_write__any_report__is_indented_and_ends_with_a_line_end(path):
    report_json.write(samples.run(), path)

    text = path.read_text()
    assert text.startswith('{\n  "schema": "ci-autotest/report/1",\n  "seed": 1729,\n')
    assert text.endswith("}\n")


@pytest.mark.parametrize(("status", "said"), [(2, "first"), (4, "last"), (1, None)])
def test_read__report_of_before__has_the_error_that_was_a_note(status: int, said: str | None, path):
    report_json.write(samples.run(exit_code=status, notes=("first", "last")), path)

    assert report_json.read(path).error == (None if said is None else RunError(said, status))


def test_write__infinite_difference__is_null(path):
    report_json.write(samples.misaligned(findings=(samples.finding(greatest_absolute_difference=math.inf),)), path)

    assert json.loads(path.read_text())["findings"][0]["greatest_absolute_difference"] is None


def test_write__number_that_the_schema_does_not_allow__is_refused_and_old_stays(path):
    path.write_text("old")

    with pytest.raises(OutputError, match="duration_s"):
        report_json.write(samples.run(duration_s=math.nan), path)

    assert path.read_text() == "old"


def test_write__lone_surrogate_in_a_message__is_an_escape(path):
    report_json.write(samples.run(notes=("a\udc80",)), path)

    assert report_json.read(path).notes == ("a\\udc80",)


def test_json_schema__shipped_file__is_in_step_with_the_types():
    shipped = files("ci_autotest.report").joinpath("report.schema.json").read_text()

    assert shipped == json.dumps(report_json.json_schema(), indent=2) + "\n"


def test_json_schema__written_report__validates(written):
    assert jsonschema.Draft202012Validator(report_json.json_schema()).is_valid(written)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"seed": "1729"}, id="wrong type"),
        pytest.param({"schema": "ci-autotest/report/2"}, id="other schema"),
        pytest.param({"shard": [1, 1, 1]}, id="three numbers for a shard"),
    ],
)
def test_json_schema__damaged_report__does_not_validate(written, change):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(report_json.json_schema()).validate(written | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"seed": "1729"}, r"Expected `int`, got `str` - at `\$\.seed`", id="wrong type"),
        pytest.param({"schema": "ci-autotest/report/9"}, "has schema 'ci-autotest/report/9'", id="other schema"),
        pytest.param({"schema": ""}, "names no schema", id="no schema"),
        pytest.param({"duration_s": math.nan}, "is not a report", id="NaN"),
        pytest.param({"new": ["../../etc"]}, "names a finding '../../etc'", id="id that leads out"),
    ],
)
def test_read__damaged_report__is_refused(path, written, change, message):
    path.write_text(json.dumps(written | change))

    with pytest.raises(OutputError, match=message):
        report_json.read(path)


def test_read__fields_of_a_newer_minor_version__are_ignored(path, written):
    newer = json.loads(json.dumps(written)) | {"extra": {"a": [1]}}
    newer["findings"][0]["extra"] = newer["candidates"][0]["extra"] = 1
    path.write_text(json.dumps(newer))
    jsonschema.Draft202012Validator(report_json.json_schema()).validate(newer)
    found = report_json.read(path)

    path.write_text(json.dumps(written))
    assert found == report_json.read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"id": "../x"}, "names a finding '../x'", id="id that leads out"),
        pytest.param({"repro": "/etc/passwd"}, "names a repro '/etc/passwd'", id="absolute repro"),
        pytest.param({"repro": "findings/../../x"}, "names a repro", id="repro that leads out"),
        pytest.param({"kind": "nonsense"}, "Invalid enum value 'nonsense'", id="unknown kind"),
    ],
)
def test_read__damaged_finding__is_refused(path, written, change, message):
    written["findings"][0] |= change
    path.write_text(json.dumps(written))

    with pytest.raises(OutputError, match=message):
        report_json.read(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "is not a report", id="empty"),
        pytest.param(b"[]", "is not a report", id="a list"),
        pytest.param(b'{"schema": "ci-autotest/report/1"}', "missing required field `seed`", id="nothing inside"),
        pytest.param(b'{"schema": "\xff"}', "is not a report", id="not UTF-8"),
        pytest.param(b'{"a":' * 100_000, "is not a report", id="deep"),
    ],
)
def test_read__not_a_report__is_refused(path, data, message):
    path.write_bytes(data)

    with pytest.raises(OutputError, match=message):
        report_json.read(path)


def test_read__truncated_anywhere__is_refused(path, written):
    data = json.dumps(written).encode()
    for length in range(0, len(data), 97):
        path.write_bytes(data[:length])

        with pytest.raises(OutputError, match="It is truncated or was edited"):
            report_json.read(path)


def test_read__larger_than_the_limit__is_refused_unread(path):
    with path.open("wb") as file:
        file.truncate(report_json.GREATEST_SIZE_BYTES + 1)

    with pytest.raises(OutputError, match="larger than 67,108,864 bytes"):
        report_json.read(path)


def test_read__no_file__is_refused(path):
    with pytest.raises(OutputError, match="cannot be read: No such file or directory"):
        report_json.read(path)


def test_ordered__candidates_and_notes__keep_their_order():
    result = samples.run(notes=("b", "a"), results=(samples.outcome(cases=CaseCounts(aligned=1)),))

    ordered = report_json.ordered(result)

    assert (ordered.notes, ordered.candidates) == (("b", "a"), (samples.KERNELS, samples.COMPILED))

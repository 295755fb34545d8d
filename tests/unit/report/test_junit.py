"""JUnit XML as a reader of JUnit XML sees it."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import msgspec
import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from ci_autotest.commands.output_writer import without_report
from ci_autotest.errors import UnsupportedReason
from ci_autotest.report import junit
from ci_autotest.values.result import CaseCounts, UnsupportedCases
from ci_autotest.values.speed import SpeedResult
from tests import report_samples as samples


def read(result, folder):
    junit.write(result, folder / "junit.xml")
    return JUnitXml.fromfile(str(folder / "junit.xml"))


def only_case(result, folder):
    return next(case for suite in read(result, folder) for case in suite)


def kinds(case):
    return [type(item) for item in case.result]


def test_write__every_outcome__is_one_testcase_for_each_pair(tmp_path):
    cases = {
        (case.classname, case.name): kinds(case) for suite in read(samples.everything(), tmp_path) for case in suite
    }

    assert cases == {
        ("autotests/autotest_norms.py", "layer_norm[kernels]"): [Failure],
        ("autotests/autotest_norms.py", "layer_norm[compiled]"): [],
        ("autotests/autotest_norms.py", "cumsum[compiled]"): [Failure],
        ("autotests/autotest_norms.py", "softmax[kernels]"): [Skipped],
        ("autotests/autotest_norms.py", "softmax[compiled]"): [Skipped],
        ("autotests/autotest_pool.py", "autotests/autotest_pool.py"): [Error],
    }


def test_write__testcase__has_what_its_readers_ask_for(tmp_path):
    # Source: pytest's own JUnit XML ("xunit2") has classname, name and time; annotating actions read file and line.
    environment = msgspec.structs.replace(samples.run().environment, folder="lib")
    junit.write(
        samples.run(environment=environment, results=(samples.outcome(duration_s=0.0),)), tmp_path / "junit.xml"
    )

    root = ET.parse(tmp_path / "junit.xml").getroot()  # noqa: S314 - our own file

    suites, cases = root.findall("testsuite"), root.findall("testsuite/testcase")
    assert (root.tag, len(suites)) == ("testsuites", 1)
    assert {"name", "errors", "failures", "skipped", "tests", "time", "timestamp", "hostname"} <= set(suites[0].attrib)
    assert cases[0].attrib == {
        "classname": "autotests/autotest_norms.py", "name": "layer_norm[kernels]", "time": "0.000",
    }  # fmt: skip
    assert (suites[0].get("file"), suites[0].get("name")) == (
        "lib/autotests/autotest_norms.py", "autotests/autotest_norms.py[kernels]",
    )  # fmt: skip
    assert str(root.findtext("testsuite/testcase/system-out")).startswith("lib/autotests/autotest_norms.py:12\n")


#: Attributes by element, those that must be there first. Source: junit-10.xsd, jenkinsci/xunit-plugin at 031e285.
KNOWN = {
    "testsuites": ("", "name time tests failures errors"),
    "testsuite": ("name tests failures errors", "group time skipped timestamp hostname id package file log url"),
    "testcase": ("name", "time classname group"),
    "properties": ("", ""),
    "property": ("name value", ""),
    "failure": ("", "type message"), "error": ("", "type message"), "skipped": ("", "type message"),
    "system-out": ("", ""), "system-err": ("", ""),
}  # fmt: skip


@pytest.mark.parametrize("result", [samples.everything(), samples.run(), samples.misaligned()])
def test_write__any_run__has_no_attribute_that_the_schema_of_jenkins_does_not_know(result, tmp_path):
    junit.write(result, tmp_path / "junit.xml")
    for element in ET.parse(tmp_path / "junit.xml").iter():  # noqa: S314 - our own file
        needed, allowed = (set(names.split()) for names in KNOWN[element.tag])
        assert needed <= set(element.attrib) <= needed | allowed, element.tag
        assert re.fullmatch(r"[0-9]+\.[0-9]{3}", element.get("time", "0.000"))


def test_write__run_that_refused_to_begin__is_an_error_that_says_why(tmp_path):
    case = only_case(without_report("ended before it compared anything: no"), tmp_path)

    assert (kinds(case), case.result[0].message) == ([Error], "ended before it compared anything: no")


def test_write__run_that_compared_nothing__is_an_error_that_says_why(tmp_path):
    case = only_case(samples.run(results=(), exit_code=3, notes=("candidate 'gpu' was skipped",)), tmp_path)

    assert (kinds(case), case.result[0].message) == ([Error], "candidate 'gpu' was skipped")


def test_write__unsupported__skip_carries_the_reason(tmp_path):
    why = UnsupportedCases(reason=next(iter(UnsupportedReason)), cases=3, details=("no kernel for float16",))
    result = samples.outcome(outcome="unsupported", cases=CaseCounts(unsupported=3), unsupported=(why,))

    case = only_case(samples.run(results=(result,)), tmp_path)

    assert "no kernel for float16" in case.result[0].message


def test_write__no_location__classname_is_the_test_s_file(tmp_path):
    case = only_case(samples.run(results=(samples.outcome(test="a/b.py::Norms::relu", location=None),)), tmp_path)

    assert (case.classname, case.name) == ("a/b.py", "Norms::relu[kernels]")


def test_write__misaligned__failure_has_the_headline_the_message_and_the_program(tmp_path):
    failure = only_case(samples.misaligned(), tmp_path).result[0]

    assert (failure.message, failure.type) == (samples.finding().headline, "misaligned")
    assert failure.text == f"{samples.MESSAGE}\n\n{samples.PROGRAM}\n\nreplay: {samples.finding().replay}"


def test_write__properties_and_time__are_told(tmp_path):
    suite = next(iter(read(samples.misaligned(), tmp_path)))

    assert {item.name: item.value for item in suite.properties()} == {"seed": "1729", "cases": "20"}
    assert [case.time for case in suite] == [1.5]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param({"known": "int32 indices"}, "accepted (int32 indices)", id="accepted"),
        pytest.param({"kind": "leniency"}, "leniency, blame: candidate", id="leniency"),
        pytest.param({"blame": "reference"}, "value, blame: reference", id="reference-blamed"),
        pytest.param({"outcome": "flaky"}, "does not fail the run: flaky", id="flaky"),
    ],
)
def test_write__finding_that_does_not_count__passes_and_is_told(tmp_path, change, told):
    case = only_case(samples.misaligned(findings=(samples.finding(**change),)), tmp_path)

    assert kinds(case) == []
    assert told in case.system_out
    assert samples.MESSAGE in case.system_out


def test_write__flaky_test__passes_and_is_told(tmp_path):
    flaky = samples.outcome(outcome="flaky", cases=CaseCounts(aligned=19, flaky=1))

    case = only_case(samples.run(results=(flaky,)), tmp_path)

    assert (kinds(case), "flaky: 1 of 20 cases differ" in case.system_out) == ([], True)


def test_write__failed_without_a_finding__is_a_failure(tmp_path):
    case = only_case(samples.run(results=(samples.failed(findings=("lost-0000",)),)), tmp_path)

    assert [item.message for item in case.result] == ["misaligned, and no finding says why"]


def test_write__called_aligned_though_nothing_was_compared__is_skipped(tmp_path):
    case = only_case(samples.run(results=(samples.outcome(cases=CaseCounts()),)), tmp_path)

    assert kinds(case) == [Skipped]


def test_write__called_aligned_though_a_finding_counts__is_a_failure(tmp_path):
    result = samples.run(results=(samples.outcome(findings=("layer_norm-3f2a",)),), findings=(samples.finding(),))

    assert kinds(only_case(result, tmp_path)) == [Failure]


def test_write__all_rejected__reason_is_told(tmp_path):
    case = only_case(samples.run(results=(samples.rejected(),)), tmp_path)

    assert [item.message for item in case.result] == ["the reference rejected all 400 attempts"]


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_write__hostile_text__is_read_back_without_what_xml_cannot_hold(tmp_path, name):
    planted = samples.HOSTILE[name]
    found = samples.finding(headline=planted, message=planted, program=planted, known=None)
    result = samples.misaligned(
        findings=(found,),
        results=(samples.failed(test=f"a.py::{planted}", candidate=planted),),
        broken=(samples.broken(message=planted, traceback=planted),),
    )

    cases = [case for suite in read(result, tmp_path) for case in suite]

    assert [kinds(case) for case in cases] == [[Failure], [Error]]
    assert not set((tmp_path / "junit.xml").read_text()) & {"\x00", "\x1b", "\x07", "\u202e", "\udc80"}


def test_write__many_tests__is_quick(tmp_path):
    results = tuple(samples.outcome(test=f"a.py::t{index}") for index in range(5_000))

    assert sum(suite.tests for suite in read(samples.run(results=results), tmp_path)) == 5_000


@pytest.mark.parametrize("verdict", ["misaligned", "crashed"])
def test_write__wrong_at_larger_sizes_only__is_a_failure_of_its_test(verdict, tmp_path):
    call = SpeedResult(
        test=samples.TEST, candidate="kernels", case=0, phase="forward", verdict=verdict, reason="the worker ended"
    )
    others = samples.outcome(candidate="compiled"), samples.outcome(test="a.py::exp")

    cases = [
        case
        for suite in read(samples.run(results=(samples.outcome(), *others), speed=(call, call)), tmp_path)
        for case in suite
    ]

    assert [kinds(case) for case in cases] == [[Failure], [], []]
    assert (cases[0].result[0].message, cases[0].result[0].type) == (
        f"{verdict} at larger sizes: the worker ended", verdict,
    )  # fmt: skip


def test_write__finding_and_wrong_at_larger_sizes__is_one_failure_with_both(tmp_path):
    call = SpeedResult(
        test=samples.TEST, candidate="kernels", case=0, phase="forward", verdict="crashed", reason="the worker ended"
    )
    (failure,) = only_case(msgspec.structs.replace(samples.misaligned(), speed=(call,)), tmp_path).result
    assert failure.message == samples.finding().headline
    assert failure.text.endswith("crashed at larger sizes: the worker ended")


def test_write__accepted_at_larger_sizes__is_no_failure(tmp_path):
    call = SpeedResult(
        test=samples.TEST, candidate="kernels", case=0, phase="forward", verdict="misaligned", known="rounds up"
    )
    assert kinds(only_case(samples.run(results=(samples.outcome(),), speed=(call,)), tmp_path)) == []

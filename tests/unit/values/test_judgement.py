"""What fails a run: every surface says so if and only if the exit status does, whatever the run was."""

from __future__ import annotations

import io
import json
import random
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import msgspec
import pytest

from ci_autotest.commands.exit_status import settled
from ci_autotest.commands.result_text import Verbosity, show_result
from ci_autotest.commands.selected_tests import failed_after
from ci_autotest.errors import UnsupportedReason
from ci_autotest.report import junit, sarif
from ci_autotest.report.annotations import annotate
from ci_autotest.report.comment_text import render_comment
from ci_autotest.report.verdict_line import verdict
from ci_autotest.values.finding import Finding
from ci_autotest.values.judgement import FAILED, Cause, CauseKind, causes
from ci_autotest.values.result import FAIL_ON, CaseCounts, RunError, RunResult, UnsupportedCases, XFail
from ci_autotest.values.speed import Ratio, SpeedResult
from ci_autotest.values.verdict import FAILED_OUTCOMES
from tests import report_samples as samples

if TYPE_CHECKING:
    from ci_autotest.values.result import TestResult

TESTS = [f"autotests/a.py::t{number}" for number in range(4)]
OUTCOMES = [
    "aligned",
    "aligned",
    "misaligned",
    "crashed",
    "timed_out",
    "flaky",
    "known",
    "unsupported",
    "not_run",
    "skipped",
]
BLOCKS, RUNS = 4, 100


def random_finding(draw: random.Random, number: int) -> Finding:
    outcome = draw.choice(["misaligned", "misaligned", "crashed", "timed_out", "flaky"])
    kind = draw.choice(["value", "leniency", "gradient"]) if outcome == "misaligned" else "value"
    return samples.numbered(
        number, outcome=outcome, kind=kind, demanded=draw.random() < 0.2, confirmed=outcome != "flaky",
        blame=draw.choice(["candidate", "both", "unknown", "reference", "ill_conditioned"]),
        known=draw.choice([None, None, None, "accepted"]), test=draw.choice(TESTS), tests=(),
        headline=f"torch.op{number:05} on kernels: differs",
    )  # fmt: skip


def random_result(draw: random.Random, test: str, findings: list[Finding]) -> TestResult:
    own = tuple(item.id for item in findings if item.test == test)
    outcome = draw.choice(OUTCOMES)
    shown = {"aligned": "aligned", "misaligned": "misaligned", "crashed": "crashed", "timed_out": "timed_out"}.get(
        outcome
    )
    counts = {shown: 3} if shown else {"unsupported": 3} if outcome == "unsupported" else {"not_run": 3}
    reason = draw.choice([UnsupportedReason.NOT_REPLACED, UnsupportedReason.NOT_IMPLEMENTED])
    lacking = (UnsupportedCases(reason=reason, cases=3, details=("x",)),) if outcome == "unsupported" else ()
    return samples.outcome(
        test, outcome=outcome, cases=CaseCounts(**counts), findings=own, unsupported=lacking,
        xfail=draw.choice([None, None, XFail(reason="known bug", is_strict=draw.random() < 0.5)]),
    )  # fmt: skip


def random_call(draw: random.Random) -> SpeedResult:
    return SpeedResult(
        test=draw.choice(TESTS), candidate="kernels", case=0, phase="forward",
        verdict=draw.choice(["slower", "misaligned", "crashed", "same"]), reason="for a reason",
        ratio=Ratio(low=2.0, median=2.1, high=2.2, pairs=9), factor=1.1, known=draw.choice([None, None, "accepted"]),
        new=draw.choice([None, True, False]),
    )  # fmt: skip


def random_run(seed: int) -> RunResult:
    draw = random.Random(seed)  # noqa: S311 - no secret
    findings = [random_finding(draw, number) for number in range(draw.choice([0, 0, 1, 3]))]
    tests = TESTS[: draw.choice([0, 1, 4, 4])]
    # A run has a result for each test that a finding or a timed call names.
    findings = [item for item in findings if item.test in tests]
    calls = [random_call(draw) for _ in range(draw.choice([0, 0, 1, 2]))]
    run = samples.run(
        results=tuple(random_result(draw, test, findings) for test in tests), findings=tuple(findings),
        broken=tuple(samples.broken() for _ in range(draw.random() < 0.1)),
        speed=tuple(call for call in calls if call.test in tests), interrupted=draw.random() < 0.1,
        error=RunError("no node is left", 4) if draw.random() < 0.1 else None,
        new=draw.choice([None, tuple(item.id for item in findings if draw.random() < 0.5)]),
    )  # fmt: skip
    return settled(run, draw.choice(FAIL_ON))


def said(result: RunResult) -> str:
    stream = io.StringIO()
    show_result(result, stream, "folder", Verbosity.QUIET)
    return stream.getvalue()


def failed_cases(result: RunResult) -> int:
    root = ET.fromstring(junit.render(result).encode())  # noqa: S314 - our own
    return int(root.get("failures", "0")) + int(root.get("errors", "0"))


@pytest.mark.parametrize("block", range(BLOCKS))
def test_surfaces__any_run__say_what_its_status_says(block):
    for seed in range(RUNS):
        hold_to_causes(random_run(RUNS * block + seed))


def hold_to_causes(result: RunResult) -> None:
    found = causes(result)
    of_tests = [cause for cause in found if cause.status == FAILED]
    sign = verdict(result)[0]
    assert (sign == "✗") == bool(result.exit_code or not any(item.cases.compared for item in result.results)), result
    assert sign in render_comment(result)
    assert bool(failed_cases(result)) == bool(of_tests or result.error or (result.exit_code and not result.results))
    assert bool(annotate(result)) == bool(of_tests)
    again = failed_after(result, (), has_all_candidates=True)
    assert {cause.test for cause in of_tests} <= {*again}
    quiet = said(result)
    for cause in of_tests:
        name = cause.subject.operator if isinstance(cause.subject, Finding) else cause.test
        assert name in quiet
    levels = [item["level"] for item in json.loads(sarif.render(result))["runs"][0]["results"]]
    assert levels.count("error") == sum(cause.kind is CauseKind.FINDING for cause in found)


FLAKY = samples.finding(outcome="flaky", confirmed=False)
LENIENT = samples.finding(kind="leniency")
CALL = SpeedResult(
    test=samples.TEST, candidate="kernels", case=0, phase="forward", verdict="slower", factor=1.1,
    ratio=Ratio(low=2.0, median=2.1, high=2.2, pairs=9),
)  # fmt: skip
WRONG = msgspec.structs.replace(CALL, verdict="misaligned", ratio=None, reason="torch.x is misaligned at these sizes")
PASSED = samples.outcome(xfail=XFail(reason="known bug", is_strict=True))
ORPHAN = samples.failed()

#: A situation, what asks for it, and what the verdict calls it.
SITUATIONS = {
    "flaky": ({"findings": (FLAKY,), "results": (samples.outcome(outcome="flaky", findings=(FLAKY.id,)),)}, "flaky", "operator flaky"),
    "lenient": ({"findings": (LENIENT,), "results": (samples.outcome(findings=(LENIENT.id,)),)}, "leniency", "operator lenient"),
    "slower": ({"speed": (CALL,), "results": (samples.outcome(),)}, "slower", "timed call slower"),
    "wrong at a larger size": ({"speed": (WRONG,), "results": (samples.outcome(),)}, "misaligned", "call wrong at larger sizes"),
    "unexpected pass": ({"results": (PASSED,)}, "misaligned", "test passed, but was expected to fail"),
    "orphan": ({"results": (ORPHAN,)}, "misaligned", "test failed without a finding"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "fail_on", "words"), SITUATIONS.values(), ids=SITUATIONS)
def test_surfaces__one_situation__is_told_where_it_is_asked_for(fields, fail_on, words):
    result = settled(samples.run(**fields), fail_on)
    assert result.exit_code == FAILED
    assert verdict(result).startswith(f"✗ 1 {words}")
    assert failed_cases(result) == 1
    assert len(annotate(result)) == 1
    assert failed_after(result, (), has_all_candidates=True) == [samples.TEST]
    assert len(said(result).splitlines()) == 3  # The cause, the verdict and the folder.


@pytest.mark.parametrize("name", ["flaky", "lenient", "slower"])
def test_surfaces__the_same_where_it_is_not_asked_for__are_green(name):
    result = settled(samples.run(**SITUATIONS[name][0]), "misaligned")
    assert (result.exit_code, failed_cases(result), annotate(result)) == (0, 0, ())
    assert not verdict(result).startswith("✗")


def test_surfaces__finding_of_the_baseline_where_new_ones_fail__is_spared_and_told():
    result = settled(samples.misaligned(new=()), "new")
    assert (result.exit_code, failed_cases(result), annotate(result)) == (0, 0, ())
    assert "does not fail the run: value, blame: candidate, not counted" in junit.render(result)
    (level,) = [item["level"] for item in json.loads(sarif.render(result))["runs"][0]["results"]]
    assert level == "warning"


def test_causes__are_those_of_the_outcomes_that_fail():
    assert Cause(CauseKind.FINDING, "a", "b", samples.finding(tests=("a", "c"))).tests == ("a", "c")
    assert Cause(CauseKind.INTERRUPTION).tests == ()
    assert {"misaligned", "crashed", "timed_out"} == FAILED_OUTCOMES


def test_surfaces__report_of_an_earlier_version__reads_as_it_did():
    old = samples.misaligned(new=(), exit_code=0)
    assert (causes(old), verdict(old)[0], failed_cases(old)) == ((), "⚠", 0)
    failed = samples.misaligned(new=(), exit_code=1)
    assert verdict(failed).startswith("✗ 1 operator misaligned: ")


def test_verdict__baseline_found_after_a_run_that_failed__names_the_operator():
    # A publisher may find the baseline that the run did not have.
    result = msgspec.structs.replace(settled(samples.misaligned(), "new"), new=())
    assert (result.exit_code, verdict(result).startswith("✗ 1 operator misaligned: ")) == (FAILED, True)


def test_junit__unexpected_pass__is_a_failure_where_something_was_compared():
    lacking = (UnsupportedCases(reason=UnsupportedReason.NOT_REPLACED, cases=3, details=("x",)),)
    other = samples.outcome(
        candidate="other", outcome="unsupported", cases=CaseCounts(unsupported=3), unsupported=lacking,
        xfail=XFail(reason="known bug", is_strict=True),
    )  # fmt: skip
    assert failed_cases(settled(samples.run(results=(PASSED, other)), "misaligned")) == 1


def test_surfaces__call_that_crashes_at_many_sizes__is_told_once():
    result = settled(samples.run(results=(samples.outcome(),), speed=(WRONG, WRONG, WRONG)), "misaligned")
    assert (len(annotate(result)), verdict(result)) == (1, "✗ 3 calls wrong at larger sizes")

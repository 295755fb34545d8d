"""What the command says of a test is said once, whichever candidates it was compared on."""

from __future__ import annotations

import io

import msgspec
import pytest

from ci_autotest.commands.result_text import Verbosity, show_result
from ci_autotest.values.result import CaseCounts
from tests import report_samples as samples


def said(*candidates: tuple[str, CaseCounts]) -> list[str]:
    result = samples.run()
    weak = msgspec.structs.replace(
        samples.outcome(), weak=True, refusal="it says no", undefined_gradients=2, findings=()
    )
    results = tuple(msgspec.structs.replace(weak, candidate=name, cases=cases) for name, cases in candidates)
    stream = io.StringIO()
    show_result(msgspec.structs.replace(result, results=results), stream, "out")
    return [line for line in stream.getvalue().splitlines() if line.startswith(("weak: ", "gradients not "))]


def test_show_result__weak_test__is_told_once_with_what_the_reference_said_last():
    expected = [
        f"gradients not compared: 2 cases of {samples.TEST}: the reference has no backward pass there",
        f"weak: {samples.TEST}: fewer than one ordinary attempt in ten is accepted; for example, the reference said: it says no",
    ]
    ran, left = CaseCounts(aligned=20), CaseCounts(not_run=20)
    assert said(("a", ran), ("b", ran)) == expected
    # The first candidate is not there: the test is as weak.
    assert said(("a", left), ("b", ran)) == expected
    assert said(("a", left)) == []


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [(Verbosity.NORMAL, 10), (Verbosity.VERBOSE, 30), (Verbosity.QUIET, 0)],
    ids=["normal", "verbose", "quiet"],
)
def test_show_result__output_of_a_finding__its_end_without_codes_of_a_terminal(verbosity: Verbosity, shown: int):
    output = "".join(f"line {number}\x1b[2J\x07\n" for number in range(30))
    finding = msgspec.structs.replace(samples.finding(), output=output, outcome="misaligned", known=None)
    stream = io.StringIO()
    show_result(samples.run(findings=(finding,)), stream, "out", verbosity)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("    line ")]
    assert lines == [f"    line {number}[2J" for number in range(30)][30 - shown :]


def test_show_result__quiet_and_nothing_was_compared__says_why():
    untested = msgspec.structs.replace(samples.rejected(), reason="softmax is unsupported")
    result = samples.run(findings=(), results=(untested,), exit_code=3)
    stream = io.StringIO()
    show_result(result, stream, "out", Verbosity.QUIET)
    assert f"not compared: {untested.test} on {untested.candidate}: {untested.reason}" in stream.getvalue().splitlines()

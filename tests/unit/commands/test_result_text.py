"""What the command says of a test is said once, whichever candidates it was compared on."""

from __future__ import annotations

import io

import msgspec
import pytest

from ci_autotest.commands.output_writer import without_report
from ci_autotest.commands.result_text import Verbosity, show_result
from ci_autotest.values.finding import Location
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


def test_show_result__finding_of_a_kernel_of_the_checkout__says_where_it_is_defined():
    finding = msgspec.structs.replace(samples.finding(), known=None)
    place = Location(file="mykernels.py", line=5)
    named = msgspec.structs.replace(samples.KERNELS, kernels={finding.operator: place})
    for candidate, expected in ((named, ["  kernel: mykernels.py:5"]), (samples.KERNELS, [])):
        stream = io.StringIO()
        show_result(samples.run(findings=(finding,), candidates=(candidate,)), stream, "out")
        assert [line for line in stream.getvalue().splitlines() if line.startswith("  kernel: ")] == expected


def brief(**changes: object) -> list[str]:
    stream = io.StringIO()
    show_result(samples.run(**changes), stream, "out", Verbosity.QUIET)
    return [line for line in stream.getvalue().splitlines() if ": " in line]


def test_show_result__quiet__says_why_nothing_was_compared_or_the_run_could_not_go_on():
    untested = msgspec.structs.replace(samples.rejected(), reason="softmax is unsupported")
    away = msgspec.structs.replace(samples.COMPILED, available=False, reason="it is not installed")
    run = {"results": (untested,), "candidates": (samples.KERNELS, away), "notes": ("the cluster is gone",)}
    not_available = "not available: compiled: it is not installed"
    not_compared = f"not compared: {untested.test} on {untested.candidate}: softmax is unsupported"
    assert brief(**run, exit_code=3)[:2] == [not_available, not_compared]
    assert brief(**run, exit_code=4)[0] == "note: the cluster is gone"
    assert not {not_available, not_compared} & set(brief(**run, exit_code=1))
    many = {**run, "results": (untested, msgspec.structs.replace(untested, test="a.py::other"))}
    assert not_compared.replace(": softmax", " and 1 more: softmax") in brief(**many, exit_code=3)


def test_show_result__note_with_special_characters__is_the_verdict_as_it_stands():
    note = r"no test uses @autotest: see <https://x> & `a|b` in C:\tmp\new"
    stream = io.StringIO()
    show_result(without_report(note), stream, "out")
    assert f"✗ {note}" in stream.getvalue().splitlines()


def test_show_result__findings__stand_in_the_order_of_the_comment():
    known, new = samples.numbered(0, known="x"), samples.numbered(1)
    stream = io.StringIO()
    show_result(samples.misaligned(findings=(known, new), new=(new.id,)), stream, "out")
    assert stream.getvalue().index(new.message.splitlines()[0]) < stream.getvalue().index("accepted: ")

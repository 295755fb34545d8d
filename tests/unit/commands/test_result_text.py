"""What a command prints at the end of a run: what holds for a test is said once, and the table fits the terminal.

Each test has one row, an empty column is left out, and a long name loses its middle.
"""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from ci_autotest.commands.output_writer import without_report
from ci_autotest.commands.result_text import Verbosity, help_pages, result_table, show_result
from ci_autotest.doc_links import Page
from ci_autotest.values.finding import Location
from ci_autotest.values.result import CaseCounts
from tests import report_samples as samples
from tests.report_samples import outcome, rejected, run

LONG = "autotests/activations_of_the_block/autotest_activations.py::softmax_of_the_scores_over_the_last_dimension"
ROWS = (
    samples.outcome(LONG, cases=CaseCounts(aligned=12), findings=()),
    samples.outcome("autotests/b.py::exp", outcome="misaligned", cases=CaseCounts(aligned=3, misaligned=9)),
)


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


@pytest.mark.parametrize(
    ("changes", "pages"),
    [
        ({"results": (rejected(), rejected(candidate="kernels"))}, [Page.NOTHING_COMPARED, Page.WEAK]),
        ({"results": (outcome(weak=True),)}, [Page.WEAK]),
        ({"results": (outcome(), outcome(candidate="other", outcome="flaky"))}, [Page.FLAKY]),
        ({"results": (outcome(outcome="crashed"),)}, [Page.CRASHED]),
        ({"results": (outcome(outcome="unsupported"), outcome(outcome="unsupported"))}, [Page.UNSUPPORTED]),
    ],
)
def test_help_pages__of_what_needs_more_than_a_sentence(changes: dict[str, Any], pages: list[Page]) -> None:
    assert help_pages(run(**changes)) == pages


def test_help_pages__of_an_aligned_run__has_none() -> None:
    assert help_pages(run(results=(outcome(), outcome(outcome="unsupported")))) == []


def lines(width: int, *rows: object) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False)
    for row in result_table(samples.run(results=rows or ROWS), width):
        console.print(row)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_result_table__long_ids__one_row_a_test_and_no_line_is_wider(width: int):
    found = lines(width)
    assert max(map(len, found)) <= width
    assert sum("aligned" in line for line in found[1:]) == len(ROWS)
    assert [line for line in found if line.startswith("  exp ") or "::exp " in line] != []


def test_result_table__ids_fit__stand_whole():
    assert [line.split()[0] for line in lines(160)[1:]] == [LONG, "autotests/b.py::exp"]


def test_result_table__ids_do_not_fit__are_below_their_files():
    assert lines(120)[1:4] == [
        "autotests/activations_of_the_block/autotest_activations.py",
        "  softmax_of_the_scores_over_the_last_dimension  " + lines(120)[2][49:],
        "autotests/b.py",
    ]


def test_result_table__narrow__a_name_loses_its_middle_and_the_outcome_has_its_cases():
    named = next(line for line in lines(60) if "softmax" in line)
    assert "…" in named
    assert named.split()[0].startswith("softmax")
    assert "dimension" in named.split()[0]
    assert "misaligned 9 of 12" in lines(60)[-1]


def test_result_table__counts_that_are_0_everywhere__have_no_column():
    assert lines(160)[0].split() == ["test", "candidate", "outcome", "aligned", "misaligned", "s"]


@pytest.mark.parametrize("width", [20, 40])
def test_result_table__hardly_any_room__still_has_a_row_for_each_test(width: int):
    assert sum("aligned" in line for line in lines(width)[1:]) >= 1


def test_result_table__time_of_compiling__has_a_column():
    rows = (samples.outcome("a.py::exp", compile_s=1.24), samples.outcome("a.py::sin"))
    assert lines(160)[0].split() == ["test", "candidate", "outcome", "aligned", "misaligned", "s"]
    assert lines(160, *rows)[0].split()[-2:] == ["compiling", "s"]
    assert [line.split()[-2:] for line in lines(160, *rows)[1:]] == [["1.2", "1.5"], ["20", "1.5"]]
    assert "compiling" not in lines(160, rows[1])[0]

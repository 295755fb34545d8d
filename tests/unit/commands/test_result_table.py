"""The table fits the terminal: each test has one row, an empty column is left out, and a long name loses its middle."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ci_autotest.commands.result_table import result_table
from ci_autotest.values.result import CaseCounts
from tests import report_samples as samples

LONG = "autotests/activations_of_the_block/autotest_activations.py::softmax_of_the_scores_over_the_last_dimension"
ROWS = (
    samples.outcome(LONG, cases=CaseCounts(aligned=12), findings=()),
    samples.outcome("autotests/b.py::exp", outcome="misaligned", cases=CaseCounts(aligned=3, misaligned=9)),
)


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

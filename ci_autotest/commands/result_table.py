"""The table at the end of a run: one row for each test and candidate, in the terminal's width.

A column that is 0 everywhere is left out. A row is never broken: if the ids do not fit, tests are listed below their
file; if that does not help, the counts give way, and at last a name loses its middle.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from ci_autotest.commands.line_width import shortened
from ci_autotest.values.verdict import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from ci_autotest.values.result import RunResult, TestResult

_Cells: TypeAlias = "tuple[Text, ...]"
_COLOURS: Final = {
    "aligned": "green",
    "misaligned": "red",
    "crashed": "red",
    "timed_out": "red",
    "flaky": "yellow",
    "reference_off": "cyan",
}
#: Rows of aligned tests; tests that need attention are always shown.
_ROWS: Final = 24
#: Cells that a name should have before counts are left out for it, and that the name of a candidate may take.
_NAME_ENOUGH: Final = 40
_CANDIDATE_MOST: Final = 20
_GAP: Final = 2
_HEADS: Final = (Text("candidate"), Text("outcome"))
_SECONDS: Final = Text("s", justify="right")


def result_table(result: RunResult, width: int, *, is_whole: bool = False) -> Iterator[RenderableType]:
    """Yield the lines of the table.

    Args:
        result: Any.
        width: Cells of a line.
        is_whole: Whether all aligned tests have a row.
    """
    quiet = [item for item in result.results if item.outcome == "aligned" and not item.reason]
    loud = [item for item in result.results if item.outcome != "aligned" or item.reason]
    most = len(quiet) if is_whole else _ROWS
    shown = [*quiet[:most], *loud]
    if shown:
        yield from _fitted(shown, width)
    if len(quiet) > most:
        yield Text(f"… and {len(quiet) - most:,} more aligned tests")


def _fitted(items: Sequence[TestResult], width: int) -> Iterator[RenderableType]:
    columns = [name for name in COLUMNS if any(getattr(item.cases, name) for item in items)]
    is_compiled = any(item.compile_s for item in items)
    numbers = [Text(name.replace("_", " "), justify="right") for name in columns]
    if is_compiled:
        numbers.append(Text("compiling", justify="right"))
    heads: _Cells = (*_HEADS, *numbers, _SECONDS)
    rows = [_full(item, columns, is_compiled=is_compiled) for item in items]
    ids, names = [item.test for item in items], [f"  {_name(item)}" for item in items]
    if max(map(cell_len, ids)) <= _room(heads, rows, width):
        yield _grid([("test", heads), *zip(ids, rows, strict=True)], _all_widths(ids, heads, rows, width))
        return
    if _room(heads, rows, width) < min(_NAME_ENOUGH, max(map(cell_len, names))):
        # One candidate is named in the first line of the run.
        first = 0 if len({item.candidate for item in items}) > 1 else 1
        heads, rows = (*_HEADS[first:], _SECONDS), [_compact(item)[first:] for item in items]
    widths = _all_widths(names, heads, rows, width)
    yield _grid([("test", heads)], widths)
    for file, own in groupby(zip(items, names, rows, strict=True), key=lambda row: _file(row[0])):
        yield Text(shortened(file, width), no_wrap=True)
        yield _grid([(name, cells) for _, name, cells in own], widths)


def _grid(lines: Sequence[tuple[str, _Cells]], widths: Sequence[int]) -> Table:
    """Return lines whose columns have the given widths, so that several grids stand in line."""
    table = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    for each in widths:
        table.add_column(width=each, no_wrap=True)
    for name, cells in lines:
        table.add_row(Text(shortened(name, widths[0])), *cells, style="bold" if cells[-1] is _SECONDS else "")
    return table


def _all_widths(names: Sequence[str], heads: _Cells, rows: Sequence[_Cells], width: int) -> list[int]:
    """Return the widths of all columns, the test's first."""
    wanted = max(cell_len("test"), *map(cell_len, names))
    return [max(1, min(wanted, _room(heads, rows, width))), *_widths(heads, rows)]


def _widths(heads: _Cells, rows: Sequence[_Cells]) -> list[int]:
    return [max(cell.cell_len for cell in column) for column in zip(heads, *rows, strict=True)]


def _room(heads: _Cells, rows: Sequence[_Cells], width: int) -> int:
    """Return the cells that are left for the test."""
    return width - sum(_GAP + each for each in _widths(heads, rows))


def _full(item: TestResult, columns: Sequence[str], *, is_compiled: bool) -> tuple[Text, ...]:
    counts = [Text(str(getattr(item.cases, name) or ""), justify="right") for name in columns]
    if is_compiled:
        counts.append(Text(f"{item.compile_s:.1f}" if item.compile_s else "", justify="right"))
    return *_sides(item, item.outcome.replace("_", " ")), *counts, _time(item)


def _compact(item: TestResult) -> tuple[Text, ...]:
    """Return the cells of a narrow terminal: the outcome with its number of cases."""
    counts = item.cases
    of = sum(getattr(counts, name) for name in COLUMNS)
    own = getattr(counts, item.outcome)
    amount = "" if not own else f" {own}" if own == of else f" {own} of {of}"
    return *_sides(item, f"{item.outcome.replace('_', ' ')}{amount}"), _time(item)


def _sides(item: TestResult, outcome: str) -> tuple[Text, Text]:
    candidate = Text(shortened(item.candidate, _CANDIDATE_MOST), justify="left")
    return candidate, Text(outcome, style=_COLOURS.get(item.outcome, ""), justify="left")


def _time(item: TestResult) -> Text:
    return Text(f"{item.duration_s:.1f}", justify="right")


def _file(item: TestResult) -> str:
    return item.test.partition("::")[0]


def _name(item: TestResult) -> str:
    file, _, name = item.test.partition("::")
    return name or file

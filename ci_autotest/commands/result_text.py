"""What a command prints at the end of a run: the table, the findings with their programs, the notes and the verdict.

The table has one row for each test and candidate, in the terminal's width. A column that is 0 everywhere is left out. A
row is never broken: if the ids do not fit, tests are listed below their file; if that does not help, the counts give
way, and at last a name loses its middle.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ci_autotest.commands.line_width import shortened, wrapped
from ci_autotest.doc_links import Page, link
from ci_autotest.errors import UnavailableError
from ci_autotest.report.cause_text import in_order, line_of
from ci_autotest.report.coverage import sentence, size_sentence
from ci_autotest.report.finding_program import program_or_reason
from ci_autotest.report.report_json import text_of
from ci_autotest.report.speed_text import speed_lines
from ci_autotest.report.verdict_line import in_reading_order, partial_sentences, partly_compared, verdict
from ci_autotest.values.amounts import plural
from ci_autotest.values.judgement import FAILED, NOTHING
from ci_autotest.values.result import LOADER_CANDIDATE, kernel_of
from ci_autotest.values.verdict import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from rich.console import RenderableType

    from ci_autotest.values.finding import Finding, Location
    from ci_autotest.values.result import BrokenTest, RunResult, TestResult

#: Width of the table where there is no terminal.
_PLAIN_WIDTH: Final = 160
_VERDICT_COLOURS: Final = {"✓": "bold green", "⚠": "bold yellow", "✗": "bold red"}
_TRACEBACK_LINES: Final = 12
#: Lines of a case's output that are shown; the report has more.
_OUTPUT_LINES: Final = 10
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
_ALIGNED_ROWS: Final = 24
#: Cells that a name should have before counts are left out for it, and that the name of a candidate may take.
_NAME_ENOUGH: Final = 40
_CANDIDATE_MOST: Final = 20
_GAP: Final = 2
_HEADS: Final = (Text("candidate"), Text("outcome"))
_SECONDS: Final = Text("s", justify="right")


class Verbosity(IntEnum):
    """How much a command prints.

    Attributes:
        QUIET: The findings in one line each, and the verdict.
        NORMAL: Also the table, programs and notes.
        VERBOSE: Also all aligned tests, whole tracebacks and the whole output of a finding's case.
    """

    QUIET = -1
    NORMAL = 0
    VERBOSE = 1


class Display(NamedTuple):
    """What ``-q``, ``-v`` and ``--json`` ask for; the first two cancel each other out."""

    is_quiet: bool
    is_verbose: bool
    is_json: bool


def show_as(result: RunResult, output: str, stream: TextIO, display: Display) -> None:
    """Write a result to ``stream``, and with ``--json`` the report to standard output."""
    show_result(result, stream, output, Verbosity(display.is_verbose - display.is_quiet))
    if display.is_json:
        click.echo(text_of(result), nl=False)


def show_result(result: RunResult, stream: TextIO, output: str, verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """Write the table, the findings with their programs, the notes and the folder of the report."""
    is_terminal = stream.isatty()
    console = Console(file=stream, width=None if is_terminal else _PLAIN_WIDTH, highlight=False)
    width = console.width if is_terminal else None
    lines = _brief(result) if verbosity is Verbosity.QUIET else _lines(result, width, verbosity)
    if verbosity is not Verbosity.QUIET:
        for row in result_table(result, console.width, is_whole=verbosity is Verbosity.VERBOSE):
            console.print(row)
    for line in lines:
        # Soft: only the terminal breaks what is left longer than it is wide, so that it can be copied in one piece.
        console.print(line, soft_wrap=True)
    words = verdict(result)
    console.print(Text(wrapped(words, width), style=_VERDICT_COLOURS.get(words[:1], "")), soft_wrap=True)
    console.print(
        Text(wrapped(f"seed {result.seed}; report in {output}; exit status {result.exit_code}", width)), soft_wrap=True
    )


def _brief(result: RunResult) -> list[Text]:
    """Return a line for each failure, and the reasons of a run that compared nothing or could not go on."""
    lines = [line_of(cause) for cause in in_order(result) if cause.status == FAILED and cause.test]
    if result.exit_code == NOTHING:
        # The table names these candidates otherwise.
        lines += [f"not available: {info.name}: {info.reason}" for info in result.candidates if info.reason]
        lines += _uncompared(result)
    if result.exit_code == UnavailableError.exit_code:
        lines += [f"note: {note}" for note in result.notes]
    return [Text(line) for line in lines]


def _lines(result: RunResult, width: int | None, verbosity: Verbosity) -> Iterator[Text]:
    for finding in in_reading_order(result):
        yield Text("")
        yield from _finding(finding, kernel_of(result, finding), width, verbosity)
    for wrong in result.broken:
        yield from _broken(wrong, width, verbosity)
    for line in (*_uncompared(result), *_in_part(result), *_of_tests(result)):
        yield Text(wrapped(line, width), style="yellow")
    notes = (f"note: {note}" for note in result.notes)
    sizes = filter(None, [size_sentence(result)])
    for line in (*notes, *map(sentence, result.coverage), *sizes, *speed_lines(result), *_help_lines(result)):
        yield Text(wrapped(line, width))
    yield Text("")


def _finding(finding: Finding, kernel: Location | None, width: int | None, verbosity: Verbosity) -> Iterator[Text]:
    if finding.known is not None:
        yield Text(wrapped(f"accepted: {finding.headline} ({finding.known})", width))
        return
    yield Text(wrapped(finding.message, width))
    if kernel is not None:
        yield Text(wrapped(f"  kernel: {kernel}", width))
    if program := program_or_reason(finding):
        yield Text("\n".join(f"    {line}" for line in program.splitlines()), style="cyan")
    # The message of a crash or a timeout has the output's last line; all of it is in the report.
    if finding.output and (finding.outcome not in {"crashed", "timed_out"} or verbosity is Verbosity.VERBOSE):
        yield from _output(finding.output, verbosity)


def _output(output: str, verbosity: Verbosity) -> Iterator[Text]:
    # Codes that move the cursor would change what stands above.
    lines = ["".join(char for char in line if char.isprintable() or char == "\t") for line in output.splitlines()]
    shown = lines if verbosity is Verbosity.VERBOSE else lines[-_OUTPUT_LINES:]
    left = len(lines) - len(shown)
    yield Text(f"  printed in this case{f', the last {len(shown)} of {len(lines)} lines' if left else ''}:")
    yield Text("\n".join(f"    {line}" for line in shown), style="dim")


def _broken(wrong: BrokenTest, width: int | None, verbosity: Verbosity) -> Iterator[Text]:
    yield Text(wrapped(f"broken: {wrong.test}: {wrong.message}", width), style="red")
    if wrong.traceback:
        lines = wrong.traceback.strip().splitlines()
        shown = lines if verbosity is Verbosity.VERBOSE else lines[-_TRACEBACK_LINES:]
        yield Text("\n".join(f"    {line}" for line in shown))


def _uncompared(result: RunResult) -> list[str]:
    """Return why nothing was compared, a reason that holds for many tests only once."""
    printed = {wrong.message for wrong in result.broken} | {info.reason for info in result.candidates if info.reason}
    uncompared = [item for item in result.results if item.reason and not item.cases.compared]
    by_reason: dict[str, list[TestResult]] = {}
    for item in uncompared:
        by_reason.setdefault(item.reason, []).append(item)
    lines = []
    for reason, items in by_reason.items():
        if reason not in printed:
            rest = f" and {len(items) - 1:,} more" if len(items) > 1 else ""
            lines.append(f"not compared: {items[0].test} on {items[0].candidate}{rest}: {reason}")
    return lines


def _in_part(result: RunResult) -> list[str]:
    return [
        f"compared in part: {item.test} on {item.candidate}: {'; '.join(partial_sentences(item))}"
        for item in partly_compared(result)
    ]


def _of_tests(result: RunResult) -> list[str]:
    """Return the lines about a test that hold for all its candidates."""
    lines = []
    for item in {item.test: item for item in result.results if item.cases.compared}.values():
        if item.undefined_gradients:
            cases = f"{plural(item.undefined_gradients, 'case')} of {item.test}"
            lines.append(f"gradients not compared: {cases}: the reference has no backward pass there")
        if item.weak:
            example = f"; for example, the reference said: {item.refusal}" if item.refusal else ""
            few = "fewer than one ordinary attempt in ten is accepted"
            none = "no attempt is accepted, so only refusals are compared; declare `raises=` if the test is about them"
            lines.append(f"weak: {item.test}: {few if item.attempts.accepted else none}{example}")
    return lines


def help_pages(result: RunResult) -> list[Page]:
    """Return the pages for what needs more than the sentence that the terminal prints, each once."""
    candidates = {item.candidate for item in result.results}
    outcomes = {item.outcome for item in result.results}
    shown = {
        Page.NOTHING_COMPARED: bool(result.results)
        and not result.broken
        and not any(item.cases.compared for item in result.results),
        Page.WEAK: any(item.weak for item in result.results),
        Page.FLAKY: "flaky" in outcomes,
        Page.CRASHED: "crashed" in outcomes,
        Page.UNSUPPORTED: bool(result.results) and outcomes == {"unsupported"} and LOADER_CANDIDATE not in candidates,
    }
    return [page for page, is_shown in shown.items() if is_shown]


def _help_lines(result: RunResult) -> list[str]:
    """Return the pages as lines for the terminal."""
    return [f"more about it: {link(page)}" for page in help_pages(result)]


def result_table(result: RunResult, width: int, *, is_whole: bool = False) -> Iterator[RenderableType]:
    """Yield the lines of the table.

    Args:
        result: Any.
        width: Cells of a line.
        is_whole: Whether all aligned tests have a row.
    """
    quiet = [item for item in result.results if item.outcome == "aligned" and not item.reason]
    loud = [item for item in result.results if item.outcome != "aligned" or item.reason]
    most = len(quiet) if is_whole else _ALIGNED_ROWS
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
    ids, names = [item.test for item in items], [f"  {_test_name(item)}" for item in items]
    if max(map(cell_len, ids)) <= _room(heads, rows, width):
        yield _grid([("test", heads), *zip(ids, rows, strict=True)], _all_widths(ids, heads, rows, width))
        return
    if _room(heads, rows, width) < min(_NAME_ENOUGH, max(map(cell_len, names))):
        # One candidate is named in the first line of the run.
        first = 0 if len({item.candidate for item in items}) > 1 else 1
        heads, rows = (*_HEADS[first:], _SECONDS), [_compact(item)[first:] for item in items]
    widths = _all_widths(names, heads, rows, width)
    yield _grid([("test", heads)], widths)
    for file, own in groupby(zip(items, names, rows, strict=True), key=lambda row: _test_file(row[0])):
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


def _test_file(item: TestResult) -> str:
    return item.test.partition("::")[0]


def _test_name(item: TestResult) -> str:
    file, _, name = item.test.partition("::")
    return name or file

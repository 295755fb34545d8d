"""Progress of a run: one line that is overwritten on a terminal, plain lines elsewhere, and the table at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ci_autotest.report.coverage import sentence
from ci_autotest.report.help_pages import help_lines
from ci_autotest.report.speed_text import speed_lines
from ci_autotest.report.verdict_line import partly_unsupported, unsupported_sentence, verdict

if TYPE_CHECKING:
    from typing import TextIO

    from ci_autotest.values.result import RunResult

_PLAIN_EVERY_S: Final = 15.0
_LINE_EVERY_S: Final = 0.1
_COLUMNS: Final = (
    "aligned",
    "misaligned",
    "crashed",
    "timed_out",
    "unsupported",
    "flaky",
    "not_run",
)
_COLOURS: Final = {
    "aligned": "green",
    "misaligned": "red",
    "crashed": "red",
    "timed_out": "red",
    "flaky": "yellow",
}
#: Rows of aligned tests in the table; tests that need attention are always shown.
_ROWS: Final = 24


class Progress:
    """Progress line of a run.

    Args:
        stream: Receives the lines.
        total: Number of cases on all candidates.
        is_terminal: Whether one line is overwritten again and again.
    """

    def __init__(self, stream: TextIO, total: int, *, is_terminal: bool) -> None:
        self._stream = stream
        self._total = total
        self._is_terminal = is_terminal
        self._begun = time.monotonic()
        self._last_update = self._begun

    def update(self, test: str, done: int, findings: int) -> None:
        """Show cases, cases per second, suspected findings, the time left and the last test."""
        now = time.monotonic()
        if now - self._last_update < (_LINE_EVERY_S if self._is_terminal else _PLAIN_EVERY_S) and done < self._total:
            return
        self._last_update = now
        spent = max(now - self._begun, 1e-6)
        rate = done / spent
        left = max(self._total - done, 0) / rate if rate and done else 0.0
        suspected = f", {findings} suspected" if findings else ""
        line = f"{done} / {self._total} cases, {rate:,.0f} cases/s{suspected}, {left:.0f} s left  {test}"
        self._write(line)

    def say(self, line: str) -> None:
        """Write a line that stays."""
        if self._is_terminal:
            self._stream.write("\r\x1b[2K")
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def _write(self, line: str) -> None:
        if self._is_terminal:
            self._stream.write(f"\r\x1b[2K{line[:118]}")
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._is_terminal:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()


def show_result(result: RunResult, stream: TextIO, output: str) -> None:
    """Write the table, the findings with their programs, the notes and the folder of the report."""
    console = Console(file=stream, width=None if stream.isatty() else 160, highlight=False, soft_wrap=True)
    console.print(_table(result))
    for finding in result.findings:
        console.print()
        if finding.known is not None:
            console.print(Text(f"accepted: {finding.headline} ({finding.known})"))
            continue
        console.print(Text(finding.message))
        if finding.program:
            console.print(Text("\n".join(f"    {line}" for line in finding.program.splitlines()), style="cyan"))
    for wrong in result.broken:
        console.print(Text(f"broken: {wrong.test}: {wrong.message}", style="red"))
        if wrong.traceback:
            console.print(Text("\n".join(f"    {line}" for line in wrong.traceback.strip().splitlines()[-12:])))
    # A reason that holds for many tests is printed once.
    printed = {wrong.message for wrong in result.broken} | {info.reason for info in result.candidates if info.reason}
    for item in result.results:
        if item.reason and not item.cases.compared and item.reason not in printed:
            printed.add(item.reason)
            console.print(Text(f"not compared: {item.test} on {item.candidate}: {item.reason}", style="yellow"))
    for line in (*_in_part(result), *_of_tests(result)):
        console.print(Text(line, style="yellow"))
    for line in (
        *(f"note: {note}" for note in result.notes),
        *map(sentence, result.coverage),
        *speed_lines(result),
        *help_lines(result),
    ):
        console.print(Text(line))
    console.print()
    console.print(Text(verdict(result).replace("\\", "").replace("`", "")))
    console.print(Text(f"seed {result.seed}; report in {output}; exit status {result.exit_code}"))


def _in_part(result: RunResult) -> list[str]:
    return [
        f"compared in part: {item.test} on {item.candidate}: {unsupported_sentence(item)}"
        for item in partly_unsupported(result)
    ]


def _of_tests(result: RunResult) -> list[str]:
    """Return the lines about a test that hold for all its candidates."""
    lines = []
    for item in {item.test: item for item in result.results if item.cases.compared}.values():
        if item.undefined_gradients:
            cases = f"{item.undefined_gradients} cases of {item.test}"
            lines.append(f"gradients not compared: {cases}: the reference has no backward pass there")
        if item.weak:
            example = f"; for example, the reference said: {item.refusal}" if item.refusal else ""
            lines.append(f"weak: {item.test}: fewer than one ordinary attempt in ten is accepted{example}")
    return lines


def _table(result: RunResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("test", "candidate", "outcome"):
        table.add_column(name, overflow="fold")
    for name in (*_COLUMNS, "s"):
        table.add_column(name.replace("_", " "), justify="right")
    quiet = [item for item in result.results if item.outcome == "aligned" and not item.reason]
    loud = [item for item in result.results if item.outcome != "aligned" or item.reason]
    for item in [*quiet[:_ROWS], *loud]:
        counts = [str(getattr(item.cases, name) or "") for name in _COLUMNS]
        outcome = Text(item.outcome.replace("_", " "), style=_COLOURS.get(item.outcome, ""))
        table.add_row(escape(item.test), escape(item.candidate), outcome, *counts, f"{item.duration_s:.1f}")
    if len(quiet) > _ROWS:
        table.add_row(f"… and {len(quiet) - _ROWS} more aligned tests", "", "")
    return table

"""Progress of a run: one line with a bar that is overwritten on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ci_autotest.commands.line_width import shortened, wrapped
from ci_autotest.findings.triage import FINDING_S
from ci_autotest.values.amounts import time_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from rich.console import RenderableType

_PLAIN_EVERY_S: Final = 15.0
_LINE_EVERY_S: Final = 0.1
#: Cells of the bar, as a share of the line; fewer cells of a test's name than this say nothing.
_BAR_SHARE: Final = 5
_NAME_LEAST: Final = 12


class Progress:
    """What a run is doing.

    Args:
        stream: Receives the lines.
        is_live: Whether one line is overwritten again and again.
        is_quiet: Whether nothing is written.
    """

    def __init__(self, stream: TextIO, *, is_live: bool, is_quiet: bool = False) -> None:
        self._stream = stream
        self._is_live = is_live and not is_quiet
        self._is_quiet = is_quiet
        self._console = Console(file=stream, highlight=False, force_terminal=True) if self._is_live else None
        self._live: Live | None = None
        self._total, self._noun = 0, "cases"
        self._begun = self._last_update = time.monotonic()

    @contextmanager
    def shown(self) -> Iterator[Progress]:
        """Show the line in the block; nothing of it is left at its end."""
        if self._console is None:
            yield self
            return
        # The run's own threads and processes must not be disturbed, so the line is drawn here and by no thread.
        live = Live(
            Text(""), console=self._console, transient=True, auto_refresh=False,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        with live:
            self._live = live
            try:
                yield self
            finally:
                self._live = None

    def stage(self, text: str) -> None:
        """Show what the run is doing: at once on a terminal, elsewhere in a line every few seconds."""
        now = time.monotonic()
        if self._live is not None and self._console is not None:
            self._live.update(Text(shortened(text, self._console.width - 1), no_wrap=True), refresh=True)
        elif not self._is_quiet and now - self._last_update >= _PLAIN_EVERY_S:
            self._write(text)
            self._last_update = now

    def begin(self, total: int, noun: str = "cases") -> None:
        """Begin to count cases.

        Args:
            total: Number of cases on all candidates.
            noun: What is counted.
        """
        self._total, self._noun = total, noun
        self._begun = self._last_update = time.monotonic()

    def update(self, test: str, done: int, findings: int) -> None:
        """Show cases, cases per second, suspected findings, the time left and the last test."""
        if self._is_due or done >= self._total:
            self._show(test, done, findings)

    def wait(self, position: str, done: int, findings: int) -> None:
        """Show a case that takes long, such as one that is compiled, in place of the last test."""
        if self._is_due:
            self._show(position, done, findings)

    @property
    def _is_due(self) -> bool:
        return time.monotonic() - self._last_update >= (_LINE_EVERY_S if self._is_live else _PLAIN_EVERY_S)

    def _show(self, test: str, done: int, findings: int) -> None:
        if self._is_quiet:
            return
        self._last_update = now = time.monotonic()
        rate = done / max(now - self._begun, 1e-6)
        left_s = max(self._total - done, 0) / rate if rate and done else 0.0
        left_s += findings * FINDING_S
        suspected = f", {findings:,} suspected" if findings else ""
        counts, speed = (
            f"{done:,} / {self._total:,} {self._noun}",
            f"{rate:,.0f} {self._noun}/s{suspected}, {'about ' if findings else ''}{time_text(left_s)} left",
        )
        if self._live is not None and self._console is not None:
            self._live.update(_bar_line(done, self._total, (counts, speed, test), self._console.width), refresh=True)
        else:
            self._write(f"{counts}, {speed}  {test}")

    def say(self, line: str) -> None:
        """Write a line that stays."""
        if self._is_quiet:
            return
        if self._live is not None and self._console is not None:
            self._live.console.print(Text(wrapped(line, self._console.width)), soft_wrap=True)
        else:
            self._write(line)
            self._last_update = time.monotonic()

    def echo(self, printed: bytes) -> None:
        """Show what a worker has printed, as it is."""
        text = printed.decode(errors="replace")
        if self._live is not None:
            self._live.console.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=True)
        else:
            self._stream.write(text)
            self._stream.flush()

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


def _bar_line(done: int, total: int, texts: tuple[str, str, str], width: int) -> Table:
    """Return the line: counts, bar, speed, and the test's name if there is room for it."""
    counts, speed, test = texts
    room = width - 1 - len(counts) - 2
    # In a narrow terminal the bar gives way before the numbers do.
    bar = max(0, min(width // _BAR_SHARE, room - len(speed) - 2))
    room -= bar + 2 + len(speed) + 2
    name = shortened(test, room) if room >= _NAME_LEAST else ""
    line = Table.grid(padding=(0, 2, 0, 0))
    cells: list[RenderableType] = [
        Text(counts),
        *([ProgressBar(max(total, 1), done, width=bar)] if bar else []),
        Text(speed),
        Text(name),
    ]
    for _ in cells:
        line.add_column(no_wrap=True)
    line.add_row(*cells)
    return line

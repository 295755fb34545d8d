"""A terminal of a given width for a command, and what stands on its screen after it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

from tests.projects import environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PART = re.compile(r"\x1b\[(?P<numbers>[0-9;?]*)(?P<kind>[A-Za-z])|(?P<plain>[^\x1b])", re.DOTALL)
GREATEST_S = 300


class Terminal:
    """A command in a terminal; what it writes is collected while one waits for something.

    Args:
        folder: Where the command starts.
        words: Arguments of ``ci-autotest``.
        width: Columns.
    """

    def __init__(self, folder: Path, words: tuple[str, ...], width: int, environ: Mapping[str, str] | None = None):
        self.folder = folder
        self.width = width
        self.written = ""
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        kept = {name: value for name, value in environment(environ).items() if name not in {"COLUMNS", "NO_COLOR"}}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _AT_TERMINAL, *words],
            cwd=folder, env={**kept, "TERM": "xterm-256color"}, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self._own, text.encode())

    def wait_for(self, text: str) -> None:
        """Collect until something new is written that has the text."""
        start, end = len(self.written), time.monotonic() + GREATEST_S
        while text not in self.written[start:]:
            assert time.monotonic() < end, f"no {text!r} in {self.written!r}"
            assert self._collect(), f"ended without {text!r}: {self.written!r}"

    def status(self) -> int:
        """Collect until the command ends, and return its status."""
        while self._collect():
            pass
        os.close(self._own)
        return self._process.wait(GREATEST_S)

    def _collect(self) -> bool:
        ready, _, _ = select.select([self._own], [], [], GREATEST_S)
        assert ready, f"nothing was written for {GREATEST_S} s after {self.written!r}"
        try:
            data = os.read(self._own, 1 << 16)
        except OSError:  # The other end is closed.
            return False
        self.written += data.decode(errors="replace")
        return bool(data)

    def frames(self) -> list[list[str]]:
        """Return the screen as it was before each time that the cursor went back."""
        return _frames(self.written, self.width)

    def screen(self) -> list[str]:
        """Return the lines that stand on the screen."""
        return self.frames()[-1]


#: The terminal is the command's own, so that Ctrl-C is a signal.
_AT_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'ci_autotest', *sys.argv[1:]])"
)


def _frames(written: str, width: int) -> list[list[str]]:
    """Return the screens of a terminal that breaks a line which is wider than it."""
    lines, row, column, frames = [""], 0, 0, []
    for part in _PART.finditer(written):
        plain, kind, number = part["plain"], part["kind"], int((part["numbers"] or "1").strip("?;").split(";")[0] or 1)
        if plain == "\n":
            row, lines = row + 1, lines + [""] * (row + 2 - len(lines))
        elif plain == "\r":
            frames.append([line.rstrip() for line in lines])
            column = 0
        elif kind == "K":
            lines[row] = ""
        elif kind == "A":
            row -= number
        elif plain is not None:
            if column == width:
                row, column, lines = row + 1, 0, lines + [""] * (row + 2 - len(lines))
            lines[row] = lines[row].ljust(column)[:column] + plain + lines[row][column + 1 :]
            column += 1
    return [*frames, [line.rstrip() for line in lines]]

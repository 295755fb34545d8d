"""The file through which a captured process tells its parent: a line for each new call, and all of it at the end.

Each line is written at once, so what was captured outlasts a crash and ``os._exit``. If the program came to its end,
the last line has counts and ranges and replaces the others.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ci_autotest.call_capture.observation import Capture, decode_call, decode_capture, encode

if TYPE_CHECKING:
    from pathlib import Path

    from ci_autotest.call_capture.observation import ObservedCall

_CALL: Final = b"call "
_WITHDRAWN: Final = b"withdrawn "
_END: Final = b"end "
_STARTED: Final = b"started\n"


class Journal:
    """The file, for the process that writes it; a forked child writes nothing.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._process = os.getpid()
        self._write(_STARTED)

    def add(self, call: ObservedCall) -> None:
        """Write down a new call before it is executed."""
        self._write(_CALL + encode(call) + b"\n")

    def withdraw(self, number: int) -> None:
        """Take back a call that raised an exception or was no operator's."""
        self._write(_WITHDRAWN + str(number).encode() + b"\n")

    def end(self, capture: Capture) -> None:
        """Write down everything, with counts and ranges."""
        self._write(_END + encode(capture) + b"\n")

    def _write(self, line: bytes) -> None:
        if os.getpid() == self._process:
            while line:
                line = line[os.write(self._file, line) :]


def read_journal(path: Path) -> Capture | None:
    """Return what a process wrote down; ``None`` if it did not start."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    if not lines:
        return None
    ends = [line for line in lines if line.startswith(_END)]
    if ends:
        return decode_capture(ends[-1].removeprefix(_END))
    calls = {}
    for line in lines:
        if line.startswith(_CALL) and line.endswith(b"}"):
            call = decode_call(line.removeprefix(_CALL))
            calls[call.number] = call
        elif line.startswith(_WITHDRAWN):
            calls.pop(int(line.removeprefix(_WITHDRAWN)), None)
    return Capture(tuple(calls.values()), is_complete=False)

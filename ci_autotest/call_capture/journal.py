"""The files through which a captured process tells its parent: the journal of its calls, and the elements of tensors.

The journal has a line for each new call, and all of it at the end. Each line is written at once, so what was captured
outlasts a crash and ``os._exit``. If the program came to its end, the last line has counts and ranges and replaces the
others. Elements wait in their file for the end of the program, so that they are not kept in memory.
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
#: Most bytes of one tensor, and of all tensors of a capture: the files go into a repository.
TENSOR_BYTES: Final = 1 << 20
ALL_BYTES: Final = 64 << 20


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


class TensorSpool:
    """The file, for the process that writes it; a forked child writes nothing.

    Args:
        path: The file.

    Attributes:
        path: The file.
        size: Number of bytes that were written and are still wanted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._process = os.getpid()

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether a tensor of this size may be added."""
        return size_bytes <= min(TENSOR_BYTES, ALL_BYTES - self.size) and os.getpid() == self._process

    def add(self, data: bytes) -> int | None:
        """Write elements and return their place; ``None`` if the disk is full, because the program must go on."""
        place = self.size
        while data:
            try:
                written = os.pwrite(self._file, data, self.size)
            except OSError:
                self.size = place
                return None
            self.size += written
            data = data[written:]
        return place

    def rewind(self, size: int) -> None:
        """Give up what was written after the file had this size, for a call that becomes no test."""
        self.size = size

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_elements(path: Path, place: int, size_bytes: int) -> bytes | None:
    """Return the elements at a place; ``None`` if the process ended before all of them were written."""
    with path.open("rb") as file:
        file.seek(place)
        found = file.read(size_bytes)
    return found if len(found) == size_bytes else None

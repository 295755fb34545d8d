"""The output of a worker: what user code prints, kept in a file of bounded size and read when a case fails."""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import tempfile
from typing import Final

#: Bytes of a case's output that are reported, from its end.
TAIL_BYTES: Final = 8192
#: Bytes that the file may take before everything but its end is dropped.
_KEPT_BYTES: Final = 1 << 20
#: Source: fallocate(2), FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE.
_PUNCH: Final = 0x01 | 0x02


class Output:
    """The file that one worker prints to.

    Dropped output becomes a hole at the beginning of the file. The worker keeps writing at its end meanwhile, so no new
    output is lost.
    """

    def __init__(self) -> None:
        """Create the file; it has no name, so no run leaves it behind, however it ends."""
        with tempfile.TemporaryFile() as file:
            self.fd = os.dup(file.fileno())
        # With O_APPEND the worker goes on at the new end after the file was cut, and leaves no gap before it.
        fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_APPEND)
        self._since = self._hole = self._taken = 0

    def begin(self) -> None:
        """Start a new task: ``tail`` returns only what is printed from now on."""
        self._since = os.fstat(self.fd).st_size

    def bound(self) -> None:
        """Drop all but the end of a file that has grown too large; call it regularly."""
        size = os.fstat(self.fd).st_size
        if size - self._hole < _KEPT_BYTES:
            return
        end = size - TAIL_BYTES
        if _punched(self.fd, self._hole, end):
            self._hole = end
        else:
            os.ftruncate(self.fd, 0)
            self._since = self._hole = 0

    def taken(self) -> bytes:
        """Return what was printed since the last call; what the file has dropped meanwhile is left out."""
        size = os.fstat(self.fd).st_size
        start = max(min(self._taken, size), self._hole)
        self._taken = size
        return os.pread(self.fd, size - start, start)

    def tail(self) -> str:
        """Return the end of what was printed since ``begin``."""
        size = os.fstat(self.fd).st_size
        start = max(min(self._since, size), size - TAIL_BYTES)
        return os.pread(self.fd, TAIL_BYTES, start).decode(errors="replace")

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)


def _punched(fd: int, start: int, end: int) -> bool:
    """Free the blocks from ``start`` to ``end``; return whether the system and the file system support it."""
    if sys.platform != "linux":
        return False
    length = ctypes.c_int64(end - start)
    return bool(ctypes.CDLL(None).fallocate(fd, _PUNCH, ctypes.c_int64(start), length) == 0)

"""What user code prints: kept in a file of bounded size, and read with its case."""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import tempfile
from typing import Final

#: Bytes that are told of what was printed in a case.
TOLD_BYTES: Final = 8192
#: Bytes that the file may take before all but its end is let go.
_KEPT_BYTES: Final = 1 << 20
#: Source: fallocate(2), FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE.
_PUNCH: Final = 0x01 | 0x02


class Output:
    """Hold what one worker prints.

    What is let go of becomes a hole at the file's beginning: the worker writes on at its end, and nothing that it
    writes meanwhile is lost.
    """

    def __init__(self) -> None:
        """Make the file; it has no name, so that nothing is left of it however a run ends."""
        with tempfile.TemporaryFile() as file:
            self.fd = os.dup(file.fileno())
        fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_APPEND)
        self._since = self._hole = 0

    def begin(self) -> None:
        """Begin with what is printed from now on: a new task."""
        self._since = os.fstat(self.fd).st_size

    def bound(self) -> None:
        """Let go of all but the end when it has grown too large; call now and then."""
        size = os.fstat(self.fd).st_size
        if size - self._hole < _KEPT_BYTES:
            return
        end = size - TOLD_BYTES
        if _punched(self.fd, self._hole, end):
            self._hole = end
        else:
            os.ftruncate(self.fd, 0)
            self._since = self._hole = 0

    def tail(self) -> str:
        """Return the end of what was printed since ``begin``."""
        size = os.fstat(self.fd).st_size
        start = max(min(self._since, size), size - TOLD_BYTES)
        return os.pread(self.fd, TOLD_BYTES, start).decode(errors="replace")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.fd)


def _punched(fd: int, start: int, end: int) -> bool:
    """Give the blocks from ``start`` to ``end`` back to the disk, where the system and the file system can."""
    if sys.platform != "linux":
        return False
    length = ctypes.c_int64(end - start)
    return bool(ctypes.CDLL(None).fallocate(fd, _PUNCH, ctypes.c_int64(start), length) == 0)

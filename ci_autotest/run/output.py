"""What foreign code prints: kept in a file of bounded size, and read with the case that it belongs to."""

from __future__ import annotations

import os
import tempfile
from typing import Final

#: Bytes that are told of what was printed in a case.
TOLD_BYTES: Final = 8192
#: Bytes that the file may grow to before all but its end is let go.
_KEPT_BYTES: Final = 1 << 20


class Output:
    """Hold what one worker prints.

    The file is opened for appending, so that it can be cut while the worker writes: what comes next lands at
    its new end.
    """

    def __init__(self) -> None:
        """Make the file; it has no name."""
        handle, path = tempfile.mkstemp(prefix="ci-autotest-output-")
        os.close(handle)
        self.fd = os.open(path, os.O_RDWR | os.O_APPEND)
        os.unlink(path)  # noqa: PTH108 - a path of ours, gone before anyone can open it
        self._since = 0

    def begin(self) -> None:
        """Begin with what is printed from now on: a new task."""
        self._since = os.fstat(self.fd).st_size

    def bound(self) -> None:
        """Let go of all but the end when it has grown too large; call now and then."""
        size = os.fstat(self.fd).st_size
        if size > _KEPT_BYTES:
            end = os.pread(self.fd, TOLD_BYTES, size - TOLD_BYTES)
            os.ftruncate(self.fd, 0)
            os.write(self.fd, end)
            self._since = 0

    def tail(self) -> str:
        """Return the end of what was printed since ``begin``."""
        size = os.fstat(self.fd).st_size
        start = max(min(self._since, size), size - TOLD_BYTES)
        return os.pread(self.fd, TOLD_BYTES, start).decode(errors="replace")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.fd)

"""Standard output and error whose reader may go, as a terminal that is closed: the run goes on to its report."""

from __future__ import annotations

import errno
import io
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: What a write says when nobody reads any more.
_GONE: Final = frozenset({errno.EIO, errno.EPIPE})


class _Outlasting(io.FileIO):
    """A descriptor that takes what is written when its reader is gone, and drops it."""

    def write(self, data: Buffer, /) -> int:
        """Write, or drop what nobody can read."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return memoryview(data).nbytes


def outlast_readers() -> None:
    """Let this process go on when nobody reads what it prints; where it has streams of its own."""
    sys.stdout, sys.stderr = _outlasting(sys.stdout), _outlasting(sys.stderr)


def _outlasting(stream: TextIO) -> TextIO:
    try:
        raw = _Outlasting(stream.fileno(), "w", closefd=False)
    except (OSError, ValueError, AttributeError):  # Closed, replaced, or none at all.
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=stream.isatty() or stream is sys.stderr
    )

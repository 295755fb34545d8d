"""Standard output and error that may fail, on a closed terminal or a full disk: the run goes on to its report."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: What a write says when nobody reads any more, or when there is no room.
_GONE: Final = frozenset({errno.EIO, errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class _Outlasting(io.FileIO):
    """A descriptor that takes what is written when its reader or the room for it is gone, and drops it."""

    def write(self, data: Buffer, /) -> int:
        """Write, or drop what cannot be written."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return memoryview(data).nbytes


def outlast_readers() -> None:
    """Let this process go on when what it prints cannot be written.

    What an encoding lacks is printed as its escape: a name need not be UTF-8, and a terminal may have less.
    """
    sys.stdout, sys.stderr = _outlasting(sys.stdout), _outlasting(sys.stderr)


def _outlasting(stream: TextIO | None) -> TextIO:
    if stream is None:  # It was closed before this process began.
        return Path(os.devnull).open("w", encoding="utf-8")
    try:
        raw = _Outlasting(stream.fileno(), "w", closefd=False)
    except (OSError, ValueError):  # It was closed or replaced.
        return stream
    stream.flush()
    is_by_line = stream.isatty() or stream is sys.stderr
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, "backslashreplace", line_buffering=is_by_line)

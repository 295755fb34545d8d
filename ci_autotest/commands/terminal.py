"""Standard output and error that outlast a closed terminal or a full disk, so that the run reaches its report."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Errors of a write whose reader is gone, or that has no space left.
_GONE: Final = frozenset({errno.EIO, errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class _Outlasting(io.FileIO):
    """A file descriptor that drops data when its reader is gone or the disk is full."""

    def write(self, data: Buffer, /) -> int:
        """Write data, or drop it if it cannot be written."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return memoryview(data).nbytes


def outlast_readers() -> None:
    """Let this process go on when its output cannot be written.

    Characters that the terminal's encoding lacks are printed as escapes, because a file's name may have any.
    """
    sys.stdout, sys.stderr = _outlasting(sys.stdout), _outlasting(sys.stderr)


def _outlasting(stream: TextIO | None) -> TextIO:
    if stream is None:  # It was closed before this process started.
        return Path(os.devnull).open("w", encoding="utf-8")
    try:
        raw = _Outlasting(stream.fileno(), "w", closefd=False)
    except (OSError, ValueError):  # It was closed or replaced.
        return stream
    stream.flush()
    is_by_line = stream.isatty() or stream is sys.stderr
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, "backslashreplace", line_buffering=is_by_line)

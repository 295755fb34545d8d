"""Write files so that a reader sees the old content or the new, never half of it.

Every file of the output folder is written here, except a finding's folder, which ``finding_folders`` renames whole.
"""

from __future__ import annotations

import errno
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from ci_autotest.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path


def beside(path: Path) -> Path:
    """Return an unused hidden name in the folder of ``path``, because renaming is atomic within one folder."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def write_bytes(path: Path, data: bytes) -> None:
    """Replace the content of ``path`` at once.

    Raises:
        OutputError: The folder cannot be written; the earlier content is untouched.
    """
    # No ``tempfile``: only its owner could read it, and another user may upload the folder.
    temporary = beside(path)
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        message = f"{path} cannot be written: {error.strerror}. Choose another folder with --output."
        raise OutputError(message) from error


def is_full(error: OutputError) -> bool:
    """Whether a file could not be written because the disk is full."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in {errno.ENOSPC, errno.EDQUOT}


def write_text(path: Path, text: str) -> None:
    """Replace the content of ``path`` at once, in UTF-8.

    Raises:
        OutputError: The folder cannot be written; the earlier content is untouched.
    """
    write_bytes(path, text.encode(errors="backslashreplace"))

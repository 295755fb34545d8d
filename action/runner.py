"""Communication with the runner: the log of a step and the runner's files."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from action.errors import StepError
from action.outputs import output_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Variables that name the files that the runner reads at the end of a step.
FILES = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")


def say(text: str) -> None:
    """Write ``text`` to the step's log now."""
    sys.stdout.write(text)
    sys.stdout.flush()


def opened(path: str, flags: int) -> int:
    """Open a regular file without following a link or waiting for a pipe.

    Raises:
        OSError: It does not exist, or is not a regular file.
    """
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return handle


def append(environ: Mapping[str, str], variable: str, text: str) -> None:
    """Append ``text`` to the runner's file that ``variable`` names.

    Raises:
        StepError: There is no such file, it is a link, or it cannot be written.
    """
    path = environ.get(variable, "")
    if not path:
        message = f"{variable} is not set: this step runs under GitHub Actions only."
        raise StepError(message)
    try:
        with os.fdopen(opened(path, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        # A test could have replaced the file by a link to any other file.
        reason = "it is a link, which is not followed" if error.errno == errno.ELOOP else error.strerror
        message = f"{variable} names '{path}', which cannot be written: {reason}."
        raise StepError(message) from error


def take_back(environ: Mapping[str, str]) -> list[str]:
    """Empty the runner's files, which foreign code can find; return the variables of those that it wrote to.

    Their content would become the environment, the PATH or the outputs of later steps, one of which has the token.
    """
    return [variable for variable in FILES if (path := environ.get(variable)) and was_written(Path(path))]


def was_written(path: Path) -> bool:
    """Empty a file of the runner; return whether it had content or was replaced by something else."""
    try:
        handle = opened(str(path), os.O_WRONLY)
    except OSError:
        if not path.is_symlink() and not path.is_fifo():
            return False  # It does not exist or is not writable: `append` reports that.
        path.unlink()
        path.touch()
        return True
    with os.fdopen(handle, "w") as file:
        size = os.fstat(handle).st_size
        file.truncate(0)
    return size > 0


def write_outputs(environ: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    """Append ``outputs`` to GITHUB_OUTPUT."""
    delimiter = f"ci-autotest-{secrets.token_hex(16)}"
    append(environ, "GITHUB_OUTPUT", "".join(output_block(*pair, delimiter) for pair in outputs.items()))


def fresh_folder(environ: Mapping[str, str]) -> str:
    """Return a new empty folder in which Python looks for compiled files and finds none."""
    return tempfile.mkdtemp(prefix="ci-autotest-", dir=environ.get("RUNNER_TEMP") or None)


@contextlib.contextmanager
def commands_stopped() -> Iterator[None]:
    """Let the runner treat the log as plain text, so that it ignores workflow commands of foreign code."""
    token = secrets.token_hex(16)
    say(f"::stop-commands::{token}\n")
    try:
        yield
    finally:
        say(f"\n::{token}::\n")

"""What is said to the runner: its log and its files."""

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

from action.inputs import StepError
from action.outputs import output_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Variables of the files that the runner reads when a step has ended.
FILES = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")


def say(text: str) -> None:
    """Write ``text`` to the step's log now."""
    sys.stdout.write(text)
    sys.stdout.flush()


def opened(path: str, flags: int) -> int:
    """Open a plain file; a link is not followed, and a pipe is not waited for.

    Raises:
        OSError: It is something else, or is not there.
    """
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no plain file")
    return handle


def append(environ: Mapping[str, str], variable: str, text: str) -> None:
    """Add ``text`` to the file that the runner made and ``variable`` names; a link is refused."""
    path = environ.get(variable, "")
    if not path:
        message = f"{variable} is not set: this step runs under GitHub Actions only."
        raise StepError(message)
    try:
        with os.fdopen(opened(path, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        reason = "it is a link, and a link is not followed" if error.errno == errno.ELOOP else error.strerror
        message = f"{variable} names '{path}', which cannot be written: {reason}."
        raise StepError(message) from error


def take_back(environ: Mapping[str, str]) -> list[str]:
    """Empty the runner's files, which foreign code can find; return the variables of those that it wrote to.

    What is in them becomes the environment, the PATH or the outputs of later steps, one of which holds the token.
    """
    return [variable for variable in FILES if (path := environ.get(variable)) and was_written(Path(path))]


def was_written(path: Path) -> bool:
    """Empty a file of the runner's; whether there was something in it, or something else in its place."""
    try:
        handle = opened(str(path), os.O_WRONLY)
    except OSError:
        if not path.is_symlink() and not path.is_fifo():
            return False  # There is none, or nobody can write to it: `append` says so.
        path.unlink()
        path.touch()
        return True
    with os.fdopen(handle, "w") as file:
        size = os.fstat(handle).st_size
        file.truncate(0)
    return size > 0


def write_outputs(environ: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    """Add ``outputs`` to GITHUB_OUTPUT."""
    delimiter = f"ci-autotest-{secrets.token_hex(16)}"
    append(
        environ,
        "GITHUB_OUTPUT",
        "".join(output_block(*pair, delimiter) for pair in outputs.items()),
    )


def fresh_folder(environ: Mapping[str, str]) -> str:
    """Return an empty folder: where Python looks for compiled files, so that it finds none."""
    return tempfile.mkdtemp(prefix="ci-autotest-", dir=environ.get("RUNNER_TEMP") or None)


@contextlib.contextmanager
def commands_stopped() -> Iterator[None]:
    """Have the runner take what is written meanwhile for text, with whatever commands are in it."""
    token = secrets.token_hex(16)
    say(f"::stop-commands::{token}\n")
    try:
        yield
    finally:
        say(f"\n::{token}::\n")

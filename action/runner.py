"""What is said to the runner: its log, its files, and the wall around foreign output."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from action.inputs import StepError, foreign_environ
from action.outputs import output_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def say(text: str) -> None:
    """Write ``text`` to the step's log now."""
    sys.stdout.write(text)
    sys.stdout.flush()


def append(environ: Mapping[str, str], variable: str, text: str) -> None:
    """Add ``text`` to the file that the runner made and ``variable`` names; a link is refused."""
    path = environ.get(variable, "")
    if not path:
        message = f"{variable} is not set: this step runs under GitHub Actions only."
        raise StepError(message)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        reason = "it is a link, and a link is not followed" if error.errno == errno.ELOOP else error.strerror
        message = f"{variable} names '{path}', which cannot be written: {reason}."
        raise StepError(message) from error


def write_outputs(environ: Mapping[str, str], outputs: Mapping[str, str]) -> None:
    """Add ``outputs`` to GITHUB_OUTPUT."""
    delimiter = f"ci-autotest-{secrets.token_hex(16)}"
    append(
        environ,
        "GITHUB_OUTPUT",
        "".join(output_block(*pair, delimiter) for pair in outputs.items()),
    )


@contextlib.contextmanager
def commands_stopped() -> Iterator[None]:
    """Have the runner take what is written meanwhile for text, with whatever commands are in it."""
    token = secrets.token_hex(16)
    say(f"::stop-commands::{token}\n")
    try:
        yield
    finally:
        say(f"\n::{token}::\n")


def run_foreign(argv: list[str], environ: Mapping[str, str]) -> int:
    """Run ``argv`` behind the wall and return its status; an interrupt is handed on to it."""
    with (
        commands_stopped(),
        subprocess.Popen(argv, env=foreign_environ(environ), stderr=subprocess.STDOUT) as process,
    ):
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            return process.wait()

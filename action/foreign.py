"""Foreign code, which is pip and the tests: how it is run, and the processes and links that it leaves behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from action.runner import commands_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Variables that foreign code must not inherit: tokens, the files through which a step talks to the runner, and its
#: arguments, which may have an address with a password.
WITHHELD = frozenset({
    "GITHUB_TOKEN", "GH_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "GITHUB_ENV",
    "GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY", "STEP_ARGUMENTS",
})  # fmt: skip
#: A variable with one of these words in its name is treated as a secret.
SECRET = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "KEY")
#: Option of `prctl(2)`: every orphan below this process becomes its child, even if it started a session of its own.
PR_SET_CHILD_SUBREAPER = 36
#: Bytes of a command's output that are kept, because its last lines say why it ended.
KEPT_BYTES = 8192
#: Bytes per read. A pipe holds 1 MiB at most, so that 16 reads empty it when the command has ended.
PIECE_BYTES = 65536
PIECES = 16
#: Milliseconds between two checks whether the command has ended: a process that it started may keep its pipe open.
LOOK_MS = 200


def is_secret(name: str) -> bool:
    """Return whether a variable of this name is kept from every process that runs beside foreign code."""
    return any(word in name.upper() for word in SECRET)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without secrets."""
    return {name: value for name, value in environ.items() if not is_secret(name)}


def foreign_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for foreign code: without tokens, the step's arguments and the runner's files."""
    return {name: value for name, value in environ.items() if name not in WITHHELD}


class Ended(NamedTuple):
    """Exit status of a command, and the end of its output."""

    status: int
    output: str = ""


def run_recorded(argv: list[str], environ: Mapping[str, str]) -> Ended:
    """Run ``argv`` without secrets and with workflow commands stopped, and keep the end of its output."""
    kept = bytearray()
    with (
        commands_stopped(),
        subprocess.Popen(
            argv, env=foreign_environ(environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process,
    ):
        while True:
            try:
                copy_output(process, kept)
                return Ended(process.wait(), kept.decode(errors="replace"))
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)


def copy_output(process: subprocess.Popen[bytes], kept: bytearray) -> None:
    """Print the output of ``process`` until it has ended or closed its output; ``kept`` receives the end of it."""
    assert process.stdout is not None  # noqa: S101 - it was started with a pipe
    source = process.stdout.fileno()
    os.set_blocking(source, False)
    poll = select.poll()
    poll.register(source, select.POLLIN)
    has_ended = False
    while not has_ended:
        has_ended = process.poll() is not None
        if not has_ended and not poll.poll(LOOK_MS):
            continue
        for _ in range(PIECES):
            try:
                piece = os.read(source, PIECE_BYTES)
            except BlockingIOError:
                break
            if not piece:
                return
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            kept += piece
            del kept[:-KEPT_BYTES]


def forget_secrets(environ: Mapping[str, str]) -> None:
    """Start this program again without secrets: foreign code could read the environment that it was started with."""
    kept = without_secrets(environ)
    if kept.keys() != environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], kept)  # noqa: S606 - itself, and no shell


def stop_imports() -> None:
    """Let no later import of this process find a file: foreign code may have written to the interpreter's folders."""
    sys.meta_path.clear()
    sys.path_hooks.clear()


def adopt_orphans() -> None:
    """Become the parent of every process below this one that loses its own parent."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def end_orphans() -> int:
    """End all processes that foreign code has left running; return their number."""
    ended: set[int] = set()
    while True:
        for pid in children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                ended.add(pid)
        try:
            os.wait()
        except ChildProcessError:
            return len(ended)


def children() -> Iterator[int]:
    """Yield the living processes whose parent is this one."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            # The name in parentheses may contain anything, so the fields are read from behind it: state and parent.
            state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            if int(parent) == os.getpid() and state != b"Z":
                yield int(entry.name)


def drop_irregular(folder: Path) -> list[str]:
    """Remove everything from ``folder`` that is neither a file nor a folder; return the names.

    The upload follows links, so a link out of the folder would publish files of the runner.
    """
    dropped = []
    for parent, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                path.unlink()
                dropped.append(path.relative_to(folder).as_posix())
    return dropped

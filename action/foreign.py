"""Foreign code and what it leaves: processes that outlive it, links in the folder that is uploaded."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from action.inputs import foreign_environ, without_secrets
from action.runner import commands_stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Of `prctl(2)`: an orphan becomes a child of this process, whatever it did to get away.
PR_SET_CHILD_SUBREAPER = 36


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


def forget_secrets(environ: Mapping[str, str]) -> None:
    """Start this program again without secrets: foreign code can read the environment it was started with."""
    kept = without_secrets(environ)
    if kept.keys() != environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], kept)  # noqa: S606 - itself, and no shell


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def end_orphans() -> int:
    """End what foreign code has left running, with all that it started; return how many processes that were."""
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
            # The name, in parentheses, may hold anything; state and parent follow it.
            state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            if int(parent) == os.getpid() and state != b"Z":
                yield int(entry.name)


def drop_irregular(folder: Path) -> list[str]:
    """Remove from ``folder`` what is neither a file nor a folder; return the names.

    An upload follows links: one that points out of the folder would publish the runner's own files.
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

"""Processes that foreign code started: found and ended, also those that left their worker's process group.

On Linux the parent adopts what its workers leave behind (``PR_SET_CHILD_SUBREAPER``), and each
worker's environment carries a token that its children inherit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import Final

#: Name of the variable whose value tells whose child a process is.
TOKEN: Final = "CI_AUTOTEST_WORKER"  # noqa: S105 - a name
#: Source: prctl(2).
_PR_SET_CHILD_SUBREAPER: Final = 36
_PROC: Final = Path("/proc")


def new_token() -> str:
    """Return a token of this process's; all of them have one length, so that one can be written over another."""
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def adopt() -> None:
    """Become the parent of whatever the workers leave behind, where the system can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children_of(token: str) -> None:
    """End the processes that this process has adopted from the worker with a token, and theirs."""
    while pids := [pid for pid in children() if _has_token(pid, token)]:
        _end(pids)


def end_others(known: frozenset[int]) -> None:
    """End every child of this process but the known ones: what shed its token too; call when no worker is left."""
    while pids := [pid for pid in children() if pid not in known]:
        _end(pids)


def children() -> list[int]:
    """Return this process's children, adopted ones too; none where the system does not say."""
    own = os.getpid()
    return [int(entry.name) for entry in _PROC.glob("[0-9]*") if _parent_of(entry) == own]


def _parent_of(entry: Path) -> int:
    try:
        # After the name, which may hold anything, in parentheses: state and parent. Source: proc(5).
        return int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return -1


def _has_token(pid: int, token: str) -> bool:
    try:
        return f"{TOKEN}={token}".encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _end(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)

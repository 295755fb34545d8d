"""Orphan processes: find and end processes that user code started, even outside the worker's process group.

On Linux the parent adopts the processes that its workers leave behind (``PR_SET_CHILD_SUBREAPER``). Each worker's
environment carries a token that its children inherit. If a parent is killed before it can end them, the next run
recognizes them by it. On other systems only a worker's process group is ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import signal
import sys
from pathlib import Path
from typing import Final, NamedTuple

#: Environment variable with the token of the worker that a process descends from.
TOKEN: Final = "CI_AUTOTEST_WORKER"  # noqa: S105 - a name
#: Source: prctl(2).
_PR_SET_CHILD_SUBREAPER: Final = 36
_PROC: Final = Path("/proc")
#: A token: pid and start time of the process that made it, with as many digits as any system needs, and a random part.
_TOKEN: Final = re.compile(rb"([1-9][0-9]{0,9})-([0-9]{1,20})-[0-9a-f]{8}")


def new_token() -> str:
    """Return a new token of this process; all have the same length, so that one can be written over another."""
    return f"{os.getpid()}-{_stat(_PROC / 'self').begun}-{secrets.token_hex(4)}"


def adopt() -> None:
    """Become the parent of the processes that workers leave behind, where the system can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children_of(token: str) -> None:
    """End the adopted processes of the worker with a token, and the processes that they started."""
    # Until none is left, because a process may start another one before it ends.
    while pids := [pid for pid in children() if _token(pid) == token.encode()]:
        _end(pids)


def end_others(known: frozenset[int]) -> None:
    """End every child of this process except the known ones; call it when no worker is left.

    This finds processes that removed the token from their environment, too.
    """
    while pids := [pid for pid in children() if pid not in known]:
        _end(pids)


def end_left_behind() -> None:
    """End the processes that killed runs left behind: this user's processes whose token names a dead process.

    This process and its ancestors are spared, whatever their environment says.
    """
    spared, ended = _ancestors(), set[int]()
    while pids := [pid for pid in _processes() if pid not in spared | ended and _is_left_behind(pid)]:
        _end(pids)
        ended.update(pids)


def _ancestors() -> set[int]:
    """Return the pids of this process and of its ancestors."""
    found, pid = set[int](), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = _stat(_PROC / str(pid)).parent
    return found


def _is_left_behind(pid: int) -> bool:
    """Whether a process of this user has the token of a dead run. In another pid namespace pids mean something else."""
    entry = _PROC / str(pid)
    try:
        is_own = entry.stat().st_uid == os.geteuid()
        is_near = is_own and (entry / "ns/pid").readlink() == (_PROC / "self/ns/pid").readlink()
    except OSError:
        return False
    made = _TOKEN.fullmatch(_token(pid)) if is_near else None
    if made is None:
        return False
    maker = _stat(_PROC / str(int(made[1])))
    return maker.begun != int(made[2]) or maker.is_dead


def children() -> list[int]:
    """Return the pids of this process's children, adopted ones too; empty if the system does not list them."""
    own = os.getpid()
    return [pid for pid in _processes() if _stat(_PROC / str(pid)).parent == own]


def _processes() -> list[int]:
    return [int(entry.name) for entry in _PROC.glob("[0-9]*")]


class _Stat(NamedTuple):
    """A process in ``/proc``: its parent's pid and its start time in ticks; -1 if it does not exist."""

    parent: int = -1
    begun: int = -1
    is_dead: bool = True


def _stat(entry: Path) -> _Stat:
    try:
        # The name in parentheses may hold anything, so split after its end: fields 3, 4 and 22. Source: proc(5).
        fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        return _Stat(int(fields[1]), int(fields[19]), fields[0] in {b"Z", b"X"})
    except (OSError, IndexError, ValueError):
        return _Stat()


def _token(pid: int) -> bytes:
    """Return the token in a process's environment; empty if it has none or cannot be read."""
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""
    own = f"{TOKEN}=".encode()
    return next((item.removeprefix(own) for item in environ.split(b"\0") if item.startswith(own)), b"")


def _end(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        # Only a child of this process can be waited for.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)

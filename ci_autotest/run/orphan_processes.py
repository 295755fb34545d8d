"""Orphan processes: find and end what user code started, even outside the worker's process group.

On Linux the parent adopts what its workers leave behind (``PR_SET_CHILD_SUBREAPER``), and each worker's environment
carries a token that its children inherit: what a parent that was killed could not end, the next run knows by it.
Elsewhere only a worker's process group is ended.
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

#: Name of the variable whose value tells whose child a process is.
TOKEN: Final = "CI_AUTOTEST_WORKER"  # noqa: S105 - a name
#: Source: prctl(2).
_PR_SET_CHILD_SUBREAPER: Final = 36
_PROC: Final = Path("/proc")
#: A token: number and start of the process that made it, in digits that no system exceeds, and what tells it apart.
_TOKEN: Final = re.compile(rb"([1-9][0-9]{0,9})-([0-9]{1,20})-[0-9a-f]{8}")


def new_token() -> str:
    """Return a token of this process's; all of them have one length, so that one can be written over another."""
    return f"{os.getpid()}-{_stat(_PROC / 'self').begun}-{secrets.token_hex(4)}"


def adopt() -> None:
    """Become the parent of whatever the workers leave behind, where the system can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children_of(token: str) -> None:
    """End the processes that this process has adopted from the worker with a token, and theirs."""
    while pids := [pid for pid in children() if _token(pid) == token.encode()]:
        _end(pids)


def end_others(known: frozenset[int]) -> None:
    """End every child of this process but the known ones: what shed its token too; call when no worker is left."""
    while pids := [pid for pid in children() if pid not in known]:
        _end(pids)


def end_left_behind() -> None:
    """End what was started in runs that were killed: this user's processes whose token's process is gone.

    This process and those above it are left alone, whatever their environment says.
    """
    spared, ended = _line(), set[int]()
    while pids := [pid for pid in _processes() if pid not in spared | ended and _is_left_behind(pid)]:
        _end(pids)
        ended.update(pids)


def _line() -> set[int]:
    """Return the numbers of this process and of those above it."""
    found, pid = set[int](), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = _stat(_PROC / str(pid)).parent
    return found


def _is_left_behind(pid: int) -> bool:
    """Whether a process of this user and of this pid namespace, where numbers mean the same, has a dead run's token."""
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
    """Return this process's children, adopted ones too; none where the system does not say."""
    own = os.getpid()
    return [pid for pid in _processes() if _stat(_PROC / str(pid)).parent == own]


def _processes() -> list[int]:
    return [int(entry.name) for entry in _PROC.glob("[0-9]*")]


class _Stat(NamedTuple):
    """What the system says of a process: its parent's number and its own start, in ticks; -1 of none."""

    parent: int = -1
    begun: int = -1
    is_dead: bool = True


def _stat(entry: Path) -> _Stat:
    try:
        # After the name, which may hold anything, in parentheses: fields 3, 4 and 22. Source: proc(5).
        fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        return _Stat(int(fields[1]), int(fields[19]), fields[0] in {b"Z", b"X"})
    except (OSError, IndexError, ValueError):
        return _Stat()


def _token(pid: int) -> bytes:
    """Return the token in a process's environment, empty where there is none to be read."""
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
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)

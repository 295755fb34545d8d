"""Resident memory of a process and of all that it started, and which rank holds most of it.

Forked processes share what none of them has written to, and each of them counts it as resident: four ranks of 280 MB
hold 0.6 GB in all. The system knows the share of each (``Pss``), but walks all of its pages for that, which takes
20 ms. So it is asked only if the plain sum exceeds the limit. What the sum counts too often is then known, and is taken
off it for a while: as long as the processes are the same.

Source: proc(5).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.host.this_process import is_rank
from ci_autotest.values.process_memory import resident_bytes, share_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PROC: Final = Path("/proc")
#: Seconds after which the share is asked for again: a process that writes to what it shares takes memory of its own.
_KNOWN_S: Final = 5.0
_GIB: Final = 1 << 30


class Excess(NamedTuple):
    """More memory than is allowed.

    Attributes:
        held_bytes: Memory of all processes.
        rank: Name of the rank that holds the most, with what it started; empty if no rank does.
        rank_bytes: What it holds.
    """

    held_bytes: int
    rank: str
    rank_bytes: int

    def __str__(self) -> str:
        share = f" ({self.rank}: {self.rank_bytes / _GIB:.1f} GiB)" if self.rank else ""
        return f"held {self.held_bytes / _GIB:.1f} GiB of memory{share}"


class MemoryWatch:
    """Watches a process and all that it started.

    Children count because a candidate's host is one. Only those that the main thread started are known.

    Args:
        pid: The process.
        allowed_bytes: Memory that they may hold together; 0: no limit.
    """

    def __init__(self, pid: int, allowed_bytes: int) -> None:
        self._pid, self._allowed_bytes = pid, allowed_bytes
        self._pids: frozenset[int] = frozenset()
        self._counted_twice, self._asked_at = 0, 0.0

    def excess(self) -> Excess | None:
        """Return what they hold if it is more than is allowed."""
        if not self._allowed_bytes:
            return None
        resident = {pid: held for pid, _, held in _tree(self._pid, self._pid)}
        total, now = sum(resident.values()), time.monotonic()
        is_known = self._pids == frozenset(resident) and now - self._asked_at < _KNOWN_S
        if total - (self._counted_twice if is_known else 0) <= self._allowed_bytes:
            return None
        own = {pid: share_bytes(pid) for pid in resident}
        held = sum(own.values())
        self._pids, self._counted_twice, self._asked_at = frozenset(resident), total - held, now
        return self._of(own) if held > self._allowed_bytes else None

    def _of(self, own: Mapping[int, int]) -> Excess:
        parents = {pid: parent for pid, parent, _ in _tree(self._pid, self._pid)}
        by_name: dict[str, int] = {}
        for pid, held in own.items():
            name = _rank_of(pid, parents)
            by_name[name] = by_name.get(name, 0) + held
        first = max(by_name, key=lambda name: by_name[name])
        return Excess(sum(own.values()), first, by_name[first])


def _rank_of(pid: int, parents: Mapping[int, int]) -> str:
    """Return the name of the rank that a process is, or was started by; empty if there is none."""
    while not is_rank(name := _name(pid)):
        if (parent := parents.get(pid, pid)) == pid:
            return ""
        pid = parent
    return name


def _tree(pid: int, parent: int) -> Iterator[tuple[int, int, int]]:
    """Yield a process and all that it started: its pid, its parent's, and its resident memory in bytes."""
    entry = _PROC / str(pid)
    try:
        held = resident_bytes(pid)
        children = (entry / "task" / str(pid) / "children").read_bytes().split()
    except (OSError, ValueError):
        return
    yield pid, parent, held
    for child in children:
        yield from _tree(int(child), pid)


def _name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""

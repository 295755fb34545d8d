"""Whether a process waits for ever, by the processor time that it uses: a busy machine may let it wait too.

A process that waits for another one either sleeps in all its threads, or polls: then it uses processor time without
getting on. One that is kept from a processor does neither. Source: proc(5).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_STAT: Final = "/proc/{}/stat"
_TASKS: Final = "/proc/{}/task"
#: Fields of ``stat`` after the name in brackets: the state, and the ticks in user and system mode.
_STATE, _TICKS = 0, slice(11, 13)
_COULD_RUN: Final = frozenset({"R", "D"})
_ENDED: Final = frozenset({"Z", "X"})


class _Mark(NamedTuple):
    """A process when it last got on.

    Attributes:
        place: Where it was.
        used_s: Processor time that it had used, in seconds.
        since_s: When it last could run, in monotonic seconds.
    """

    place: object
    used_s: float
    since_s: float


class ActivityWatch:
    """Watches one process.

    Args:
        pid: The process.
        silence_s: Seconds of processor time, or of sleep of all threads, after which it waits for ever.
    """

    def __init__(self, pid: int, silence_s: float) -> None:
        self._pid, self._silence_s = pid, silence_s
        self._mark: _Mark | None = None

    def waits(self, place: object) -> bool:
        """Whether the process waits for ever at a place; called again and again."""
        now, used_s = time.monotonic(), _used_s(self._pid)
        if self._mark is None or place != self._mark.place:
            self._mark = _Mark(place, used_s, now)
        elif could_run(self._pid):
            self._mark = self._mark._replace(since_s=now)
        return max(used_s - self._mark.used_s, now - self._mark.since_s) > self._silence_s


def _fields(stat: Path) -> list[str]:
    # The name may hold anything, brackets too.
    return stat.read_text(errors="replace").rpartition(")")[2].split()


def _used_s(pid: int) -> float:
    with suppress(OSError, ValueError):
        return sum(map(int, _fields(Path(_STAT.format(pid)))[_TICKS])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def has_ended(pid: int) -> bool:
    """Whether a process has ended, and at most its status is left."""
    try:
        return _fields(Path(_STAT.format(pid)))[_STATE] in _ENDED
    except OSError:
        return True


def could_run(pid: int) -> bool:
    """Whether a thread of a process runs, or could run if it got a processor."""
    for stat in Path(_TASKS.format(pid)).glob("*/stat"):
        with suppress(OSError):
            if _fields(stat)[_STATE] in _COULD_RUN:
                return True
    return False

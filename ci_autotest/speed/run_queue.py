"""Seconds that this thread was ready to run and had to wait for a processor, which no call is to blame for."""

from __future__ import annotations

import os
import threading
from typing import Final

_NS: Final = 1e-9


class RunQueue:
    """The time that the current thread has waited; always 0 where the system does not tell.

    Time in which the thread sleeps or waits for something else is not part of it, so it stays in the time of a call.

    Source:
        ``/proc/<pid>/task/<tid>/schedstat``, second field: nanoseconds spent waiting on a runqueue (Linux,
        Documentation/scheduler/sched-stats.rst).
    """

    def __init__(self) -> None:
        try:
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1

    def waited_s(self) -> float:
        """Return the seconds so far."""
        if self._file < 0:
            return 0.0
        return int(os.pread(self._file, 64, 0).split()[1]) * _NS

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

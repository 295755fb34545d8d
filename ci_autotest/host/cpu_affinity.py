"""Bind all threads of a process to one processor while it works.

A framework whose threads poll one another for work takes two processors to do the work of one, and the second is its
worker's, which prepares the next cases meanwhile. On one processor the threads hand over to one another instead.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TASKS = Path("/proc/self/task")


class Processor:
    """Gather the threads of this process on the processor that the calling one happens to be on.

    Which one it is the system decides anew each time, when it wakes the calling thread: nothing is agreed with other
    processes, and none is ever kept from a processor that is free.
    """

    def __init__(self) -> None:
        # Threads that share one computation wait for one another with their eyes open: those need a processor each.
        self._is_of_use = sys.platform == "linux" and os.environ.get("OMP_NUM_THREADS") == "1"
        self._all = os.sched_getaffinity(0) if self._is_of_use else set()
        self._here = -1

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Keep all threads together for a while; the calling one may be anywhere afterwards."""
        if not self._is_of_use or len(self._all) == 1:
            yield
            return
        here = ctypes.CDLL(None).sched_getcpu()
        with suppress(OSError):
            if here == self._here:
                os.sched_setaffinity(0, {here})
            else:
                for task in _TASKS.iterdir():
                    os.sched_setaffinity(int(task.name), {here})
                self._here = here
        try:
            yield
        finally:
            with suppress(OSError):
                os.sched_setaffinity(0, self._all)

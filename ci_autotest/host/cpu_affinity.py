"""CPU affinity of a host: all its threads on one processor while it works.

Threads that poll each other for work keep two processors busy with the work of one. The second processor belongs to the
worker, which prepares the next cases meanwhile. On one processor the threads take turns instead.
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
    """The processor that the calling thread is on, for all threads of this process.

    The system chooses it anew whenever it wakes the calling thread. So processes need no agreement, and no process is
    kept away from a free processor.
    """

    def __init__(self) -> None:
        # With OMP_NUM_THREADS above 1, threads share one computation and wait for each other in busy loops. Each then
        # needs a processor of its own.
        self._is_useful = sys.platform == "linux" and os.environ.get("OMP_NUM_THREADS") == "1"
        self._all = os.sched_getaffinity(0) if self._is_useful else set()
        self._here = -1

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """Keep all threads on one processor inside the block; afterwards the calling thread may run anywhere again."""
        if not self._is_useful or len(self._all) == 1:
            yield
            return
        # Python's `os` does not have this function of Linux.
        here = ctypes.CDLL(None).sched_getcpu()
        # A thread may end before it is moved, and pinning only saves time.
        with suppress(OSError):
            if here == self._here:
                # The other threads are there still: only this one was let go.
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

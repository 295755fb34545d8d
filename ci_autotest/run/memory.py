"""Memory of a worker: when Python's collector looks at it, and what the allocator keeps."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Final

#: New objects that hold others until the collector looks at them: between batches, and in the midst of one, where most
#: of them are in use. Python's own number is 700.
_BETWEEN: Final = 3000
_AMIDST: Final = 50_000
#: Rounds over the youngest, or the middle generation, after which the next one is looked at. Python's own number.
_ROUNDS: Final = 10
#: Free bytes that are kept at most, and bytes from which on an allocation is the system's own. Source: mallopt(3).
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def spare_memory() -> None:
    """Keep what is imported out of the collector's rounds, and what a case frees for the next one.

    A batch of cases lives long enough to be taken for old; each time, all of a framework's objects were looked through,
    55 ms. And tensors of a few megabytes were given back to the system with every batch and asked for anew, page by
    page: a product of 1025 x 1025 cost twice what it does.
    """
    gc.freeze()
    gc.set_threshold(_AMIDST, _ROUNDS, _ROUNDS)
    allocator = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if allocator is not None:
        allocator(_TRIM_THRESHOLD, 1 << 26)
        allocator(_MMAP_THRESHOLD, 1 << 24)


def collect() -> None:
    """Collect what batches have left, if it is as much as to be worth it: between two, when little else is young."""
    young, middle, old = gc.get_count()
    if young >= _BETWEEN and gc.isenabled():
        gc.collect(0 if middle < _ROUNDS else 1 if old < _ROUNDS else 2)

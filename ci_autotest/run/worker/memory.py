"""Memory of a worker: garbage collection, the allocator, and how many cases run at once."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

#: New objects that hold others until the collector looks at them: between batches, and in the midst of one, where most
#: of them are in use. Python's own number is 700.
_BETWEEN: Final = 3000
_AMIDST: Final = 50_000
#: Rounds over the youngest, or the middle generation, after which the next one is looked at. Python's own number.
_ROUNDS: Final = 10
#: Bytes of the largest piece that is freed without being joined to its neighbours, of free memory that is kept at most,
#: and from which on an allocation is the system's own. Source: mallopt(3).
_MXFAST: Final = 1
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
#: Cases whose phases are run together at most: more hold more than the processor's cache.
BATCH: Final = 32


def case_bytes(values: Iterable[object]) -> int:
    """Return the memory that a case takes, in bytes: two sides, with as much again for gradients.

    Args:
        values: What the reference saw of its steps.
    """
    return 4 * sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


def cases_at_once(largest_bytes: int, room_bytes: int) -> int:
    """Return how many cases of a test run together: as many as there is room for if all are as large as the largest.

    Args:
        largest_bytes: What the largest case of the test has taken so far.
        room_bytes: Memory that a batch may take.
    """
    return min(BATCH, max(1, room_bytes // max(largest_bytes, 1)))


def spare_memory() -> None:
    """Keep what is imported out of the collector's rounds, and what a case frees for the next one.

    A batch of cases lives long enough to be taken for old; each time, all of a framework's objects were looked through,
    55 ms. And tensors of a few megabytes were given back to the system with every batch and asked for anew, page by
    page: a product of 1025 x 1025 cost twice what it does. Small pieces that are freed unjoined are joined by the next
    large allocation: the hundreds that a batch leaves cost each case of a convolution 15 us.
    """
    gc.freeze()
    gc.set_threshold(_AMIDST, _ROUNDS, _ROUNDS)
    allocator = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if allocator is not None:
        allocator(_MXFAST, 0)
        allocator(_TRIM_THRESHOLD, 1 << 26)
        allocator(_MMAP_THRESHOLD, 1 << 24)


def collect() -> None:
    """Collect what batches have left, if it is as much as to be worth it: between two, when little else is young."""
    young, middle, old = gc.get_count()
    if young >= _BETWEEN and gc.isenabled():
        gc.collect(0 if middle < _ROUNDS else 1 if old < _ROUNDS else 2)

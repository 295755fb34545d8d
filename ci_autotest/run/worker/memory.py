"""Memory of a worker: the garbage collector, the allocator, and how many cases run at once."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

#: New container objects that start a collection: between batches, and within a batch, where most of them are still in
#: use. Python's default is 700.
_BETWEEN: Final = 3000
_WITHIN: Final = 50_000
#: Collections of one generation after which the next older generation is collected too. Python's default.
_ROUNDS: Final = 10
#: Parameters of mallopt(3): the largest chunk that is freed without being merged with its neighbours, the free memory
#: that is kept, and the size from which an allocation is mapped on its own.
_MXFAST: Final = 1
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
#: A batch has at most this many cases, because the objects of more cases do not fit into the processor's cache.
BATCH: Final = 32


def case_bytes(values: Iterable[object]) -> int:
    """Return the bytes that a case takes: its values on two sides, and as much again for gradients.

    Args:
        values: The values of its steps on the reference.
    """
    return 4 * sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


def cases_at_once(largest_bytes: int, room_bytes: int) -> int:
    """Return how many cases of a test run together: as many as fit if all are as large as the largest so far.

    Args:
        largest_bytes: Bytes of the test's largest case so far.
        room_bytes: Memory that a batch may take.
    """
    return min(BATCH, max(1, room_bytes // max(largest_bytes, 1)))


def spare_memory() -> None:
    """Exclude imported objects from garbage collection, and keep the memory that a case frees for the next one.

    The objects of a batch live long enough to reach the oldest generation. Each collection of it went through all
    objects of the framework, which took 55 ms. Tensors of a few megabytes went back to the system after every batch and
    were mapped again page by page, which doubled the time of a 1025 x 1025 product. Small chunks that are freed without
    merging are merged by the next large allocation: the hundreds that a batch leaves cost each case of a convolution
    15 us.
    """
    gc.freeze()
    gc.set_threshold(_WITHIN, _ROUNDS, _ROUNDS)
    allocator = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if allocator is not None:
        allocator(_MXFAST, 0)
        allocator(_TRIM_THRESHOLD, 1 << 26)
        allocator(_MMAP_THRESHOLD, 1 << 24)


def collect() -> None:
    """Collect the garbage of batches if there is enough of it; call it between batches, when little else is young."""
    young, middle, old = gc.get_count()
    if young >= _BETWEEN and gc.isenabled():
        gc.collect(0 if middle < _ROUNDS else 1 if old < _ROUNDS else 2)

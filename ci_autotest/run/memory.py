"""Memory of a worker: when Python's collector looks at it, what the allocator keeps, how many cases it may hold."""

from __future__ import annotations

import ctypes
import gc
import math
import sys
from dataclasses import dataclass
from typing import Final

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
#: Standard deviations by which cases that are held together may take more than they do on average.
_DEVIATIONS: Final = 3


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the cases of a test have taken so far.

    Attributes:
        cases: How many.
        total: Bytes of all of them.
        largest: Bytes of the largest.
    """

    cases: int = 0
    total: int = 0
    largest: int = 0

    def __add__(self, other: Footprint) -> Footprint:
        """Return what the cases of both have taken."""
        return Footprint(self.cases + other.cases, self.total + other.total, max(self.largest, other.largest))

    def fit(self, memory: int, most: int) -> int:
        """Return how many of the next cases can be held in some memory, one at least.

        As many as the largest would leave room for; and more where few are large. With a known mean and a known
        largest, sizes spread most when each is either the largest or nothing (Bhatia and Davis, 2000): then the large
        ones among some cases are counted by a binomial distribution.

        Args:
            memory: Bytes.
            most: Cases to return at most.
        """
        if not self.total:
            return most
        share, large = self.total / (self.cases * self.largest), memory / self.largest
        spread = _DEVIATIONS * math.sqrt(share * (1 - share))
        root = (math.sqrt(spread**2 + 4 * share * large) - spread) / (2 * share)
        return min(most, max(1, int(large), int(root**2)))


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

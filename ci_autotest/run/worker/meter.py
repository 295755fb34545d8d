"""Measure a candidate's time, memory and random draws beside the reference's. Nothing is judged by it.

What is told of it are orders of magnitude, in notes: medians over a batch, bytes that the allocator counts. To count
those, the allocator walks all of its free pieces, up to 0.4 ms: so that is done only for a test in whose last batch the
process has grown, which is asked of the system in a few microseconds.
"""

from __future__ import annotations

import ctypes
import os
import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt
    from ci_autotest.run.progress_beacon import Entering

#: What a candidate did with the generator where the reference drew: nothing, or another number of draws.
Drawn: TypeAlias = Literal["", "nothing", "otherwise"]
#: Share of what was kept that each half of a batch's cases must have added: what grows once does not grow by calls. Of
#: ten cases with the 33 calls of their probe each half has 0.15 of what is kept with every call.
_HALF: Final = 0.1
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class _Allocated(ctypes.Structure):
    """``struct mallinfo2`` of glibc. Source: mallinfo(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def allocated_bytes() -> int:
    """Return the bytes that this process has allocated and not freed; 0 where the system does not say."""
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        return 0
    ask.restype = _Allocated
    found = ask()
    return int(found.uordblks + found.hblkhd)


def mapped_bytes() -> int:
    """Return the bytes of address space that this process holds; 0 where the system does not say.

    Not what lies in memory: a tensor of zeros that nobody has written to lies nowhere yet.

    Source:
        proc(5), ``statm``.
    """
    try:
        told = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(told, 256).split()[0]) * _PAGE_BYTES
    finally:
        os.close(told)


class Meter:
    """Watch a candidate run a batch: says which case is entered, as what it is made of does, and when.

    Args:
        enter: Says which case is entered.
        attempts: Of the batch, without probes.
        is_growing: Whether memory is watched too.
    """

    def __init__(self, enter: Entering, attempts: Sequence[Attempt], *, is_growing: bool) -> None:
        self._enter = enter
        self._count = len(attempts)
        self.is_growing = is_growing
        self._drawing = next((i for i, attempt in enumerate(attempts) if _last_seed(attempt) is not None), -1)
        self._seconds = [0.0] * len(attempts)
        self._allocated: dict[int, int] = {}
        self._state: torch.Tensor | None = None
        self._at, self._since = -1, 0.0
        self.step = enter.step

    def __call__(self, position: int, /) -> None:
        """Say that a case is entered, once what the one before it has cost is written down."""
        self.stop()
        self._at = position
        if self.is_growing and position in {0, self._count // 2} and position not in self._allocated:
            self._allocated[position] = allocated_bytes()
        self._enter(position)
        self._since = time.perf_counter()

    def stop(self) -> None:
        """Write down what the case entered last has cost: its forward pass, later its backward pass."""
        if 0 <= self._at < self._count:
            self._seconds[self._at] += time.perf_counter() - self._since
        if self._at == self._drawing >= 0 and self._state is None:
            self._state = torch.default_generator.get_state()
        if self.is_growing and self._at == self._count - 1 and self._count not in self._allocated:
            self._allocated[self._count] = allocated_bytes()
        self._at = -1

    def restored(self) -> AbstractContextManager[object]:
        """Return a block after which the place is again the one before."""
        return self._enter.restored()

    @property
    def seconds(self) -> float:
        """What all cases cost at the median of one."""
        return median(self._seconds) * self._count if self._count else 0.0

    def kept(self, kept_bytes: int) -> int:
        """Return what a batch kept, if both halves of this candidate's cases added to it; else 0."""
        marks = [self._allocated.get(at, 0) for at in (0, self._count // 2, self._count)]
        grown = [later - before for before, later in pairwise(marks)]
        return kept_bytes if min(grown, default=0) >= _HALF * kept_bytes > 0 else 0

    def drawn(self, attempts: Sequence[Attempt], reference: Backend) -> Drawn:
        """Return whether a case left the generator where the reference leaves it; asked once of a batch."""
        if self._state is None:
            return ""
        attempt = attempts[self._drawing]
        seed = _last_seed(attempt)
        assert seed is not None  # noqa: S101 - as it was chosen
        before = torch.default_generator.get_state()
        reference.run(attempt.program, attempt.sources)
        expected = torch.default_generator.get_state()
        untouched = torch.default_generator.manual_seed(seed).get_state()
        torch.default_generator.set_state(before)
        if torch.equal(self._state, expected) or torch.equal(expected, untouched):
            return ""
        return "nothing" if torch.equal(self._state, untouched) else "otherwise"


def _last_seed(attempt: Attempt) -> int | None:
    return next((step.seed for step in reversed(attempt.program.body) if step.seed is not None), None)

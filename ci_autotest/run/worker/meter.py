"""The meter of a candidate: its time, memory and random draws compared with the reference's. No verdict uses it.

Notes in the report show only orders of magnitude: medians over a batch, and bytes that the allocator counts. Counting
them walks all free chunks of the allocator, which takes up to 0.4 ms. So only tests during whose last batch the process
has grown are counted; whether it has grown takes the system a few microseconds to tell.
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

#: What a candidate did with the generator if the reference drew numbers from it: nothing, or another number of draws.
Drawn: TypeAlias = Literal["", "nothing", "otherwise"]
#: Share of the kept memory that each half of a batch's cases must have added, because memory that grows only once does
#: not grow with the calls. With ten cases and the 33 calls of a probe, each half adds 0.15 if every call keeps memory.
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
    """Return the bytes that this process has allocated and not freed; 0 if the system does not report them."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = _Allocated
    found = mallinfo2()
    return int(found.uordblks + found.hblkhd)


def mapped_bytes() -> int:
    """Return the bytes of address space that this process holds; 0 if the system does not report them.

    Resident memory would miss a tensor of zeros, which takes no pages before it is written to.

    Source:
        proc(5), ``statm``.
    """
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(file, 256).split()[0]) * _PAGE_BYTES
    finally:
        os.close(file)


class Meter:
    """Report the cases that a candidate enters, as ``Entering`` does, and measure them.

    Args:
        enter: Reports the case to the parent.
        attempts: The attempts of the batch, without probes.
        is_growing: Whether to watch memory too.
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
        self.step, self.calls = enter.step, enter.calls

    def __call__(self, position: int, /) -> None:
        """Store the cost of the case before, and enter a case."""
        self.stop()
        self._at = position
        if self.is_growing and position in {0, self._count // 2} and position not in self._allocated:
            self._allocated[position] = allocated_bytes()
        self._enter(position)
        self._since = time.perf_counter()

    def stop(self) -> None:
        """Add the cost of the last case entered: first its forward pass, later its backward pass."""
        if 0 <= self._at < self._count:
            self._seconds[self._at] += time.perf_counter() - self._since
        if self._at == self._drawing >= 0 and self._state is None:
            self._state = torch.default_generator.get_state()
        if self.is_growing and self._at == self._count - 1 and self._count not in self._allocated:
            self._allocated[self._count] = allocated_bytes()
        self._at = -1

    def restored(self) -> AbstractContextManager[object]:
        """Return a block after which the reported position is the one before it again."""
        return self._enter.restored()

    @property
    def seconds(self) -> float:
        """Seconds of all cases, as their number times the median."""
        return median(self._seconds) * self._count if self._count else 0.0

    def kept(self, kept_bytes: int) -> int:
        """Return the bytes that a batch kept if both halves of this candidate's cases added to them; else 0."""
        marks = [self._allocated.get(at, 0) for at in (0, self._count // 2, self._count)]
        grown = [later - before for before, later in pairwise(marks)]
        return kept_bytes if min(grown, default=0) >= _HALF * kept_bytes > 0 else 0

    def drawn(self, attempts: Sequence[Attempt], reference: Backend) -> Drawn:
        """Return how a case left torch's generator in another state than the reference does; checked once per batch."""
        if self._state is None:
            return ""
        attempt = attempts[self._drawing]
        seed = _last_seed(attempt)
        assert seed is not None  # noqa: S101 - the attempt was chosen for having one
        before = torch.default_generator.get_state()
        reference.run(attempt.program, attempt.sources)
        expected = torch.default_generator.get_state()
        untouched = torch.default_generator.manual_seed(seed).get_state()
        # Later cases must not see that the reference ran once more.
        torch.default_generator.set_state(before)
        if torch.equal(self._state, expected) or torch.equal(expected, untouched):
            return ""
        return "nothing" if torch.equal(self._state, untouched) else "otherwise"


def _last_seed(attempt: Attempt) -> int | None:
    return next((step.seed for step in reversed(attempt.program.body) if step.seed is not None), None)

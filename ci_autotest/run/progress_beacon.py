"""The progress beacon: shared memory in which a worker writes which case, candidate and step it is in.

It is a small file that both processes open. It has no name, so no run leaves it behind. The worker writes a few
numbers; the parent reads them after the worker has died or fallen silent.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_SLOTS: Final = 5
_LAYOUT: Final = struct.Struct(f"={_SLOTS}q")
#: After them, one bit for each rank that the worker waits for.
_AWAITED: Final = struct.Struct("=q")
_BYTES: Final = _LAYOUT.size + _AWAITED.size
NOWHERE: Final = -1
#: The step while an input that the reference rejects runs on a candidate.
IN_REFUSED: Final = -3
#: The step while the float64 oracle runs: it calls the reference's operators, and no candidate.
IN_FLOAT64: Final = -4
#: The numbers of a worker that has entered no case yet, without its count of moves.
_UNSET: Final = b"\xff" * (8 * (_SLOTS - 1))


class Spot(NamedTuple):
    """The position of a worker.

    Attributes:
        case: Number of the case, or -1.
        candidate: Position among the candidates of the message; -1 for the reference.
        step: Index of the step; -1 if the backend reports no steps, -2 in a backward pass, -3 while a rejected input
            runs on a candidate, -4 while the float64 oracle runs, -5 while a body is compiled.
        attempt: Number of the attempt.
        moves: Grows with every change.
    """

    case: int
    candidate: int
    step: int
    attempt: int
    moves: int


class Entering:
    """Report which case of a batch the worker enters. It is called for each case, so it writes the numbers itself.

    Args:
        view: The mapped file.
        candidate: Whose code runs.
        spots: Case and attempt number, by position in the batch.
    """

    __slots__ = ("_candidate", "_spots", "_view")

    def __init__(self, view: memoryview[int], candidate: int, spots: Sequence[tuple[int, int]]) -> None:
        self._view, self._candidate, self._spots = view, candidate, spots

    def __call__(self, position: int, /) -> None:
        """Report the case at a position."""
        view = self._view
        view[0], view[3] = self._spots[position]
        view[1] = self._candidate
        view[2] = NOWHERE
        view[4] += 1

    def step(self, index: int, /) -> None:
        """Report a step of that case."""
        self._view[2] = index
        self._view[4] += 1

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Let another batch report its cases, then restore this position; an exception leaves that batch's position."""
        view = self._view
        before = view[:4].tolist()
        yield
        view[0], view[1], view[2], view[3] = before
        view[4] += 1


class ProgressBeacon:
    """The beacon of one worker.

    Args:
        fd: Descriptor of the file, which the parent creates and the worker inherits.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, _BYTES)
        self._view = memoryview(self._map).cast("q")

    @classmethod
    def create(cls) -> ProgressBeacon:
        """Create the beacon of a new worker."""
        with tempfile.TemporaryFile() as file:
            file.write(_UNSET + bytes(_BYTES - len(_UNSET)))
            file.flush()
            return cls(os.dup(file.fileno()))

    def enter(self, case: int, candidate: int, attempt: int = NOWHERE, step: int = NOWHERE) -> None:
        """Report the case, the candidate and the attempt."""
        view = self._view
        view[0] = case
        view[1] = candidate
        view[2] = step
        view[3] = attempt
        view[4] += 1

    def entering(self, candidate: int, spots: Sequence[tuple[int, int]]) -> Entering:
        """Return a reporter for the cases of a batch.

        Args:
            candidate: Whose code runs.
            spots: Case and attempt number, by position in the batch.
        """
        return Entering(self._view, candidate, spots)

    def step(self, index: int) -> None:
        """Report a step."""
        self._view[2] = index
        self._view[4] += 1

    @contextmanager
    def in_float64(self) -> Iterator[None]:
        """Report the float64 oracle, then the step before it again."""
        before = self._view[2]
        self.step(IN_FLOAT64)
        try:
            yield
        finally:
            self.step(before)

    def wait_for(self, ranks: Collection[int]) -> None:
        """Report the ranks that a candidate waits for. Only none is a move: a rank may hang while others answer."""
        self._view[_SLOTS] = sum(1 << rank for rank in ranks)
        if not ranks:
            self._view[4] += 1

    def awaited(self) -> list[int]:
        """Return the ranks that the worker waits for."""
        data = os.pread(self.fd, _AWAITED.size, _LAYOUT.size)
        (mask,) = _AWAITED.unpack(data) if len(data) == _AWAITED.size else (0,)
        return [rank for rank in range(mask.bit_length()) if mask >> rank & 1] if mask > 0 else []

    def read(self) -> Spot:
        """Return the worker's position.

        The file is read, not mapped, because a worker that truncates a mapped file would end the parent with SIGBUS.
        """
        data = os.pread(self.fd, _LAYOUT.size, 0)
        return Spot(*_LAYOUT.unpack(data)) if len(data) == _LAYOUT.size else Spot(NOWHERE, NOWHERE, NOWHERE, NOWHERE, 0)

    def reset(self) -> None:
        """Clear the position before the worker gets another task."""
        os.pwrite(self.fd, _UNSET, 0)

    def close(self) -> None:
        """Unmap and close the file."""
        self._view.release()
        self._map.close()
        os.close(self.fd)

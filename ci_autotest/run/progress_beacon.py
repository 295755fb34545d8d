"""The progress beacon: which case, candidate and step a worker is in, in shared memory.

A small file mapped by both, without a name, so that nothing is left of it however a run ends. The worker writes a few
numbers; the parent reads them when the worker has died or is silent.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SLOTS: Final = 5
_LAYOUT: Final = struct.Struct(f"={_SLOTS}q")
NOWHERE: Final = -1
#: What stands for the step while a candidate is asked for what the reference rejects.
IN_REFUSED: Final = -3
#: What stands for the step while float64 is asked who is right: the reference's operators run, and no candidate.
IN_FLOAT64: Final = -4
#: The place of a worker that has entered nothing yet, without its count of moves.
_FORGOTTEN: Final = b"\xff" * (8 * (_SLOTS - 1))


class Spot(NamedTuple):
    """Say where a worker is.

    Attributes:
        case: Number of the case, or -1.
        candidate: Position among the candidates of the job; -1 for the reference.
        step: Index of the step where steps are told, -1 where not, -2 in a backward pass, -3 while a candidate is asked
            for what the reference rejects, -4 while float64 is asked.
        attempt: Number of the attempt.
        moves: Grows with every move.
    """

    case: int
    candidate: int
    step: int
    attempt: int
    moves: int


class Entering:
    """Say which of some cases is entered.

    Args:
        view: The map.
        candidate: Whose code.
        spots: Number of each case and of its attempt, by position.
    """

    __slots__ = ("_candidate", "_spots", "_view")

    def __init__(self, view: memoryview[int], candidate: int, spots: Sequence[tuple[int, int]]) -> None:
        self._view, self._candidate, self._spots = view, candidate, spots

    def __call__(self, position: int, /) -> None:
        """Say that a case is entered."""
        view = self._view
        view[0], view[3] = self._spots[position]
        view[1] = self._candidate
        view[2] = NOWHERE
        view[4] += 1

    def step(self, index: int, /) -> None:
        """Say which step of that case is entered."""
        self._view[2] = index
        self._view[4] += 1

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Let another batch say where it is, then be where this was; after an exception the place is that batch's."""
        view = self._view
        before = view[:4].tolist()
        yield
        view[0], view[1], view[2], view[3] = before
        view[4] += 1


class ProgressBeacon:
    """Map the place of one worker.

    Args:
        fd: Of the file; made by the parent, inherited by the worker.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, _SLOTS * 8)
        self._view = memoryview(self._map).cast("q")

    @classmethod
    def create(cls) -> ProgressBeacon:
        """Make the file of a new worker."""
        with tempfile.TemporaryFile() as file:
            file.write(_FORGOTTEN + b"\x00" * 8)
            file.flush()
            return cls(os.dup(file.fileno()))

    def enter(self, case: int, candidate: int, attempt: int = NOWHERE, step: int = NOWHERE) -> None:
        """Say which case, candidate and attempt are entered."""
        view = self._view
        view[0] = case
        view[1] = candidate
        view[2] = step
        view[3] = attempt
        view[4] += 1

    def entering(self, candidate: int, spots: Sequence[tuple[int, int]]) -> Entering:
        """Return what says which of some cases is entered.

        Args:
            candidate: Whose code.
            spots: Number of each case and of its attempt, by position.
        """
        return Entering(self._view, candidate, spots)

    def step(self, index: int) -> None:
        """Say which step is entered."""
        self._view[2] = index
        self._view[4] += 1

    @contextmanager
    def in_float64(self) -> Iterator[None]:
        """Say that float64 is asked, then be in the step where this was."""
        before = self._view[2]
        self.step(IN_FLOAT64)
        try:
            yield
        finally:
            self.step(before)

    def read(self) -> Spot:
        """Return where the worker is; read, not mapped: a worker that cuts the file must not end the parent."""
        data = os.pread(self.fd, _SLOTS * 8, 0)
        return Spot(*_LAYOUT.unpack(data)) if len(data) == _SLOTS * 8 else Spot(NOWHERE, NOWHERE, NOWHERE, NOWHERE, 0)

    def reset(self) -> None:
        """Forget where the worker was, before it is given another task."""
        os.pwrite(self.fd, _FORGOTTEN, 0)

    def close(self) -> None:
        """Unmap the file and let go of it."""
        self._view.release()
        self._map.close()
        os.close(self.fd)

"""The place in flight: which case, candidate and step a worker is in, known to the parent without a message.

A small file mapped by both. The worker writes a few numbers; the parent reads them when the worker
has died or is silent.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SLOTS: Final = 5
_LAYOUT: Final = struct.Struct(f"={_SLOTS}q")
NOWHERE: Final = -1
#: The place of a worker that has entered nothing yet, without its count of moves.
_FORGOTTEN: Final = b"\xff" * (8 * (_SLOTS - 1))


class Spot(NamedTuple):
    """Say where a worker is.

    Attributes:
        case: Number of the case, or -1.
        candidate: Position among the candidates of the job; -1 for the reference.
        step: Index of the step where steps are told, -1 where not, -2 in a backward pass.
        attempt: Number of the attempt.
        moves: Grows with every move.
    """

    case: int
    candidate: int
    step: int
    attempt: int
    moves: int


class Place:
    """Map the place of one worker.

    Args:
        path: The file; made by the parent, opened by the worker.
    """

    def __init__(self, path: Path) -> None:
        """Open and map the file."""
        self.path = path
        self._fd = os.open(path, os.O_RDWR)
        self._map = mmap.mmap(self._fd, _SLOTS * 8)
        self._view = memoryview(self._map).cast("q")

    @classmethod
    def create(cls) -> Place:
        """Make the file of a new worker."""
        with tempfile.NamedTemporaryFile(prefix="ci-autotest-place-", delete=False) as file:
            file.write(_FORGOTTEN + b"\x00" * 8)
        return cls(Path(file.name))

    def enter(self, case: int, candidate: int, attempt: int = NOWHERE) -> None:
        """Say which case, candidate and attempt are entered."""
        view = self._view
        view[0] = case
        view[1] = candidate
        view[2] = NOWHERE
        view[3] = attempt
        view[4] += 1

    def entering(
        self, candidate: int, spots: Mapping[int, tuple[int, int]] | Sequence[tuple[int, int]]
    ) -> Callable[[int], None]:
        """Return what says which of some cases is entered.

        Args:
            candidate: Whose code.
            spots: Number of each case and of its attempt, by what it is called here.
        """
        view = self._view

        def enter(one: int) -> None:
            view[0], view[3] = spots[one]
            view[1] = candidate
            view[2] = NOWHERE
            view[4] += 1

        return enter

    def step(self, index: int) -> None:
        """Say which step is entered."""
        self._view[2] = index
        self._view[4] += 1

    def read(self) -> Spot:
        """Return where the worker is; read, not mapped: a worker that cuts the file must not end the parent."""
        data = os.pread(self._fd, _SLOTS * 8, 0)
        return Spot(*_LAYOUT.unpack(data)) if len(data) == _SLOTS * 8 else Spot(NOWHERE, NOWHERE, NOWHERE, NOWHERE, 0)

    def reset(self) -> None:
        """Forget where the worker was, before it is given another task."""
        os.pwrite(self._fd, _FORGOTTEN, 0)

    def remove(self) -> None:
        """Unmap and delete the file."""
        self._view.release()
        self._map.close()
        os.close(self._fd)
        self.path.unlink(missing_ok=True)

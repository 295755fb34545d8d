"""The progress beacon: shared memory in which a worker writes which case, candidate and step it is in.

It is a small file that both processes open. It has no name, so no run leaves it behind. The worker writes a few
numbers; the parent reads them after the worker has ended, or while it makes no progress. The file also holds the
worker's journal: the last calls of its candidates, so that what led to a failure can be run again call by call.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.values.schedule import CandidateCall, Passes, RowName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_SLOTS: Final = 5
_LAYOUT: Final = struct.Struct(f"={_SLOTS}q")
#: After them, one bit for each rank that the worker waits for.
_AWAITED: Final = struct.Struct("=q")
#: After that, how many calls the journal was given and the number of the message in hand.
_JOURNAL_HEAD: Final = struct.Struct("=2q")
_HEAD_AT: Final = _LAYOUT.size + _AWAITED.size
_CALL: Final = struct.Struct("=6i")
#: Calls that the journal keeps, the latest: some two hundred cases with all that is asked of them.
JOURNAL_CALLS: Final = 1024
_CALLS_AT: Final = _HEAD_AT + _JOURNAL_HEAD.size
_BYTES: Final = _CALLS_AT + JOURNAL_CALLS * _CALL.size
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
        journal: Where calls are written down.
        candidate: Whose code runs.
        spots: Case and attempt number, by position in the batch.
        row: What asks for the calls.
    """

    __slots__ = ("_candidate", "_journal", "_row", "_spots", "_view")

    def __init__(
        self,
        view: memoryview[int],
        journal: CallJournal,
        candidate: int,
        spots: Sequence[tuple[int, int]],
        row: RowName,
    ) -> None:
        self._view, self._journal, self._candidate, self._spots, self._row = view, journal, candidate, spots, row

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

    def calls(self, position: int, passes: Passes, /) -> None:
        """Write down that a case is called now."""
        case, attempt = self._spots[position]
        self._journal.add(self._candidate, case, attempt, self._row, passes)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Let another batch report its cases, then restore this position; an exception leaves that batch's position."""
        view = self._view
        before = view[:4].tolist()
        yield
        view[0], view[1], view[2], view[3] = before
        view[4] += 1


class CallJournal:
    """The calls of candidates that a worker has made: a ring in its beacon's file, whose oldest calls are overwritten.

    Args:
        file: The mapped file.
    """

    def __init__(self, file: mmap.mmap) -> None:
        self._file = file
        self._count, self._message = 0, -1
        self._room = (len(file) - _CALLS_AT) // _CALL.size

    def clear(self) -> None:
        """Begin anew, as a process does that has called nothing."""
        self._count, self._message = 0, -1
        _JOURNAL_HEAD.pack_into(self._file, _HEAD_AT, self._count, self._message)

    def begin_message(self) -> None:
        """Begin the next message that asks for cases."""
        self._message += 1

    def add(self, candidate: int, case: int, attempt: int, row: RowName, passes: Passes) -> None:
        """Write down a call. It counts once the number of calls says so: a process may end within this function."""
        if not self._room:
            return
        at = _CALLS_AT + self._count % self._room * _CALL.size
        _CALL.pack_into(self._file, at, self._message, candidate, case, attempt, row, passes)
        self._count += 1
        _JOURNAL_HEAD.pack_into(self._file, _HEAD_AT, self._count, self._message)


class ProgressBeacon:
    """The beacon of one worker.

    Args:
        fd: Descriptor of the file, which the parent creates and the worker inherits.

    Attributes:
        journal: Where the worker writes down each call of a candidate.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self._whole = memoryview(self._map)
        self._view = self._whole[:_HEAD_AT].cast("q")
        self.journal = CallJournal(self._map)

    @classmethod
    def create(cls) -> ProgressBeacon:
        """Create the beacon of a new worker."""
        # Where files may have no more than a few bytes, it has no journal.
        with suppress(OSError):
            return cls._of_size(_BYTES)
        return cls._of_size(_CALLS_AT)

    @classmethod
    def _of_size(cls, size: int) -> ProgressBeacon:
        with tempfile.TemporaryFile() as file:
            file.write(_UNSET + bytes(size - len(_UNSET)))
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

    def entering(self, candidate: int, spots: Sequence[tuple[int, int]], row: RowName = RowName.CASE) -> Entering:
        """Return a reporter for the cases of a batch.

        Args:
            candidate: Whose code runs.
            spots: Case and attempt number, by position in the batch.
            row: What asks for the calls.
        """
        return Entering(self._view, self.journal, candidate, spots, row)

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

    def calls(self) -> list[CandidateCall]:
        """Return the last calls of candidates, in order.

        They are read from the file, as ``read`` does. A kernel may have overwritten them: what is no row is left out,
        and the rest is for the reader to check.
        """
        data = os.pread(self.fd, _BYTES - _HEAD_AT, _HEAD_AT)
        if len(data) != _BYTES - _HEAD_AT:
            return []
        count, _ = _JOURNAL_HEAD.unpack_from(data)
        first, found = max(0, count - JOURNAL_CALLS), []
        for number in range(first, min(count, first + JOURNAL_CALLS)):
            at = _JOURNAL_HEAD.size + number % JOURNAL_CALLS * _CALL.size
            message, candidate, case, attempt, row, passes = _CALL.unpack_from(data, at)
            with suppress(ValueError):
                found.append(CandidateCall(message, candidate, case, attempt, RowName(row), Passes(passes)))
        return found

    def reset(self) -> None:
        """Clear the position before the worker gets another task."""
        os.pwrite(self.fd, _UNSET, 0)

    def close(self) -> None:
        """Unmap and close the file."""
        self._view.release()
        self._whole.release()
        self._map.close()
        os.close(self.fd)

"""The schedule: which calls a worker makes of a candidate for a case, as rows, and which case asks for which row.

A row is data: what is called, what varies from the case's own call, what must hold afterwards, the cases that ask for
it, and what a candidate must be able to do. A miss becomes a row here, with its calls in ``program/call_probe`` or
``alignment``.

A ``CandidateCall`` is an entry of the worker's journal. The worker writes each call down before it makes it, in memory
that the parent can read after the worker is gone. So a program can make the same calls in their order.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

#: Cases per window; see ``window_of``.
WINDOW: Final = 10
#: One case in so many is guarded, from the second one: ordinary cases, because the others vary what a band would hide.
_GUARDED_EVERY, _FIRST_GUARDED = 8, 2
#: The cases in which operators of a candidate's libraries are checked: ordinary ones that are not guarded. Of a test
#: that has two dtypes in turn, they have both.
_CHECKED: Final = frozenset({0, 6, 12})

#: What a candidate can do: run a program of several calls call by call (``steps``), run steps of such a program again
#: in their place (``again``), call again what it made of a body (``body``), lay memory between bands (``bands``), and
#: answer by operators of a library, which say of themselves what they do (``operators``).
Ability: TypeAlias = Literal["steps", "again", "body", "bands", "operators"]


class RowName(IntEnum):
    """The name of a row; the numbers stand in the journal."""

    CASE = 0
    LOOK = 1
    GUARD = 2
    OPERATORS = 3
    SEQUENCE = 4
    SERIES = 5
    RECALL = 6
    REPEAT = 7
    REPEAT_OF_SEQUENCE = 8
    REFUSED = 9


class ScheduleRow(NamedTuple):
    """A row of the schedule.

    Attributes:
        calls: What is called.
        varies: What differs from the case's own call.
        holds: What must hold afterwards.
        asked: Which cases ask for it, in words.
        asks: Whether a case asks for it, by its number. Of a window, the first case that can have the row has it.
        needs: What the candidate must be able to do.
        is_of_window: Whether one case of each window has it.
        forward: Forward calls that it makes at most.
        backward: Backward passes that it makes at most.
    """

    calls: str
    varies: str
    holds: str
    asked: str
    asks: Callable[[int], bool]
    needs: tuple[Ability, ...] = ()
    is_of_window: bool = False
    forward: int = 1
    backward: int = 1


def window_of(case: int) -> int:
    """Return the number of the window that a case is in: 0 for case 0, 1 for 1 to 9, 2 for 10 to 19.

    A window is never split between shards or workers.
    """
    # Case 0 is alone, because every test runs it before any test runs more.
    return 0 if case == 0 else case // WINDOW + 1


def is_late(case: int) -> bool:
    """Whether a case is in the second half of its window, where cases are probed whatever their inputs are."""
    return case % WINDOW >= WINDOW // 2


def _every(_case: int) -> bool:
    return True


def _in_window(case: int) -> bool:
    return case > 0


def _in_odd_window(case: int) -> bool:
    return window_of(case) % 2 == 1


def _in_even_window(case: int) -> bool:
    return case > 0 and window_of(case) % 2 == 0


def _is_guarded(case: int) -> bool:
    return case % _GUARDED_EVERY == _FIRST_GUARDED


#: In the order in which a worker makes their calls for a batch.
SCHEDULE: Final[dict[RowName, ScheduleRow]] = {
    RowName.REFUSED: ScheduleRow(
        "the body, up to the step that the reference refuses",
        "inputs that the reference rejects",
        "the candidate refuses them too",
        "an attempt that the reference rejects",
        _every,
        backward=0,
    ),
    RowName.CASE: ScheduleRow(
        "the body, forward; after all cases of the batch, backward",
        "",
        "each value, gradient and flag is the reference's; nothing else was written to",
        "every case",
        _every,
    ),
    RowName.LOOK: ScheduleRow(
        "the body, with a copy of each value at its step",
        "addresses",
        "the same; this decides the verdict, and what is wrong is located by further runs",
        "a case of which the fast path is not sure",
        _every,
    ),
    RowName.GUARD: ScheduleRow(
        "the body twice",
        "memory before and behind inputs and results",
        "no band was written to, and no result depends on one",
        "one in eight",
        _is_guarded,
        ("bands",),
        forward=2,
        backward=2,
    ),
    RowName.OPERATORS: ScheduleRow(
        "`torch.library.opcheck` on each call of an operator of the candidate's libraries",
        "tracing, fake tensors, dispatch",
        "what the operator declares is true",
        "three cases",
        _CHECKED.__contains__,
        ("operators",),
    ),
    RowName.SEQUENCE: ScheduleRow(
        "the body 13 times, 14 with modules",
        "values, addresses, versions, identities, parameters, gradients on and off, the order of backward passes",
        "each call gives what the reference gives, when it was made and at the end",
        "one of each ten, in every other ten",
        _in_odd_window,
        ("steps",),
        is_of_window=True,
        forward=14,
        backward=4,
    ),
    RowName.SERIES: ScheduleRow(
        "the body 18 times, then all backward passes, then calls of the first again; with up to 17 other modules",
        "values, addresses and modules, which all live",
        "the same: nothing that was kept for one call is given to another",
        "one of each ten, in the tens between",
        _in_even_window,
        ("steps",),
        is_of_window=True,
        forward=39,
        backward=19,
    ),
    RowName.RECALL: ScheduleRow(
        "what was made of the body, twice",
        "nothing, then values",
        "each call gives what the reference gives, and no call writes to earlier results",
        "one of each ten",
        _in_window,
        ("body",),
        is_of_window=True,
        forward=3,
        backward=0,
    ),
    RowName.REPEAT: ScheduleRow(
        "the body again, forward and backward",
        "the other calls of the batch have come between",
        "the result is the same as before, bit by bit or within the tolerance",
        "one of each ten",
        _in_window,
        ("again",),
        is_of_window=True,
    ),
    RowName.REPEAT_OF_SEQUENCE: ScheduleRow(
        "the last calls of the sequence again",
        "nothing is held between them, so that memory is given out again",
        "the same as before",
        "with each sequence",
        _in_odd_window,
        ("again",),
        is_of_window=True,
        forward=5,
        backward=0,
    ),
}
#: Rows of which a window has one, the calls that show what a candidate remembers.
_PROBES: Final = (RowName.SEQUENCE, RowName.SERIES, RowName.RECALL)


def asks(row: RowName, case: int) -> bool:
    """Whether a case asks for a row."""
    return SCHEDULE[row].asks(case)


def has_probe(case: int) -> bool:
    """Whether a case is in a window, which has a probe on each candidate that can have one."""
    return _in_window(case)


def probe_row(case: int, abilities: Collection[Ability]) -> RowName | None:
    """Return the row by which a case's window shows what a candidate remembers; ``None`` if there is none for it."""
    rows = (row for row in _PROBES if SCHEDULE[row].asks(case) and {*SCHEDULE[row].needs} <= {*abilities})
    return next(rows, None)


class Passes(IntEnum):
    """Which passes of a body a call makes."""

    FORWARD = 1
    BACKWARD = 2
    BOTH = 3


class CandidateCall(NamedTuple):
    """A call of a candidate, or a pass of one.

    Attributes:
        message: Number of the message of its process that asked for the case, from 0.
        candidate: Position of the candidate in that message.
        case: Number of the case.
        attempt: Number of the attempt.
        row: What asked for the call.
        passes: Which passes it makes.
    """

    message: int
    candidate: int
    case: int
    attempt: int
    row: RowName
    passes: Passes

    @property
    def place(self) -> tuple[int, int]:
        """The message and the case."""
        return self.message, self.case

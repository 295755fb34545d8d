"""Crash attribution: find the case and candidate that ended a worker, and whether it happens again.

What was in flight is run again: the suspect alone in a fresh worker, the others one by one. What
ends its worker alone is a crash; what does so only after the cases that ran before it in its process
says so; what does neither is flaky. The inquiry proposes jobs and is told what came of them, so
that it needs no process itself, and books cases in ascending order, so that its outcome is the same
on any number of workers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec

from ci_autotest.run.messages import Broken, CasesDone, Left, RunCases
from ci_autotest.run.progress_beacon import IN_FLOAT64, IN_REFUSED
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.case import window_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ci_autotest.run.messages import TestInfo

#: Cases of a window that may end their worker on one candidate before the rest of the window is left alone.
LOST_AT_MOST: Final = 2
#: Tests that are looked at for the one after which the reference ends its process, the last ones.
BLAMED_AT_MOST: Final = 8
#: Times that a job is begun again when its worker is ended from outside, or before it reached its case.
_TRIES: Final = 6

#: Steps in which the loss of a worker is not held against the candidate: what is asked there is put anew without it.
_NOT_HELD_AGAINST: Final = frozenset({IN_REFUSED, IN_FLOAT64})

Repeats: TypeAlias = Literal["alone", "history", "never", "unknown"]


class Task(NamedTuple):
    """Cases of one test for one worker.

    Attributes:
        asks_refused: Whether candidates are asked for what the reference rejects.
    """

    test: TestInfo
    cases: tuple[int, ...]
    candidates: tuple[str, ...]
    asks_refused: bool = True


class Part(NamedTuple):
    """Say what came of some cases of a task.

    Attributes:
        before: Where a case failed, what its process had run by then, the task's own message last.
    """

    task: Task
    done: CasesDone
    before: tuple[RunCases, ...] = ()


class Lost(NamedTuple):
    """Say that a case ended its worker; ``candidate`` is ``None`` while the reference ran.

    Attributes:
        repeats: Whether it does so alone, only after other cases, or not again; unknown where the run was ended before
            it was looked into.
        history: Which cases it needs before it, for reading.
        after: Of the reference's: ids of the tests that must run before it; one where that one is enough.
    """

    task: Task
    case: int
    candidate: str | None
    error: WorkerLostError
    repeats: Repeats = "alone"
    history: str = ""
    after: tuple[str, ...] = ()


class Wrong(NamedTuple):
    """Say that a test cannot run: its file, its body or its declaration is wrong."""

    task: Task
    broken: Broken


class Passed(NamedTuple):
    """Say that a worker was ended from outside, and that what it ran passes when run again."""

    task: Task
    error: WorkerLostError


class Cut(NamedTuple):
    """Say what a worker was at when the run was ended, and that nothing else tells of."""

    task: Task
    note: str


class Changed(NamedTuple):
    """Say what a task's cases have changed of their process, which was ended for it."""

    task: Task
    left: tuple[Left, ...]


Event: TypeAlias = Part | Lost | Wrong | Passed | Cut | Changed


class Job(NamedTuple):
    """Messages for one worker, one after the other.

    Attributes:
        messages: The last one's answer is what is asked for.
        is_fresh: Whether the worker must have run nothing before.
    """

    messages: tuple[RunCases, ...]
    is_fresh: bool


class Received(NamedTuple):
    """Say what came of a job.

    Attributes:
        answer: To its last message, or how the worker was lost.
        before: What the worker had run before the job.
    """

    answer: CasesDone | Broken | WorkerLostError
    before: tuple[RunCases, ...] = ()


class Loss(NamedTuple):
    """Say how a worker was lost.

    Attributes:
        task: What it ran.
        left: Its cases that were not answered, ascending.
        error: How it was lost.
        before: What the process had run, the task's own message last.
    """

    task: Task
    left: tuple[int, ...]
    error: WorkerLostError
    before: tuple[RunCases, ...]


Inquiry: TypeAlias = "Generator[Job | Event, Received | None, None]"
_Asking: TypeAlias = "Generator[Job | Event, Received | None, Received]"


class _Books:
    """Count what is booked of one task, so that nothing is counted twice and a window is left alone in time."""

    def __init__(self) -> None:
        self._lost: Counter[tuple[str, int]] = Counter()
        self._ended_by_float64: set[tuple[int, str]] = set()
        self._counted: set[int] = set()
        self.is_explained = False

    def is_left_alone(self, case: int, name: str) -> bool:
        """Whether enough cases of the window have ended their worker on the candidate."""
        return self._lost[name, window_of(case)] >= LOST_AT_MOST

    def asks_float64(self, case: int, names: Sequence[str]) -> bool:
        """Whether float64 is asked of a case: it has not ended its worker, nor those of enough others of the window."""
        window = window_of(case)
        for name in names:
            ended = [other for other, candidate in self._ended_by_float64 if candidate == name]
            if case in ended or sum(window_of(other) == window for other in ended) >= LOST_AT_MOST:
                return False
        return True

    def without(self, task: Task, error: WorkerLostError) -> Task:
        """Return a task without what its worker was lost in; float64 is left out of the case that it ended."""
        if error.spot.step == IN_REFUSED:
            return task._replace(asks_refused=False)
        self._ended_by_float64.update((error.spot.case, name) for name in _names_at(task.candidates, error))
        return task

    def booked(self, event: Event) -> Event:
        """Count an event; attempts at a case are told once, with its first candidate."""
        if isinstance(event, Part):
            case = event.done.done[0]
            counted = event if case not in self._counted else Part(event.task, without_attempts(event.done))
            self._counted.add(case)
            return counted
        if isinstance(event, Lost):
            self.is_explained = True
            if event.candidate is not None and event.repeats == "alone":
                self._lost[event.candidate, window_of(event.case)] += 1
        return event


def inquire(loss: Loss) -> Inquiry:
    """Run again what was in flight, and yield what came of it; a job yielded is answered by ``send``.

    What ends a worker that is asked for what the reference rejects, or while float64 is asked, is no crash: its cases
    are run without that.
    """
    task, suspect, books = loss.task, _suspect(loss), _Books()
    if _is_not_held_against(loss.error):
        yield _noted(task, loss.error)
        task, suspect, books.is_explained = books.without(task, loss.error), None, True
    held: Event | None = None
    if suspect is not None:
        held = yield from _alone(task, *suspect, books)
        books.is_explained = isinstance(held, Lost)
        if ends(held):
            yield held
            return
    for case in loss.left:
        for name in task.candidates:
            if books.is_left_alone(case, name) or ((case, name) == suspect and isinstance(held, Part)):
                continue  # What passed alone is settled at the end: another case may be at fault.
            is_held = (case, name) == suspect and held is not None
            event = held if is_held and held is not None else (yield from _careful(task, case, name, books))
            yield books.booked(event)
            if ends(event):
                return
    if suspect is not None and isinstance(held, Part):
        yield from _last(loss, suspect, held, books)
    elif not books.is_explained:
        yield Passed(task, loss.error)


def settle(task: Task, cases: Sequence[int]) -> Inquiry:
    """Run cases again, alone, that were not aligned in a process that was changed meanwhile."""
    books = _Books()
    for case in cases:
        for name in task.candidates:
            if books.is_left_alone(case, name):
                continue
            event = yield from _alone(task, case, name, books)
            yield books.booked(event)
            if ends(event):
                return


def ends(event: Event | None) -> bool:
    """Whether nothing more is asked of a test: it is wrong, or its reference ends its process."""
    return isinstance(event, Wrong) or (isinstance(event, Lost) and event.candidate is None)


def unsettled(loss: Loss) -> Event:
    """Return what is known of a loss whose inquiry was ended: a crash that was seen once is never silent."""
    suspect = _suspect(loss)
    if _is_not_held_against(loss.error):
        return _noted(loss.task, loss.error)
    if suspect is not None and not loss.error.is_killed:
        return Lost(loss.task, *suspect, loss.error, repeats="unknown")
    test = loss.task.test.id
    return Cut(
        loss.task, f"a worker that ran {test} {loss.error.reason}; the run was ended before that was looked into"
    )


def _is_not_held_against(error: WorkerLostError) -> bool:
    """Whether a worker was lost in what is asked beside a case: a refused input, or float64."""
    return error.spot.step in _NOT_HELD_AGAINST


def _names_at(candidates: Sequence[str], error: WorkerLostError) -> Sequence[str]:
    """Return the candidate that the place in flight names, where it names one."""
    at = error.spot.candidate
    return candidates[at : at + 1] if at >= 0 else ()


def _noted(task: Task, error: WorkerLostError) -> Cut:
    name = next(iter(_names_at(task.candidates, error)), "a candidate")
    case = f"(case {error.spot.case})"
    if error.spot.step == IN_REFUSED:
        asked = f"{name} was asked for what the reference rejects {case}"
        ending = "what the reference accepts was run without it"
    else:
        asked = f"float64 was asked whether {name} is wrong {case}"
        ending = "the case was compared without it, its blame is unknown"
    return Cut(task, f"{task.test.id}: a worker {error.reason} when {asked}; that is no finding, and {ending}")


def _suspect(loss: Loss) -> tuple[int, str | None] | None:
    """Return the case and the candidate that the place in flight names, where that can be."""
    spot, names = loss.error.spot, loss.task.candidates
    if spot.case not in loss.left:
        return None
    return spot.case, (names[spot.candidate] if 0 <= spot.candidate < len(names) else None)


def _alone(
    task: Task, case: int, candidate: str | None, books: _Books
) -> Generator[Job | Event, Received | None, Event]:
    """Run one case alone, on one candidate or on the reference only, and return what is to be booked."""
    received = yield from _ask(task, case, () if candidate is None else (candidate,), books, is_fresh=True)
    if isinstance(received.answer, CasesDone):
        return Part(task, received.answer)
    if isinstance(received.answer, Broken):
        return Wrong(task, received.answer)
    is_reference = received.answer.spot.candidate < 0
    return Lost(task, case, None if is_reference else candidate, received.answer)


def _question(task: Task, case: int, names: Sequence[str], books: _Books) -> RunCases:
    return RunCases(
        test=task.test, cases=[case], candidates=list(names), asks_refused=task.asks_refused,
        asks_float64=books.asks_float64(case, names),
    )  # fmt: skip


def _ask(task: Task, case: int, names: Sequence[str], books: _Books, *, is_fresh: bool) -> _Asking:
    """Run one case; again where the worker was ended from outside, or before it reached the case."""
    message = _question(task, case, names, books)
    received = Received(Broken(message="", traceback=""))
    for _ in range(_TRIES):
        answer = yield Job((message,), is_fresh)
        assert answer is not None  # noqa: S101 - a job is answered
        received = answer
        error = received.answer
        if isinstance(error, WorkerLostError) and _is_not_held_against(error):
            task = books.without(task._replace(candidates=tuple(names)), error)
            yield _noted(task, error)
            message, is_fresh = _question(task, case, names, books), True
            continue
        if not isinstance(error, WorkerLostError) or (error.spot.case == case and not error.is_killed):
            return received
        is_fresh = True
    error = received.answer
    if isinstance(error, WorkerLostError) and error.spot.case != case:
        told = Broken(message=f"its worker {error.reason} before case {case} began", traceback=error.output)
        return received._replace(answer=told)
    return received


def _careful(task: Task, case: int, name: str, books: _Books) -> Generator[Job | Event, Received | None, Event]:
    """Run one case on one candidate, and return what is to be booked."""
    received = yield from _ask(task, case, (name,), books, is_fresh=False)
    if isinstance(received.answer, CasesDone):
        return Part(task, received.answer)
    if isinstance(received.answer, Broken):
        return Wrong(task, received.answer)
    candidate = None if received.answer.spot.candidate < 0 else name
    first = Lost(task, case, candidate, received.answer)
    if not received.before:
        return first
    alone = yield from _alone(task, case, candidate, books)
    if not isinstance(alone, Part):
        return alone
    message = _question(task, case, (name,), books)
    return (yield from _with_history(first, (*received.before, message), alone.done))


def _last(loss: Loss, suspect: tuple[int, str | None], held: Part, books: _Books) -> Inquiry:
    """Settle a suspect that passed alone."""
    if books.is_explained:
        yield books.booked(held)  # Another case was at fault.
        return
    event = yield from _with_history(Lost(loss.task, *suspect, loss.error), loss.before, held.done)
    if isinstance(event, Lost) and event.candidate is None and event.repeats == "history":
        event = yield from _after(event, loss.before)
    yield books.booked(event)
    if isinstance(event, Part):
        yield Passed(loss.task, loss.error)


def _after(told: Lost, messages: tuple[RunCases, ...]) -> Generator[Job | Event, Received | None, Event]:
    """Return a loss of the reference with the test that alone must run before it, else with all that did."""
    *others, own = messages
    for message in reversed(others[-BLAMED_AT_MOST:]):
        received = yield Job((message, own), is_fresh=True)
        assert received is not None  # noqa: S101 - a job is answered
        if isinstance(received.answer, WorkerLostError) and not received.answer.is_killed:
            return told._replace(after=(message.test.id,))
    return told._replace(after=tuple(dict.fromkeys(message.test.id for message in others or messages)))


def _with_history(
    told: Lost, messages: tuple[RunCases, ...], done: CasesDone
) -> Generator[Job | Event, Received | None, Event]:
    """Return a crash that needs what ran before it, what it showed alone when it was ended from outside, or flaky."""
    if told.error.is_killed:
        return Part(told.task, done)
    received = yield Job(messages, is_fresh=True)
    assert received is not None  # noqa: S101 - a job is answered
    error = received.answer if isinstance(received.answer, WorkerLostError) else None
    if error is not None and not error.is_killed and not _is_not_held_against(error):
        return told._replace(error=error, repeats="history", history=history_text(told.case, messages))
    return told._replace(repeats="never")


def history_text(case: int, messages: Sequence[RunCases]) -> str:
    """Return which cases ran before one in its process, for reading."""
    before = [message.cases for message in messages[:-1]] + [[n for n in messages[-1].cases if n != case]]
    count = sum(map(len, before))
    own = sorted({n for message in messages if message.test.id == messages[-1].test.id for n in message.cases} - {case})
    named = ", ".join(map(str, own[:5])) + (", …" if len(own) > 5 else "")  # noqa: PLR2004 - a few are named
    return f"{count} other cases of the same process" + (f" (of this test: {named})" if own else "")


def without_attempts(done: CasesDone) -> CasesDone:
    """Return a part whose attempts were counted already, with another candidate."""
    return msgspec.structs.replace(
        done,
        accepted=0,
        rejected=0,
        ordinary_accepted=0,
        ordinary_rejected=0,
        empty=0,
        undefined=0,
        outside=0,
        profiles={},
    )

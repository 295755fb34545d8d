"""Crash attribution: find the case and candidate that ended a worker, and check whether it happens again.

The cases in flight run again: the suspect alone in a fresh worker, the others one by one. A case that ends its worker
alone is a crash. A case that does so only after the cases that ran before it is reported with them. Anything else is
flaky. An inquiry yields jobs and receives their results, so it needs no process itself. It reports cases in ascending
order, so its outcome does not depend on the number of workers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from ci_autotest.run.events import Cut, LostCase, Passed, TaskPart, Wrong
from ci_autotest.run.messages import Broken, CasesDone, RunCases
from ci_autotest.run.progress_beacon import IN_FLOAT64, IN_REFUSED
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.schedule import window_of
from ci_autotest.values.tally import TestTally

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ci_autotest.run.events import Event, Task

#: Tests that are checked, the latest first, to find the one after which the reference ends its process.
BLAMED_AT_MOST: Final = 8
#: Seconds without a worker before each try of a job, if its worker was killed from outside at the try before. What
#: kills workers, for example a machine short of memory, may go on for seconds.
_PAUSES_S: Final = (0.0, 0.0, 1.0, 2.0, 4.0, 8.0)
#: Cases of the same test that the text of a history names.
_NAMED_AT_MOST: Final = 5
#: Cases of a window that may end their worker on one candidate before the rest of the window is skipped.
LOST_AT_MOST: Final = 2
#: Extra requests beside a case. A worker lost in one of them is not the candidate's crash: the case runs without it.
_EXTRA_REQUESTS: Final = frozenset({IN_REFUSED, IN_FLOAT64})


class Job(NamedTuple):
    """Messages for one worker, in order.

    Attributes:
        messages: Only the answer to the last one matters.
        is_fresh: Whether the worker must have run nothing before.
        pause_s: Seconds without a worker before a fresh one starts.
    """

    messages: tuple[RunCases, ...]
    is_fresh: bool
    pause_s: float = 0.0


class Received(NamedTuple):
    """The result of a job.

    Attributes:
        answer: The answer to its last message, or how the worker was lost.
        before: The messages that the worker had run before the job.
    """

    answer: CasesDone | Broken | WorkerLostError
    before: tuple[RunCases, ...] = ()


class WorkerLoss(NamedTuple):
    """A lost worker.

    Attributes:
        task: The task that it ran.
        left: The task's unanswered cases, ascending.
        error: How it was lost.
        before: The messages that the process had run; the task's own message is the last.
    """

    task: Task
    left: tuple[int, ...]
    error: WorkerLostError
    before: tuple[RunCases, ...]


Inquiry: TypeAlias = "Generator[Job | Event, Received | None, None]"
_EventInquiry: TypeAlias = "Generator[Job | Event, Received | None, Event]"
_JobInquiry: TypeAlias = "Generator[Job | Event, Received | None, Received]"


def inquire(loss: WorkerLoss) -> Inquiry:
    """Run the cases in flight again, and yield events; the caller answers a yielded job with ``send``.

    Losing a worker to a rejected input or to the float64 oracle is no crash: its cases run again without that request.
    """
    task, suspect, state = loss.task, _suspect(loss), InquiryState()
    if is_in_extra_request(loss.error):
        yield _note(task, loss.error)
        task, suspect, state.is_explained = state.without_request(task, loss.error), None, True
    held: Event | None = None
    if suspect is not None:
        held = yield from _alone(task, *suspect, state)
        state.is_explained = isinstance(held, LostCase)
        if ends(held):
            yield held
            return
    for case in loss.left:
        for name in task.candidates:
            # A suspect that passed alone is decided at the end, because another case may be at fault.
            if state.is_skipped(case, name) or ((case, name) == suspect and isinstance(held, TaskPart)):
                continue
            is_held = (case, name) == suspect and held is not None
            event = held if is_held and held is not None else (yield from _one_case(task, case, name, state))
            yield state.counted(event)
            if ends(event):
                return
    if suspect is not None and isinstance(held, TaskPart):
        yield from _suspect_that_passed(loss, suspect, held, state)
    elif not state.is_explained:
        yield Passed(task, loss.error)


def settle(task: Task, cases: Sequence[int]) -> Inquiry:
    """Run cases again, each alone, that were not aligned in a process that had been changed by then."""
    state = InquiryState()
    for case in cases:
        for name in task.candidates:
            if state.is_skipped(case, name):
                continue
            event = yield from _alone(task, case, name, state)
            yield state.counted(event)
            if ends(event):
                return


def ends(event: Event | None) -> bool:
    """Whether a test is over, because it is wrong or because the reference ends its process."""
    return isinstance(event, Wrong) or (isinstance(event, LostCase) and event.candidate is None)


def unsettled(loss: WorkerLoss) -> Event:
    """Return what is known about a loss if the run ends during its inquiry: a crash seen once is always reported."""
    suspect = _suspect(loss)
    if is_in_extra_request(loss.error):
        return _note(loss.task, loss.error)
    if suspect is not None and not loss.error.is_killed:
        return LostCase(loss.task, *suspect, loss.error, repeats="unknown")
    test = loss.task.test.id
    return Cut(
        loss.task, f"a worker that ran {test} {loss.error.reason}; the run ended before ci-autotest could check why"
    )


def _note(task: Task, error: WorkerLostError) -> Cut:
    name = next(iter(names_at(task.candidates, error)), "a candidate")
    case = f"(case {error.spot.case})"
    if error.spot.step == IN_REFUSED:
        request = f"{name} ran an input that the reference rejects {case}"
        result = "the inputs that the reference accepts ran without it"
    else:
        request = f"the float64 oracle checked {name} {case}"
        result = "the case was compared without it, so its blame is unknown"
    return Cut(task, f"{task.test.id}: a worker {error.reason} while {request}; this is no finding, and {result}")


def _suspect(loss: WorkerLoss) -> tuple[int, str | None] | None:
    """Return the case and candidate that the progress beacon names, if the case is still unanswered."""
    spot, names = loss.error.spot, loss.task.candidates
    if spot.case not in loss.left:
        return None
    return spot.case, (names[spot.candidate] if 0 <= spot.candidate < len(names) else None)


def _alone(task: Task, case: int, candidate: str | None, state: InquiryState) -> _EventInquiry:
    """Run one case in a fresh worker, on one candidate or on the reference only, and return its event."""
    received = yield from _ask(task, case, () if candidate is None else (candidate,), state, is_fresh=True)
    if isinstance(received.answer, CasesDone):
        return TaskPart(task, received.answer)
    if isinstance(received.answer, Broken):
        return Wrong(task, received.answer)
    return (yield from _lost_alone(task, case, candidate, received.answer, state))


def _lost_alone(
    task: Task, case: int, candidate: str | None, error: WorkerLostError, state: InquiryState
) -> _EventInquiry:
    """Return how a case ended a process that had run nothing else.

    The reference is to blame only if it does so without the candidate, which may have left what ends the process later,
    such as a timer.
    """
    if error.spot.candidate >= 0 or candidate is None:
        return LostCase(task, case, candidate, error)
    received = yield from _ask(task, case, (), state, is_fresh=True)
    is_reference = isinstance(received.answer, WorkerLostError)
    return LostCase(task, case, None if is_reference else candidate, error)


def _request(task: Task, case: int, names: Sequence[str], state: InquiryState) -> RunCases:
    return RunCases(
        test=task.test, cases=[case], candidates=list(names), asks_refused=task.asks_refused,
        asks_float64=state.asks_float64(case, names),
    )  # fmt: skip


def _ask(task: Task, case: int, names: Sequence[str], state: InquiryState, *, is_fresh: bool) -> _JobInquiry:
    """Run one case; run it again if the worker was killed from outside, or was lost before it reached the case."""
    message = _request(task, case, names, state)
    received = Received(Broken(message="", traceback=""))
    for pause_s in _PAUSES_S:
        answer = yield Job((message,), is_fresh, pause_s if _is_killed(received) and not state.has_waited else 0.0)
        assert answer is not None  # noqa: S101 - a job is answered
        received = answer
        error = received.answer
        if isinstance(error, WorkerLostError) and is_in_extra_request(error):
            task = state.without_request(task._replace(candidates=tuple(names)), error)
            yield _note(task, error)
            message, is_fresh = _request(task, case, names, state), True
            continue
        if not isinstance(error, WorkerLostError) or (error.spot.case == case and not error.is_killed):
            return received
        is_fresh = True  # What the process ran before may be what ended it.
    error = received.answer
    state.has_waited |= _is_killed(received)
    if isinstance(error, WorkerLostError) and error.spot.case != case:
        # The case never began, so that it is not what ends the process.
        broken = Broken(message=f"its worker {error.reason} before case {case} began", traceback=error.output)
        return received._replace(answer=broken)
    return received


def _is_killed(received: Received) -> bool:
    return isinstance(received.answer, WorkerLostError) and received.answer.is_killed


def _one_case(task: Task, case: int, name: str, state: InquiryState) -> _EventInquiry:
    """Run one case on one candidate, and return its event.

    It runs in the current process, which is cheap, and again in a fresh one only if that process is lost.
    """
    received = yield from _ask(task, case, (name,), state, is_fresh=False)
    if isinstance(received.answer, CasesDone):
        return TaskPart(task, received.answer)
    if isinstance(received.answer, Broken):
        return Wrong(task, received.answer)
    if not received.before:
        return (yield from _lost_alone(task, case, name, received.answer, state))
    candidate = None if received.answer.spot.candidate < 0 else name
    first = LostCase(task, case, candidate, received.answer)
    alone = yield from _alone(task, case, candidate, state)
    if not isinstance(alone, TaskPart):
        return alone
    message = _request(task, case, (name,), state)
    return (yield from _with_history(first, (*received.before, message), alone.done))


def _suspect_that_passed(
    loss: WorkerLoss, suspect: tuple[int, str | None], held: TaskPart, state: InquiryState
) -> Inquiry:
    if state.is_explained:
        yield state.counted(held)  # Another case was at fault.
        return
    event = yield from _with_history(LostCase(loss.task, *suspect, loss.error), loss.before, held.done)
    if isinstance(event, LostCase) and event.candidate is None and event.repeats == "history":
        event = yield from _with_tests_before(event, loss.before)
    yield state.counted(event)
    if isinstance(event, TaskPart):
        yield Passed(loss.task, loss.error)


def _with_tests_before(lost: LostCase, messages: tuple[RunCases, ...]) -> _EventInquiry:
    """Return a loss of the reference with the one test that must run before it, or with all tests that ran before."""
    *others, own = messages
    for message in reversed(others[-BLAMED_AT_MOST:]):
        received = yield Job((message, own), is_fresh=True)
        assert received is not None  # noqa: S101 - a job is answered
        if isinstance(received.answer, WorkerLostError) and not received.answer.is_killed:
            return lost._replace(after=(message.test.id,))
    return lost._replace(after=tuple(dict.fromkeys(message.test.id for message in others or messages)))


def _with_history(lost: LostCase, messages: tuple[RunCases, ...], done: CasesDone) -> _EventInquiry:
    """Return a crash that needs the messages before it, else a flaky one.

    A worker that was killed from outside has no crash to explain: what the case showed alone counts.
    """
    if lost.error.is_killed:
        return TaskPart(lost.task, done)
    received = yield Job(messages, is_fresh=True)
    assert received is not None  # noqa: S101 - a job is answered
    error = received.answer if isinstance(received.answer, WorkerLostError) else None
    if error is not None and not error.is_killed and not is_in_extra_request(error):
        history = _history_text(lost.case, messages)
        return lost._replace(error=error, repeats="history", history=history, before=messages)
    return lost._replace(repeats="never")


def _history_text(case: int, messages: Sequence[RunCases]) -> str:
    before = [message.cases for message in messages[:-1]] + [[n for n in messages[-1].cases if n != case]]
    count = sum(map(len, before))
    own = sorted({n for message in messages if message.test.id == messages[-1].test.id for n in message.cases} - {case})
    named = ", ".join(map(str, own[:_NAMED_AT_MOST])) + (", …" if len(own) > _NAMED_AT_MOST else "")
    return f"{count} other cases of the same process" + (f" (of this test: {named})" if own else "")


class InquiryState:
    """Count the events of one task."""

    def __init__(self) -> None:
        self._lost: Counter[tuple[str, int]] = Counter()
        self._ended_by_float64: set[tuple[int, str]] = set()
        self._counted: set[int] = set()
        self.is_explained = False
        #: Whether a job was killed at each of its tries: waiting did not help, and is left out from then on.
        self.has_waited = False

    def is_skipped(self, case: int, name: str) -> bool:
        """Whether enough cases of the window have already ended their worker on the candidate."""
        return self._lost[name, window_of(case)] >= LOST_AT_MOST

    def asks_float64(self, case: int, names: Sequence[str]) -> bool:
        """Whether the float64 oracle runs for a case.

        It does not if it has ended the worker of this case, or of enough other cases of its window.
        """
        window = window_of(case)
        for name in names:
            ended = [other for other, candidate in self._ended_by_float64 if candidate == name]
            if case in ended or sum(window_of(other) == window for other in ended) >= LOST_AT_MOST:
                return False
        return True

    def without_request(self, task: Task, error: WorkerLostError) -> Task:
        """Return the task without the extra request that ended its worker.

        For rejected inputs that holds for the whole task, for the float64 oracle only for the case that it ended.
        """
        if error.spot.step == IN_REFUSED:
            return task._replace(asks_refused=False)
        self._ended_by_float64.update((error.spot.case, name) for name in names_at(task.candidates, error))
        return task

    def counted(self, event: Event) -> Event:
        """Count an event, and return it for the report.

        Only the first candidate's result reports the attempts at a case, because every candidate shares them.
        """
        if isinstance(event, TaskPart):
            case = event.done.done[0]
            counted = event if case not in self._counted else TaskPart(event.task, _without_attempts(event.done))
            self._counted.add(case)
            return counted
        if isinstance(event, LostCase):
            self.is_explained = True
            # A crash that needs other cases before it does not say that the next case will crash.
            if event.candidate is not None and event.repeats == "alone":
                self._lost[event.candidate, window_of(event.case)] += 1
        return event


def is_in_extra_request(error: WorkerLostError) -> bool:
    """Whether a worker was lost in a rejected input or in the float64 oracle, and not in the case itself."""
    return error.spot.step in _EXTRA_REQUESTS


def names_at(candidates: Sequence[str], error: WorkerLostError) -> Sequence[str]:
    """Return the candidate that was running when the worker was lost, or nothing if the reference was."""
    at = error.spot.candidate
    return candidates[at : at + 1] if at >= 0 else ()


def _without_attempts(done: CasesDone) -> CasesDone:
    """Return what cases say of their candidate; what holds for all candidates, another message has said."""
    usage = {name: used for name, used in done.usage.items() if name}
    return msgspec.structs.replace(done, test=TestTally(duration_s=done.test.duration_s), usage=usage)

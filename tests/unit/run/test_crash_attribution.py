"""Which case ended a worker, asked of a worker that is told of: books are those of the case's own doing."""

from __future__ import annotations

import msgspec
import pytest

from ci_autotest.run import messages
from ci_autotest.run.crash_attribution import Inquiry, Job, Received, WorkerLoss, inquire, settle, unsettled
from ci_autotest.run.events import Cut, LostCase, Passed, Task, TaskPart, Wrong
from ci_autotest.run.messages import Broken, CasesDone, RunCases
from ci_autotest.run.progress_beacon import IN_FLOAT64, IN_REFUSED, Spot
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.finding import Location
from tests.fakes.dying_worker import FakeWorker, done, lost_in

TEST = messages.TestInfo(id="a::t", file="a", name="t", n=None, location=Location(file="a", line=1))
NAMES = ("first", "second")


def asked(loss: WorkerLoss, worker: FakeWorker) -> list:
    return answered(inquire(loss), worker)


def answered(inquiry: Inquiry, worker: FakeWorker) -> list:
    events, received = [], None
    try:
        while True:
            step = inquiry.send(received)
            received = None
            if isinstance(step, Job):
                received = worker.answer(step)
            else:
                events.append(step)
    except StopIteration:
        return events


def loss_of(cases: tuple[int, ...], spot: tuple[int, int], names=NAMES, **more) -> WorkerLoss:
    task = Task(TEST, cases, names)
    message = RunCases(test=TEST, cases=list(cases), candidates=list(names))
    return WorkerLoss(task, cases, lost_in(*spot, **more), (message,))


def booked(events: list) -> set[tuple]:
    """Return (case, candidate, what was booked) of every event but ``Passed``."""
    found: list[tuple] = []
    for event in events:
        match event:
            case TaskPart(_, told):
                found += [(told.done[0], name, "aligned") for name in told.pairs]
            case LostCase(_, case, candidate, _, repeats):
                found.append((case, candidate, repeats))
            case Wrong():
                found.append(("wrong",))
            case Passed():
                pass
    assert len(found) == len(set(found)), f"booked twice: {found}"
    return set(found)


def aligned(*pairs: tuple[int, str]) -> set[tuple]:
    return {(*pair, "aligned") for pair in pairs}


ALL = [(case, name) for case in (10, 11, 12) for name in NAMES]


def test_inquire__case_that_always_ends_its_worker__is_booked_alone_and_the_others_run():
    worker = FakeWorker(lambda ran, case, name: (case, name) == (11, "second"))
    events = asked(loss_of((10, 11, 12), (11, 1)), worker)
    assert booked(events) == aligned(*(pair for pair in ALL if pair != (11, "second"))) | {(11, "second", "alone")}


def test_inquire__place_names_an_innocent_candidate__the_guilty_one_is_booked():
    # The first candidate spoils the pipe; it is noticed while the second one is in flight.
    worker = FakeWorker(lambda ran, case, name: (case, name) == (11, "first"))
    events = asked(loss_of((10, 11, 12), (11, 1)), worker)
    assert booked(events) == aligned(*(pair for pair in ALL if pair != (11, "first"))) | {(11, "first", "alone")}


def test_inquire__place_names_a_later_case__the_guilty_one_is_booked():
    worker = FakeWorker(lambda ran, case, name: (case, name) == (10, "first"))
    events = asked(loss_of((10, 11, 12), (12, 1)), worker)
    assert booked(events) == aligned(*(pair for pair in ALL if pair != (10, "first"))) | {(10, "first", "alone")}


def test_inquire__case_that_needs_those_before_it__says_so():
    worker = FakeWorker(lambda ran, case, name: case == 12 and len([pair for pair in ran if pair[1] == name]) >= 2)
    events = asked(loss_of((10, 11, 12), (12, 0), names=("first",)), worker)
    assert booked(events) == aligned((10, "first"), (11, "first")) | {(12, "first", "history")}
    assert events[-1].history == "2 other cases of the same process (of this test: 10, 11)"


def test_inquire__case_that_does_not_repeat__is_flaky():
    events = asked(loss_of((10, 11), (11, 0), names=("first",)), FakeWorker(lambda *_: False))
    assert booked(events) == aligned((10, "first")) | {(11, "first", "never")}


def test_inquire__worker_killed_from_outside__what_it_ran_counts_as_it_runs_again():
    events = asked(loss_of((10, 11), (11, 0), names=("first",), is_killed=True), FakeWorker(lambda *_: False))
    assert booked(events) == aligned((10, "first"), (11, "first"))
    assert [type(event) for event in events] == [TaskPart, TaskPart, Passed]


def test_inquire__worker_killed_again_and_again__waits_longer_before_each_try():
    inquiry = inquire(loss_of((10,), (10, 0), names=("first",), is_killed=True))
    job, pauses = next(inquiry), []
    while isinstance(job, Job) and len(pauses) < 5:
        pauses.append(job.pause_s)
        job = inquiry.send(Received(lost_in(10, 0, is_killed=True)))
    assert pauses == sorted(pauses)
    assert pauses[:2] == [0, 0]  # One kill is no reason to wait.
    assert sum(pauses) >= 7  # What kills a worker at each of its calls goes on for seconds.


def test_inquire__killed_at_every_try__waits_for_one_job_alone():
    inquiry = inquire(loss_of((10, 11, 20, 21), (10, 0), names=("first",), is_killed=True))
    pauses, step = [], next(inquiry)
    while step is not None:
        if isinstance(step, Job):
            pauses.append(step.pause_s)
            step = inquiry.send(Received(lost_in(step.messages[0].cases[0], 0, is_killed=True)))
        else:
            step = next(inquiry, None)
    assert sum(pauses) == sum(pauses[:6]) > 0


@pytest.mark.parametrize("needed", [1, 2])
def test_inquire__reference_ends_its_process_after_other_tests__those_are_named(needed: int):
    def run(message: RunCases) -> CasesDone | WorkerLostError:
        others = {told.test.id for told in worker.told if told.test.id in {"a::u", "a::v"}}
        return lost_in(10, -1) if len(others) >= needed and message.test == TEST else done(message)

    def other(name: str) -> RunCases:
        test = msgspec.structs.replace(TEST, id=f"a::{name}", name=name)
        return RunCases(test=test, cases=[0], candidates=["first"])

    worker = FakeWorker(lambda *_: False)
    worker.run = run
    loss = loss_of((10, 11), (10, -1), names=("first",))
    loss = loss._replace(before=(other("u"), other("v"), loss.before[-1]))
    events = asked(loss, worker)
    assert booked(events) == aligned((10, "first"), (11, "first")) | {(10, None, "history")}
    assert events[-1].after == (("a::v",) if needed == 1 else ("a::u", "a::v"))


def test_settle__cases_that_were_not_aligned_in_a_changed_process__run_alone_on_each_candidate():
    worker = FakeWorker(lambda ran, case, name: bool(ran))
    events = answered(settle(loss_of((10, 11, 12), (10, 0)).task, (10, 12)), worker)
    assert booked(events) == aligned(*(pair for pair in ALL if pair[0] != 11))
    assert worker.started == 4


def test_inquire__lost_before_a_case__everything_is_run():
    events = asked(loss_of((10, 11), (-1, -1), names=("first",)), FakeWorker(lambda *_: False))
    assert booked(events) == aligned((10, "first"), (11, "first"))


def test_inquire__reference_ends_its_process__ends_the_test():
    worker = FakeWorker(lambda ran, case, name: case == 10)
    worker.run = lambda message: lost_in(message.cases[0], -1)
    assert booked(asked(loss_of((10, 11), (10, -1)), worker)) == {(10, None, "alone")}


def test_inquire__reference_ends_its_process_after_the_candidate_of_its_case__the_candidate_is_booked():
    # As a kernel that leaves a timer.
    worker = FakeWorker(lambda *_: False)
    worker.run = lambda message: (
        lost_in(10, -1) if (message.cases, message.candidates) == ([10], ["first"]) else done(message)
    )
    events = asked(loss_of((10, 11), (10, 0)), worker)
    assert booked(events) == aligned((10, "second"), (11, "first"), (11, "second")) | {(10, "first", "alone")}


@pytest.mark.parametrize("spot", [(1, 0), (3, 0), (9, 0)])
def test_inquire__all_cases_end_their_worker__the_first_two_of_a_window_are_tried(spot):
    cases = tuple(range(1, 20))
    events = asked(loss_of(cases, spot, names=("first",)), FakeWorker(lambda *_: True))
    assert booked(events) == {(case, "first", "alone") for case in (1, 2, 10, 11)}


def test_inquire__attempts_at_a_case__are_counted_once():
    worker = FakeWorker(lambda ran, case, name: (case, name) == (11, "first"))
    events = asked(loss_of((10, 11, 12), (11, 0)), worker)
    parts = [event.done for event in events if isinstance(event, TaskPart)]
    recorded = [part.usage[""].exercised["torch.exp"].cases for part in parts if "" in part.usage]
    assert (sum(part.test.accepted for part in parts), sum(recorded)) == (3, 3)


def test_inquire__test_is_wrong__is_told_and_nothing_more_is_asked():
    worker = FakeWorker(lambda *_: False)
    worker.run = lambda message: Broken(message="no", traceback="")
    assert booked(asked(loss_of((10, 11), (10, 0)), worker)) == {("wrong",)}


def test_inquire__one_crash_in_a_batch__costs_two_more_workers():
    worker = FakeWorker(lambda ran, case, name: (case, name) == (11, "first"))
    asked(loss_of((10, 11, 12), (11, 0), names=("first",)), worker)
    assert worker.started == 2


def test_unsettled__crash_of_a_case__is_that_case_seen_once():
    loss = loss_of((10, 11, 12), (11, 1))
    assert unsettled(loss) == LostCase(loss.task, 11, "second", loss.error, "unknown")


@pytest.mark.parametrize(
    "loss", [loss_of((10, 11), (99, 0)), loss_of((10, 11), (10, 0), is_killed=True)], ids=["no case", "killed"]
)
def test_unsettled__no_case_is_at_fault__is_told(loss: WorkerLoss):
    told = unsettled(loss)
    assert isinstance(told, Cut)
    assert "a worker that ran a::t ended by signal 11 (SIGSEGV); the run ended" in told.note


class RefusedWorker(FakeWorker):
    """End when one case is asked for what the reference rejects, and in another case whatever is asked."""

    def run(self, message: RunCases) -> CasesDone | WorkerLostError:
        if message.asks_refused and 2 in message.cases:
            spot = (
                Spot(2, message.candidates.index("second"), IN_REFUSED, 1, 1)
                if "second" in message.candidates
                else None
            )
            if spot is not None:
                return WorkerLostError("ended by signal 6 (SIGABRT)", spot, "")
        return super().run(message)


@pytest.mark.parametrize("first", [(2, 1, IN_REFUSED), (3, 0, -1)], ids=["that was it", "another case was it"])
def test_inquire__worker_ends_when_asked_for_what_the_reference_rejects__is_a_note_and_no_crash(first):
    worker = RefusedWorker(lambda _, case, name: (case, name) == (3, "first"))
    case, candidate, step = first
    loss = loss_of((1, 2, 3), (case, candidate))
    loss = loss._replace(error=WorkerLostError("ended by signal 6 (SIGABRT)", Spot(case, candidate, step, 1, 1), ""))
    events = asked(loss, worker)
    (cut,) = [event for event in events if isinstance(event, Cut)]
    assert "ended by signal 6 (SIGABRT) while second ran an input that the reference rejects (case 2)" in cut.note
    rest = [event for event in events if not isinstance(event, Cut)]
    pairs = [(number, name) for number in (1, 2, 3) for name in NAMES]
    assert booked(rest) == {(3, "first", "alone")} | aligned(*(pair for pair in pairs if pair != (3, "first")))


def test_unsettled__worker_ended_when_asked_for_what_the_reference_rejects__is_a_note():
    error = WorkerLostError("ended by signal 6 (SIGABRT)", Spot(2, 1, IN_REFUSED, 1, 1), "")
    assert isinstance(unsettled(loss_of((1, 2), (2, 1))._replace(error=error)), Cut)


class Judging(FakeWorker):
    """End the process of some cases when float64 is asked."""

    def __init__(self, *cases: int) -> None:
        super().__init__(lambda *_: False)
        self.cases = cases
        self.asked: list[tuple[int, bool]] = []

    def run(self, message: RunCases) -> CasesDone | WorkerLostError:
        self.asked += [(case, message.asks_float64) for case in message.cases]
        ends = [case for case in message.cases if case in self.cases and message.asks_float64]
        return in_float64(ends[0]) if ends else done(message)


def in_float64(case: int) -> WorkerLostError:
    return WorkerLostError("made no progress for 8 s and was ended", Spot(case, 0, IN_FLOAT64, 0, 1), "", limit="time")


def test_inquire__lost_while_float64_is_asked__its_case_runs_without_and_the_others_with_it():
    worker = Judging(10)
    task = Task(TEST, (10, 11), ("first",))
    events = asked(WorkerLoss(task, (10, 11), in_float64(10), ()), worker)
    assert booked([event for event in events if not isinstance(event, Cut)]) == aligned((10, "first"), (11, "first"))
    assert worker.asked == [(10, False), (11, True)]
    assert [event.note for event in events if isinstance(event, Cut)] == [
        "a::t: a worker made no progress for 8 s and was ended while the float64 oracle checked first (case 10); "
        "this is no finding, and the case was compared without it, so its blame is unknown"
    ]


def test_inquire__float64_ends_every_worker_of_a_window__is_asked_no_more_after_two():
    cases = tuple(range(1, 8))
    worker = Judging(*cases)
    events = asked(WorkerLoss(Task(TEST, cases, ("first",)), cases, in_float64(1), ()), worker)
    assert worker.asked == [(1, False), (2, True), *((case, False) for case in cases[1:])]
    assert sum(isinstance(event, TaskPart) for event in events) == len(cases)


def test_unsettled__lost_while_float64_was_asked__is_no_finding():
    event = unsettled(WorkerLoss(Task(TEST, (10,), ("first",)), (10,), in_float64(10), ()))
    assert isinstance(event, Cut)

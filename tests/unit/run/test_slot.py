"""A slot of the pool, with a worker in its place that answers what the test gives it: a changed process is replaced."""

from __future__ import annotations

import time

import msgspec

from ci_autotest.run import messages
from ci_autotest.run.events import Changed, Passed, Task, TaskPart
from ci_autotest.run.messages import CasesDone, Change, Hello, Left, RunCases
from ci_autotest.run.progress_beacon import Spot
from ci_autotest.run.recurring_changes import ENDED_AT_MOST, RecurringChanges
from ci_autotest.run.slot import Slot
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values import tally
from ci_autotest.values.finding import Location
from tests.fakes.executor import FakeExecutor

TEST = messages.TestInfo(id="a::t", file="a", name="t", n=None, location=Location(file="a", line=1))
HELLO = Hello(root="", folders=[], seed=0, strictness="tolerance", reference_device="cpu", candidates=[], tolerances=[])
RECURRING = Left(candidate="k", operators=["torch.exp"], changes=[Change(what="environment: A", is_recurring=True)])
LASTING = Left(
    candidate="k", operators=["torch.exp"], changes=[Change(what="default dtype: changed", is_recurring=False)]
)
DONE = CasesDone(done=[], test=tally.TestTally(), last=True)


def done(*cases: int, last: bool = True, left: Left | None = None, again: tuple[int, ...] = ()) -> CasesDone:
    return msgspec.structs.replace(
        DONE,
        done=list(cases),
        pairs={"k": tally.PairTally(aligned=len(cases))},
        last=last,
        left=[left] if left else [],
        again=list(again),
    )


def lost(case: int) -> WorkerLostError:
    return WorkerLostError("ended by signal 11 (SIGSEGV)", Spot(case, 0, -1, 0, 1), "")


def killed(case: int) -> WorkerLostError:
    return WorkerLostError("ended by signal 9 (SIGKILL)", Spot(case, 0, -1, 0, 1), "", is_killed=True)


def slot_of(changes: RecurringChanges | None = None) -> tuple[Slot, FakeExecutor]:
    executor = FakeExecutor()
    return Slot(executor, 0, HELLO, changes or RecurringChanges()), executor


def heard(slot: Slot, *answers) -> list:
    """Return the events of answers of whichever worker the slot has; one that is new is ready first."""
    events = []
    for answer in answers:
        while slot.ready is None:
            events += slot.hear()
        slot.worker.answers.append(answer)
        events += slot.hear()
    return events


def test_hear__lasting_change_in_an_early_part_of_a_history__is_told_and_replaces_the_worker():
    slot, executor = slot_of()
    slot.begin(Task(TEST, (0, 1, 2, 3), ("k",)))
    heard(slot, done(0, 1, last=False), lost(2))
    heard(slot, done(2))  # Alone the suspect passes,
    heard(slot, done(3))  # and so does the other case: what ran before the suspect runs again with it.
    assert slot.worker.sent[-1] == RunCases(test=TEST, cases=[0, 1, 2, 3], candidates=["k"])
    events = heard(slot, done(0, 1, last=False, left=LASTING), done(2, 3))
    assert Changed(Task(TEST, (0, 1, 2, 3), ("k",)), (LASTING,)) in events
    before = len(executor.started)
    slot.begin(Task(TEST, (4,), ("k",)))
    assert len(executor.started) == before + 1


def test_hear__lasting_change_after_a_recurring_one__replaces_the_worker():
    changes = RecurringChanges()
    for _ in range(ENDED_AT_MOST):
        changes.is_spoiled([RECURRING])
    slot, executor = slot_of(changes)
    slot.begin(Task(TEST, (0, 1, 2), ("k",)))
    heard(slot, done(0, left=RECURRING))
    assert slot.worker.sent[-1] == RunCases(test=TEST, cases=[1, 2], candidates=["k"])
    heard(slot, done(1, 2, left=LASTING))
    slot.begin(Task(TEST, (3,), ("k",)))
    assert len(executor.started) == 2


def test_hear__lasting_change_after_a_recurring_one__the_rest_runs_in_another_process():
    changes = RecurringChanges()
    for _ in range(ENDED_AT_MOST):
        changes.is_spoiled([RECURRING])
    slot, executor = slot_of(changes)
    slot.begin(Task(TEST, (0, 1, 2), ("k",)))
    heard(slot, done(0, left=RECURRING), done(1, last=False, left=LASTING))
    assert (len(executor.started), slot.worker.sent[-1].cases) == (2, [2])


def test_check__worker_is_lost_there_again_and_again__is_not_asked_where_it_was():
    slot, executor = slot_of()
    slot.begin(Task(TEST, (0,), ("k",)))
    for _ in range(3):
        slot.worker.faults.append(killed(0))
        assert list(slot.check()) == []
    assert (len(executor.started), slot.is_listening) == (3, False)


def test_waiting__no_progress_for_a_while__names_the_case_and_how_long(monkeypatch):
    slot, _ = slot_of()
    slot.begin(Task(TEST, (0,), ("k",)))
    heard(slot, done(0, last=False))
    assert list(slot.waiting()) == []
    later = time.monotonic() + 12
    monkeypatch.setattr("ci_autotest.run.slot.time.monotonic", lambda: later)
    ((task, position, seconds),) = slot.waiting()
    assert (task.test, round(seconds)) == (TEST, 12)
    assert position == "case 0 of a::t on k"


def test_check__worker_killed_three_times__the_next_one_starts_after_a_pause(monkeypatch):
    slot, executor = slot_of()
    slot.begin(Task(TEST, (0,), ("k",)))
    heard(slot, killed(0), killed(0), killed(0))
    started = len(executor.started)
    assert (slot.is_busy, slot.is_listening) == (True, False)
    assert list(slot.check()) == []
    assert len(executor.started) == started

    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now + 60)
    assert list(slot.check()) == []
    assert (len(executor.started), slot.is_listening) == (started + 1, True)
    assert [type(event) for event in heard(slot, done(0))] == [TaskPart, Passed]


def test_unavailable__worker_waits_for_the_lock_of_a_killed_build__says_what_to_delete():
    slot, _ = slot_of()
    stack = 'Thread 0x1 (most recent call first):\n  File "/x/torch/utils/file_baton.py", line 50 in wait\n'
    hung = WorkerLostError("made no progress for 180 s and was ended", None, stack, limit="time")
    said = str(slot.unavailable(hung))
    assert "file_baton.py" in said
    assert said.endswith("delete it below TORCH_EXTENSIONS_DIR (~/.cache/torch_extensions where that is not set).")

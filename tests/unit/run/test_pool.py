"""The pool, with workers in its slots that answer what the test gives them."""

from __future__ import annotations

from ci_autotest.run import crash_attribution, messages
from ci_autotest.run.events import Passed, Task, TaskPart
from ci_autotest.run.messages import CasesDone, Hello
from ci_autotest.run.pool import Pool
from ci_autotest.run.progress_beacon import Spot
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values import tally
from ci_autotest.values.finding import Location
from tests.fakes.executor import READY, FakeExecutor

TEST = messages.TestInfo(id="a::t", file="a", name="t", n=None, location=Location(file="a", line=1))
HELLO = Hello(root="", folders=[], seed=0, strictness="tolerance", reference_device="cpu", candidates=[], tolerances=[])
KILLED = WorkerLostError("ended by signal 9 (SIGKILL)", Spot(0, 0, -1, 0, 1), "", is_killed=True)
DONE = CasesDone(done=[0], test=tally.TestTally(accepted=1), pairs={"k": tally.PairTally(aligned=1)}, last=True)


def test_run__worker_killed_four_times__waits_without_one_and_the_case_counts(monkeypatch):
    monkeypatch.setattr(crash_attribution, "_PAUSES_S", (0.0, 0.0, 0.1, 0.2, 0.2, 0.2))
    executor = FakeExecutor(*[(READY, KILLED)] * 4, (READY, DONE))
    pool = Pool(executor, HELLO)

    events = list(pool.run([Task(TEST, (0,), ("k",))], lambda task: task))
    pool.close()

    assert [type(event) for event in events] == [TaskPart, Passed]
    assert len(executor.started) == 5
    assert [worker.fd for worker in executor.started] == [-1] * 5

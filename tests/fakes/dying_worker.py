"""A worker to which jobs are given, and which some of their cases end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.run.crash_attribution import Job, Received
from ci_autotest.run.messages import CasesDone, RunCases
from ci_autotest.run.progress_beacon import Spot
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.coverage_values import Exercised
from ci_autotest.values.tally import PairTally, TestTally, UsageTally

if TYPE_CHECKING:
    from collections.abc import Callable


def done(message: RunCases) -> CasesDone:
    count = len(message.cases)
    return CasesDone(
        done=message.cases, test=TestTally(accepted=count, ordinary_accepted=count, profiles={"ordinary": count}),
        pairs=dict.fromkeys(message.candidates, PairTally(aligned=count)), last=True,
        usage={"": UsageTally(exercised={"torch.exp": Exercised(cases=count)})},
    )  # fmt: skip


def lost_in(case: int, candidate: int = 0, **more) -> WorkerLostError:
    return WorkerLostError("ended by signal 11 (SIGSEGV)", Spot(case, candidate, -1, 0, 1), "", **more)


class FakeWorker:
    """Answer jobs as a worker would in which some (case, candidate) end the process.

    Args:
        ends: Says, of what the process has run and what it runs now, whether that ends it.
    """

    def __init__(self, ends: Callable[[list[tuple[int, str]], int, str], bool]) -> None:
        self.ends = ends
        self.ran: list[tuple[int, str]] = []
        self.told: list[RunCases] = []
        self.started = 1

    def answer(self, job: Job) -> Received:
        if job.is_fresh and self.told:
            self.ran, self.told = [], []
            self.started += 1
        before = tuple(self.told)
        answer: CasesDone | WorkerLostError | None = None
        for message in job.messages:
            self.told.append(message)
            answer = self.run(message)
            if isinstance(answer, WorkerLostError):
                self.ran, self.told = [], []
                self.started += 1
                break
        assert answer is not None
        return Received(answer, before)

    def run(self, message: RunCases) -> CasesDone | WorkerLostError:
        for case in message.cases:
            for name in message.candidates or [""]:
                if self.ends(self.ran, case, name):
                    return lost_in(case, message.candidates.index(name) if name else -1)
                self.ran.append((case, name))
        return done(message)

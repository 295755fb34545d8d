"""The search for the fewest cases before a wrong one: by counts of processes and cases, and never by a clock."""

from __future__ import annotations

import pytest

from ci_autotest.findings import prefix_search
from ci_autotest.findings.prefix_search import PrefixSearch
from ci_autotest.findings.suspect import Suspect
from ci_autotest.run import messages
from ci_autotest.run.messages import CaseFailure, Replay, Replayed, RunCases
from ci_autotest.run.progress_beacon import Spot
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.finding import Location
from ci_autotest.values.schedule import CandidateCall, Passes, RowName
from ci_autotest.values.verdict import Verdict

TEST = messages.TestInfo(id="test.py::exp", name="exp", file="test.py", n=64, location=Location(file="test.py", line=1))
WRONG = Verdict(outcome="misaligned", operator="torch.exp", kind="value", blame="candidate")


class Worker:
    """A fresh process for each request: a case is wrong after the cases that it needs."""

    def __init__(self, needed: set[int], wrong: int = 30) -> None:
        self.needed, self.wrong, self.asked = needed, wrong, []

    def close(self) -> None:
        pass

    def ask(self, message: Replay) -> Replayed:
        cases = [case for run in message.runs for case in run.cases]
        self.asked.append(cases)
        failure = CaseFailure(case=self.wrong, attempt=0, candidate="k", profile="ordinary", verdict=WRONG)
        calls = [CandidateCall(0, 0, case, 0, RowName.CASE, Passes.BOTH) for case in cases]
        return Replayed(failures=[(TEST.id, failure)] if self.needed <= {*cases} else [], calls=calls)


def suspect(cases: int = 64) -> Suspect:
    before = tuple(RunCases(test=TEST, cases=list(range(at, at + 8)), candidates=["k"]) for at in range(0, cases, 8))
    return Suspect(TEST, "k", 30, 0, WRONG, "ordinary", 1, 64, (TEST.id,), before=before)


def test_fewest__thousands_of_cases__are_searched_like_a_few():
    suspected = suspect(4096)
    last = suspected._replace(case=4000, verdict=WRONG)
    worker = Worker({17, 2048, 4000}, last.case)
    assert [run.case for run in PrefixSearch(last, worker).fewest()] == [17, 2048, 4000]


@pytest.mark.parametrize("needed", [{3}, {3, 11}, {0, 29, 31}])
def test_fewest__cases_that_are_needed__are_found(needed: set[int]):
    worker = Worker({*needed, 30})
    search = PrefixSearch(suspect(), worker)
    assert [run.case for run in search.fewest()] == sorted({*needed, 30})
    assert [call.case for call in search.calls] == sorted({*needed, 30})
    assert len(worker.asked) <= prefix_search._TRIALS_AT_MOST + 2 * prefix_search._REPEATS


def test_fewest__many_cases__ends_by_their_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefix_search, "_ROUNDS_AT_MOST", 3)
    worker = Worker({3, 11, 30})
    found = {run.case for run in PrefixSearch(suspect(), worker).fewest()}
    assert {3, 11, 30} < found
    # The last trial and the repeats that confirm what was found may go beyond.
    assert sum(map(len, worker.asked)) <= 100 + 32 * (1 + 2 * prefix_search._REPEATS)


@pytest.mark.parametrize(("lost_at", "is_killed", "expected"), [(30, False, [3, 30]), (31, False, []), (30, True, [])])
def test_fewest__case_that_ends_its_worker__is_searched_by_the_loss_of_its_case(
    lost_at: int, is_killed: bool, expected: list[int]
):
    class Losing(Worker):
        def ask(self, message: Replay) -> Replayed | WorkerLostError:
            answer = super().ask(message)
            if not answer.failures:
                return answer
            spot = Spot(lost_at, 0, -1, 0, 1)
            return WorkerLostError("ended", spot, "", is_killed=is_killed, calls=answer.calls)

    lost = suspect()._replace(verdict=None, lost=WorkerLostError("ended", Spot(30, 0, -1, 0, 1), ""))
    search = PrefixSearch(lost, Losing({3, 30}))
    assert [run.case for run in search.fewest()] == expected
    assert [call.case for call in search.calls] == expected

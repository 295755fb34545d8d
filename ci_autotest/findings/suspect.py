"""A suspect: the first failing case of an identity, with what hit it, before anything is looked at again."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.run.messages import RunCases, TestInfo
    from ci_autotest.run.worker_loss import WorkerLostError
    from ci_autotest.values.result import Hit
    from ci_autotest.values.verdict import Verdict


class Suspect(NamedTuple):
    """The first failing case of an identity, and what hit it.

    Attributes:
        test: Of the first failing case.
        case: Its number.
        attempt: Its accepted attempt.
        verdict: What it showed.
        profile: What its attempt was about.
        cases: Cases that hit it.
        of_cases: Cases of the tests that hit it, those that were run.
        tests: Their ids.
        lost: How the worker was lost, for crashes and timeouts.
        others: ``(case, attempt, test)`` of a few more that hit it: of its test, then the first of each other test.
            Of one that ended its worker those of its test that did too.
        hits: Cases that hit it, by test.
        history: Which cases must run before a lost one for it to end its worker again, for reading.
        repeats: Whether a lost one ends its worker again: ``inquiry.Repeats``.
        before: What its process had run, its own message last.
        histories: The same of the others, by test and case.
    """

    test: TestInfo
    candidate: str
    case: int
    attempt: int
    verdict: Verdict | None
    profile: str
    cases: int
    of_cases: int
    tests: tuple[str, ...]
    lost: WorkerLostError | None = None
    others: tuple[tuple[int, int, TestInfo], ...] = ()
    hits: tuple[Hit, ...] = ()
    history: str = ""
    repeats: str = "alone"
    before: tuple[RunCases, ...] = ()
    histories: Mapping[tuple[str, int], tuple[RunCases, ...]] = MappingProxyType({})

    def of_other(self, other: tuple[int, int, TestInfo]) -> Suspect:
        """Return the same suspicion, of another case that hit it."""
        case, attempt, test = other
        return self._replace(case=case, attempt=attempt, test=test, before=self.histories.get((test.id, case), ()))

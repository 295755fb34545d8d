"""A suspect: the first failing case of an identity, and the other cases that hit it, before anything runs again."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.run.messages import RunCases, TestInfo
    from ci_autotest.run.worker_loss import WorkerLostError
    from ci_autotest.values.finding import Hit
    from ci_autotest.values.verdict import Verdict


class Suspect(NamedTuple):
    """The first failing case of an identity, and the other cases that hit it.

    Attributes:
        test: Test of the first failing case.
        case: Number of the case.
        attempt: Number of its accepted attempt; negative if its worker was lost before the attempt was known.
        verdict: Its verdict; ``None`` if its worker was lost.
        profile: Profile of the attempt.
        cases: Number of cases that hit the identity.
        of_cases: Number of cases that ran in the tests that hit it.
        tests: Ids of these tests.
        lost: For crashes and timeouts, how the worker was lost.
        others: ``(case, attempt, test)`` of a few other cases that hit it: from its own test, then the first of each
            other test. For a lost worker, cases of its own test that ended theirs.
        hits: Cases that hit it, by test.
        history: The cases that must run before a lost case for it to end its worker again, as text for the report.
        repeats: Whether a lost case ends its worker again: ``events.Repeats``.
        before: The messages that its process had run; its own message is the last.
        histories: The same for the other cases, by test and case.
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

    @property
    def identity(self) -> tuple[str, str] | None:
        """Operator and kind of its difference; ``None`` if its worker was lost."""
        return None if self.verdict is None else (self.verdict.operator, self.verdict.kind or "")

    def of_other(self, other: tuple[int, int, TestInfo]) -> Suspect:
        """Return the suspect with another of its cases as the first one."""
        case, attempt, test = other
        return self._replace(case=case, attempt=attempt, test=test, before=self.histories.get((test.id, case), ()))

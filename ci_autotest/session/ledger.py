"""The ledger: what has come in of a run, by (test, candidate). Filled by events, read when results are made."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.result import TOLERATED_BLAMES, Hit

if TYPE_CHECKING:
    from ci_autotest.result import Verdict
    from ci_autotest.run.messages import CaseFailure, CasesDone, TestInfo
    from ci_autotest.run.pool import Lost
    from ci_autotest.run.process import WorkerLostError


#: Cases of one test that are listed by number.
_TOLD: Final = 100


@dataclass(slots=True)
class TestEntry:
    """Hold what is counted once per test, for all candidates."""

    info: TestInfo
    cases: tuple[int, ...]
    order: int
    accepted: int = 0
    rejected: int = 0
    ordinary_accepted: int = 0
    ordinary_rejected: int = 0
    empty: int = 0
    undefined: int = 0
    refusal: str = ""
    duration_s: float = 0.0
    profiles: Counter[str] = field(default_factory=Counter)
    broken: str = ""
    broken_traceback: str = ""


@dataclass(slots=True)
class PairEntry:
    """Hold what is counted for one (test, candidate)."""

    aligned: int = 0
    unsupported: int = 0
    note: str = ""
    failures: list[CaseFailure] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Cases run so far; what the reference rejects and the candidate accepts is no case."""
        misaligned = [item for item in self.failures if item.verdict.outcome == "misaligned"]
        return (
            self.aligned
            + self.unsupported
            + sum(not item.verdict.is_of_a_rejected_attempt for item in misaligned)
            + len(self.lost)
        )


class Identity(NamedTuple):
    """What makes findings one."""

    candidate: str
    operator: str
    kind: str


class Suspect(NamedTuple):
    """The first failing case of an identity, and what hit it.

    Attributes:
        test: Of the first failing case.
        case: Its number.
        attempt: Its accepted attempt.
        verdict: What it showed.
        profile: What its attempt was about.
        cases: Cases that hit it.
        of_cases: Cases of the tests that hit it.
        tests: Their ids.
        lost: How the worker was lost, for crashes and timeouts.
        others: ``(case, attempt, test)`` of a few more that hit it: of its test, then the first of each other test.
        hits: Cases that hit it, by test.
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


def _is_tolerated(failure: CaseFailure) -> bool:
    return failure.verdict.blame in TOLERATED_BLAMES


class Ledger:
    """Hold a run's counts.

    Args:
        tests: In order, with their cases of this shard.
        candidates: Names of those that run.
    """

    def __init__(self, tests: list[tuple[TestInfo, tuple[int, ...]]], candidates: tuple[str, ...]) -> None:
        """Begin with nothing run."""
        self.candidates = candidates
        self.tests = {info.id: TestEntry(info, cases, order) for order, (info, cases) in enumerate(tests)}
        self.pairs = {(info.id, name): PairEntry() for info, _ in tests for name in candidates}
        self.seen: dict[str, Counter[str]] = {name: Counter() for name in candidates}

    def part(self, test: str, done: CasesDone) -> None:
        """Count a part of a task."""
        entry = self.tests[test]
        entry.accepted += done.accepted
        entry.rejected += done.rejected
        entry.ordinary_accepted += done.ordinary_accepted
        entry.ordinary_rejected += done.ordinary_rejected
        entry.empty += done.empty
        entry.undefined += done.undefined
        entry.refusal = done.refusal or entry.refusal
        entry.duration_s += done.duration_s
        entry.profiles.update(done.profiles)
        for name in self.candidates:  # names that a worker made up are not counted
            pair = self.pairs[test, name]
            pair.aligned += done.aligned.get(name, 0)
            if name in done.unsupported:
                pair.unsupported += done.unsupported[name]
                pair.note = done.notes.get(name, "")
            pair.failures += [failure for failure in done.failures if failure.candidate == name]
            self.seen[name].update(done.seen.get(name, {}))

    def lost(self, lost: Lost) -> None:
        """Count a case that ended its worker; the reference's own end breaks the test."""
        if lost.candidate is None:
            entry = self.tests[lost.task.test.id]
            entry.broken = f"the reference ended its process in case {lost.case}: it {lost.error.reason}"
            entry.broken_traceback = lost.error.output
        else:
            self.pairs[lost.task.test.id, lost.candidate].lost.append(lost)

    def broken(self, test: str, message: str, traceback: str) -> None:
        """Note that a test is wrong."""
        self.tests[test].broken = message
        self.tests[test].broken_traceback = traceback

    @property
    def done(self) -> int:
        """Cases run so far, on all candidates."""
        return sum(pair.done for pair in self.pairs.values())

    @property
    def is_complete(self) -> bool:
        """Whether every case that was planned was run, or left out for what its test did."""
        return all(
            self.pairs[test, name].done + entry.empty >= len(entry.cases) or self.pairs[test, name].lost or entry.broken
            for test, entry in self.tests.items()
            for name in self.candidates
        )

    @property
    def suspected(self) -> int:
        """Identities seen so far."""
        return len(self._grouped()) + len(self._lost())

    def suspects(self) -> list[Suspect]:
        """Return the first failing case of each identity, in the order of tests and cases: the same for any workers."""
        found = []
        for identity, failures in sorted(self._grouped().items()):
            # What is not the candidate's fault never stands for what is: the first case that counts is looked at.
            failures.sort(key=lambda item: (_is_tolerated(item[1]), self.tests[item[0]].order, item[1].case))
            test, first = failures[0]
            ids = tuple(dict.fromkeys(test for test, _ in failures))
            found.append(
                Suspect(
                    self.tests[test].info, identity.candidate, first.case, first.attempt, first.verdict, first.profile,
                    len(failures), sum(len(self.tests[name].cases) for name in ids), ids,
                    others=self._others(failures), hits=self._hits(failures),
                )
            )  # fmt: skip
        return found + self._lost()

    def _others(self, failures: list[tuple[str, CaseFailure]]) -> tuple[tuple[int, int, TestInfo], ...]:
        first = failures[0][0]
        firsts: dict[str, CaseFailure] = {}
        for name, item in failures:
            firsts.setdefault(name, item)
        chosen = [*failures[1:3], *((name, item) for name, item in firsts.items() if name != first)]
        unique = {(name, item.case): item for name, item in chosen}
        return tuple((item.case, item.attempt, self.tests[name].info) for (name, _), item in unique.items())

    def _hits(self, failures: list[tuple[str, CaseFailure]]) -> tuple[Hit, ...]:
        cases: dict[str, list[int]] = {}
        for name, item in failures:
            cases.setdefault(name, []).append(item.case)
        return tuple(
            Hit(test=name, cases=tuple(sorted(found)[:_TOLD]), count=len(found), of_cases=len(self.tests[name].cases))
            for name, found in cases.items()
        )

    def _grouped(self) -> dict[Identity, list[tuple[str, CaseFailure]]]:
        grouped: dict[Identity, list[tuple[str, CaseFailure]]] = {}
        for (test, name), pair in self.pairs.items():
            for failure in pair.failures:
                if failure.verdict.outcome == "misaligned":
                    identity = Identity(name, failure.verdict.operator, failure.verdict.kind or "")
                    grouped.setdefault(identity, []).append((test, failure))
        return grouped

    def _lost(self) -> list[Suspect]:
        found = []
        for (test, name), pair in self.pairs.items():
            for timed_out in (False, True):
                lost = sorted(
                    (item for item in pair.lost if item.error.timed_out == timed_out),
                    key=lambda i: i.case,
                )
                if lost:
                    entry = self.tests[test]
                    found.append(
                        Suspect(
                            entry.info, name, lost[0].case, lost[0].error.spot.attempt, None, "ordinary",
                            len(lost), len(entry.cases), (test,), lost[0].error,
                            hits=(Hit(test=test, cases=tuple(item.case for item in lost), count=len(lost),
                                      of_cases=len(entry.cases)),),
                        )
                    )  # fmt: skip
        return found

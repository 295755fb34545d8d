"""What is counted of a test, and of a test on a candidate: its size does not grow with its cases."""

from __future__ import annotations

from bisect import bisect, insort
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.run.messages import Cost
from ci_autotest.values.finding import HITS_LISTED, TOLERATED_BLAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.run.events import Lost
    from ci_autotest.run.messages import CaseFailure, TestInfo
    from ci_autotest.values.result import UnsupportedCases

#: How many times slower than the reference a candidate is told of, and by how many seconds in all, at least.
_TIMES_SLOWER: Final = 100
_SLOWER_S: Final = 0.05
#: Bytes that a candidate keeps of each case, and in all, before that is told.
_KEPT_BY_CASE: Final = 1 << 19
_KEPT_IN_ALL: Final = 1 << 23
#: Failing cases of a test that are kept whole, of each kind of failure: the first, and two to look at if it is flaky.
KEPT: Final = 3


@dataclass(slots=True)
class TestEntry:
    """Hold what is counted once per test, for all candidates."""

    info: TestInfo
    cases: Sequence[int]
    order: int
    accepted: int = 0
    rejected: int = 0
    ordinary_accepted: int = 0
    ordinary_rejected: int = 0
    empty: int = 0
    undefined: int = 0
    outside: int = 0
    refusal: str = ""
    duration_s: float = 0.0
    profiles: Counter[str] = field(default_factory=Counter)
    broken: str = ""
    broken_traceback: str = ""


class Failing(NamedTuple):
    """What makes failing cases of one test on one candidate alike.

    Attributes:
        outcome: Of the case.
        operator: Canonical.
        kind: Of the misalignment.
        is_tolerated: Whether the candidate is not to blame.
        is_no_case: Whether it is reported beside its case: the reference rejected the attempt, or a probe showed it.
    """

    outcome: str
    operator: str
    kind: str
    is_tolerated: bool
    is_no_case: bool


@dataclass(slots=True)
class Hits:
    """Count the cases that fail alike; keep the first few whole, and the numbers of some more."""

    count: int = 0
    first: list[CaseFailure] = field(default_factory=list)
    cases: list[int] = field(default_factory=list)

    def add(self, failure: CaseFailure) -> None:
        """Count one."""
        self.count += 1
        if bisect(self.cases, failure.case) >= HITS_LISTED:
            return
        insort(self.cases, failure.case)
        del self.cases[HITS_LISTED:]
        insort(self.first, failure, key=lambda item: item.case)
        del self.first[KEPT:]


@dataclass(slots=True)
class PairEntry:
    """Hold what is counted for one (test, candidate): its size does not grow with its cases."""

    aligned: int = 0
    unsupported: tuple[UnsupportedCases, ...] = ()
    cost: Cost = field(default_factory=Cost)
    failures: dict[Failing, Hits] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)

    def fail(self, failure: CaseFailure) -> None:
        """Count a case that was not aligned."""
        verdict = failure.verdict
        is_tolerated = verdict.blame in TOLERATED_BLAMES or (verdict.kind == "leniency" and not verdict.is_demanded)
        alike = Failing(verdict.outcome, verdict.operator, verdict.kind or "", is_tolerated, verdict.is_no_case)
        self.failures.setdefault(alike, Hits()).add(failure)

    @property
    def misaligned(self) -> dict[Failing, Hits]:
        """What counts as a case."""
        return {
            alike: hits
            for alike, hits in self.failures.items()
            if alike.outcome == "misaligned" and not alike.is_no_case
        }

    @property
    def done(self) -> int:
        """Cases run so far."""
        misaligned = sum(hits.count for hits in self.misaligned.values())
        return self.aligned + self.not_compared + misaligned + len(self.lost)

    @property
    def not_compared(self) -> int:
        """Cases that are unsupported."""
        return sum(item.cases for item in self.unsupported)

    @property
    def is_left_alone(self) -> bool:
        """Whether cases were left out for those that ended their worker; not where the run was ended meanwhile."""
        return any(item.repeats != "unknown" for item in self.lost)


def uncompared(cost: Cost) -> list[str]:
    """Return sentences on what nothing compares, where it is off by orders of magnitude."""
    found = []
    if cost.candidate_s > _TIMES_SLOWER * cost.reference_s and cost.candidate_s > _SLOWER_S:
        found.append(
            f"{cost.cases} cases take {cost.candidate_s:.2g} s, on the reference {cost.reference_s:.2g} s: "
            f"{cost.candidate_s / max(cost.reference_s, 1e-9):,.0f} times as long; no finding"
        )
    if cost.kept_bytes > max(_KEPT_IN_ALL, _KEPT_BY_CASE * cost.watched):
        found.append(
            f"{cost.kept_bytes / 2**20:,.0f} MiB were allocated in {cost.watched} cases and their probes and are still "
            "held; no finding"
        )
    if cost.drawn:
        told = "leaves the generator alone" if cost.drawn == "nothing" else "takes another number of draws from it"
        found.append(f"the reference draws from the generator, and the candidate {told}; no finding")
    return found


def left_notes(left: Mapping[tuple[str, str], Mapping[tuple[str, str], None]]) -> list[str]:
    """Return sentences on what tests left changed of their process, those of one operator together.

    Args:
        left: By (test, candidate): operators and what was changed.
    """
    tests: dict[tuple[str, str], list[str]] = {}
    changes: dict[tuple[str, str], set[str]] = {}
    for (test, name), found in sorted(left.items()):
        for operators, what in found:
            tests.setdefault((name, operators), []).append(test)
            changes.setdefault((name, operators), set()).add(what)
    return [
        f"{_some(names)} on {name}: {operators} left the process changed "
        f"({'; '.join(sorted(changes[name, operators]))}); what was not aligned there was run again alone, in another "
        "process, and that counts"
        for (name, operators), names in sorted(tests.items())
    ]


def _some(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = len(unique) - 1
    return f"{unique[0]}{f' and {more} other test' + 's' * (more > 1) if more else ''}"

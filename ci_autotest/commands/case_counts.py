"""Counts per test and per (test, candidate), in memory that does not grow with the number of cases."""

from __future__ import annotations

from bisect import bisect, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ci_autotest.values.finding import HITS_LISTED, TOLERATED_BLAMES
from ci_autotest.values.probes import NO_PROBE, ProbeCounts
from ci_autotest.values.schedule import window_of
from ci_autotest.values.tally import PairTally, TestTally

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.run.events import LostCase
    from ci_autotest.run.messages import CaseFailure, TestInfo
    from ci_autotest.values.error_pattern import ErrorPattern
    from ci_autotest.values.tally import Cost
    from ci_autotest.values.verdict import Verdict

#: A note reports a candidate that is at least this many times slower than the reference, by this many seconds in total.
_TIMES_SLOWER: Final = 100
_SLOWER_S: Final = 0.05
#: A note reports a candidate that keeps more than this many bytes of memory per case, and in total.
_KEPT_BY_CASE: Final = 1 << 19
_KEPT_IN_ALL: Final = 1 << 26
#: Failing cases per test and kind of failure that are kept in full: the first, and two more to try if it is flaky.
KEPT: Final = 3


@dataclass(slots=True)
class TestEntry:
    """Counts of one test that hold for all its candidates."""

    info: TestInfo
    cases: Sequence[int]
    order: int
    candidates: tuple[str, ...]
    tally: TestTally = field(default_factory=TestTally)
    broken: str = ""
    broken_traceback: str = ""


class Failing(NamedTuple):
    """Key that groups the failing cases of one test on one candidate.

    Attributes:
        outcome: Outcome of the case.
        operator: Canonical operator.
        kind: Kind of the misalignment.
        is_tolerated: Whether the candidate is not to blame.
        is_no_case: Whether the failure does not count as a case: the reference rejected the attempt, or a probe failed.
    """

    outcome: str
    operator: str
    kind: str
    is_tolerated: bool
    is_no_case: bool


@dataclass(slots=True)
class Hits:
    """Cases that fail in the same way: how many, the first few in full, and the numbers of some more.

    Attributes:
        telling: By what differs, the pattern that tells most, with what decides that: its weight and the case.
    """

    count: int = 0
    first: list[CaseFailure] = field(default_factory=list)
    cases: list[int] = field(default_factory=list)
    telling: dict[str, tuple[tuple[Any, ...], ErrorPattern]] = field(default_factory=dict)

    def add(self, failure: CaseFailure) -> None:
        """Count one failing case."""
        self.count += 1
        self._weigh(failure)
        # Workers finish in any order: keeping the lowest numbers makes the report the same for any number of workers.
        if bisect(self.cases, failure.case) >= HITS_LISTED:
            return
        insort(self.cases, failure.case)
        del self.cases[HITS_LISTED:]
        insort(self.first, failure, key=lambda item: item.case)
        del self.first[KEPT:]

    def _weigh(self, failure: CaseFailure) -> None:
        pattern, at = failure.verdict.pattern, failure.verdict.misalignment
        if pattern is None or at is None:
            return
        weight = (*pattern.weight, -failure.case)
        if at.what not in self.telling or weight > self.telling[at.what][0]:
            self.telling[at.what] = weight, msgspec.structs.replace(pattern, case=failure.case)


@dataclass(slots=True)
class PairEntry:
    """Counts of one (test, candidate)."""

    #: What its messages said, without their probes.
    added: PairTally = field(default_factory=PairTally)
    whole_probes: ProbeCounts = field(default_factory=ProbeCounts)
    #: Probes of windows of which a case ran in a message of its own, or nothing where another message counted them.
    window_probes: dict[int, ProbeCounts] = field(default_factory=dict)
    failures: dict[Failing, Hits] = field(default_factory=dict)
    lost: list[LostCase] = field(default_factory=list)

    @property
    def tally(self) -> PairTally:
        """What all messages said."""
        probes = sum(self.window_probes.values(), self.whole_probes)
        return msgspec.structs.replace(self.added, probes=probes)

    def count(self, done: Sequence[int], tally: PairTally) -> None:
        """Count a part of a message. A window has one probe, also if its cases run alone after a worker was lost.

        Args:
            done: Cases of the part.
            tally: What it says; of probes only in the message's last part, and then those of the whole message.
        """
        counts = tally.probes
        self.added += msgspec.structs.replace(tally, probes=ProbeCounts())
        windows = {window_of(case) for case in done}
        if len(done) == 1 and counts.planned == 1:
            (window,) = windows
            self.window_probes[window] = _better(self.window_probes.get(window, counts), counts)
        elif counts.planned:
            self.whole_probes += counts
            for window in windows:
                self.window_probes.setdefault(window, ProbeCounts())

    def fail(self, failure: CaseFailure) -> None:
        """Count a case that is not aligned."""
        verdict = failure.verdict
        group = Failing(
            verdict.outcome, verdict.operator, verdict.kind or "", is_tolerated(verdict), verdict.is_no_case
        )
        self.failures.setdefault(group, Hits()).add(failure)

    @property
    def misaligned(self) -> dict[Failing, Hits]:
        """Misaligned cases, by the way they fail."""
        return {
            group: hits
            for group, hits in self.failures.items()
            if group.outcome == "misaligned" and not group.is_no_case
        }

    @property
    def done(self) -> int:
        """Cases run so far."""
        misaligned = sum(hits.count for hits in self.misaligned.values())
        return self.added.aligned + self.added.not_compared + misaligned + len(self.lost)

    @property
    def is_left_alone(self) -> bool:
        """Whether the remaining cases were skipped because earlier ones ended their worker."""
        return any(item.repeats != "unknown" for item in self.lost)


def is_tolerated(verdict: Verdict) -> bool:
    """Whether a failing case does not count against the candidate."""
    return (
        bool(verdict.known)
        or verdict.blame in TOLERATED_BLAMES
        or (verdict.kind == "leniency" and not verdict.is_demanded)
    )


def uncompared(cost: Cost) -> list[str]:
    """Return sentences about time, memory and random draws: no verdict depends on them, but these are far off."""
    found = []
    # The ratio alone would report candidates whose cases take microseconds.
    if cost.candidate_s > _TIMES_SLOWER * cost.reference_s and cost.candidate_s > _SLOWER_S:
        found.append(
            f"{cost.cases} cases take {cost.candidate_s:.2g} s, on the reference {cost.reference_s:.2g} s: "
            f"{cost.candidate_s / max(cost.reference_s, 1e-9):,.0f} times as long; no finding"
        )
    if cost.kept_bytes > max(_KEPT_IN_ALL, _KEPT_BY_CASE * cost.watched):
        found.append(
            f"{cost.kept_bytes / 2**20:,.0f} MiB were allocated in {cost.watched} cases and their probes and are still "
            "held: it may leak"
        )
    if cost.drawn:
        use = "does not use it" if cost.drawn == "nothing" else "takes another number of draws from it"
        found.append(f"the reference draws from the generator, and the candidate {use}; no finding")
    return found


def left_notes(left: Mapping[tuple[str, str], Mapping[tuple[str, str], None]]) -> list[str]:
    """Return sentences about state of the process that tests left changed, one per operator and candidate.

    Args:
        left: Operators and what they changed, by (test, candidate).
    """
    tests: dict[tuple[str, str], list[str]] = {}
    changes: dict[tuple[str, str], set[str]] = {}
    for (test, name), found in sorted(left.items()):
        for operators, what in found:
            tests.setdefault((name, operators), []).append(test)
            changes.setdefault((name, operators), set()).add(what)
    return [
        f"{_some(names)} on {name}: {operators} left the process changed "
        f"({'; '.join(sorted(changes[name, operators]))}); cases that were not aligned there were run again alone, in "
        "another process, and that result counts"
        for (name, operators), names in sorted(tests.items())
    ]


def _some(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = len(unique) - 1
    return f"{unique[0]}{f' and {more} other test' + 's' * (more > 1) if more else ''}"


def _better(before: ProbeCounts, now: ProbeCounts) -> ProbeCounts:
    """Return the counts of a window's probe by what is known now, as a worker does that runs all of its cases."""
    if not before.planned or before.run:
        return before
    if now.run:
        return now
    return min(before, now, key=lambda counts: NO_PROBE.index(next(iter(counts.left_out))))

"""What was counted of tests: in a batch, in a message of a worker, in a shard, in a whole run.

Tallies add up. Counts depend neither on the order of the parts nor on how the cases were split, so that one worker,
eight workers and shards say the same; sums of seconds do to the last digit only. A report holds no costs and no inputs
from outside: notes told them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

import msgspec

from ci_autotest.values.aligned_error import AlignedError, joined_errors
from ci_autotest.values.coverage_values import OPERATORS_LISTED, Exercised
from ci_autotest.values.delegation import DelegationCounts
from ci_autotest.values.probes import ProbeCounts
from ci_autotest.values.result import (
    AttemptCounts,
    NoProfile,
    RunResult,
    TestResult,
    UnsupportedCases,
    joined_unsupported,
)
from ci_autotest.values.size_classes import ReachedSizes, joined_sizes
from ci_autotest.values.verdict import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Cost(Struct, frozen=True, kw_only=True):
    """What a test's cases cost on one candidate and on the reference; zeros if it cannot be measured.

    Attributes:
        cases: Number of measured cases; the first case of a test is left out because it warms up.
        candidate_s: Seconds.
        reference_s: Seconds of the same cases, recording included.
        watched: How many of ``cases`` had their memory watched.
        kept_bytes: Bytes that these allocated, growing with the calls, and did not free.
        drawn: What the candidate did with torch's generator if the reference drew numbers from it and the candidate
            left it in another state: drew nothing, or drew otherwise.
    """

    cases: int = 0
    candidate_s: float = 0.0
    reference_s: float = 0.0
    watched: int = 0
    kept_bytes: int = 0
    drawn: Literal["", "nothing", "otherwise"] = ""

    def __add__(self, other: Cost) -> Cost:
        # One part that drew otherwise is enough for a note.
        drawn = max(self.drawn, other.drawn)
        return Cost(**_sums(self, other, "cases candidate_s reference_s watched kept_bytes"), drawn=drawn)


class TestTally(Struct, frozen=True, kw_only=True):
    """Counts of one test that hold for all its candidates.

    Attributes:
        accepted: Attempts that the reference accepted.
        rejected: Attempts that the reference rejected.
        ordinary_accepted: As ``accepted``, for the ordinary profile only.
        ordinary_rejected: As ``rejected``, for the ordinary profile only.
        empty: Cases whose attempts were all rejected.
        undefined: Cases whose backward pass the reference refused, so that only their values were compared.
        outside: Cases with an input that was computed outside of the recorded steps.
        skipped: Cases that the body skipped.
        duration_s: Seconds spent in its cases, on all workers.
        refusal: The first of the reference's errors for a rejected attempt, in alphabetical order.
        skip_reason: The first of the reasons why cases were skipped.
        profiles: Accepted cases by profile.
        unfit: Why cases are ordinary that were to have a profile, by profile.
        sizes: Classes of sizes that each free dimension reached, or why not, by its name.
    """

    accepted: int = 0
    rejected: int = 0
    ordinary_accepted: int = 0
    ordinary_rejected: int = 0
    empty: int = 0
    undefined: int = 0
    outside: int = 0
    skipped: int = 0
    duration_s: float = 0.0
    refusal: str = ""
    skip_reason: str = ""
    profiles: dict[str, int] = msgspec.field(default_factory=dict)
    unfit: dict[str, NoProfile] = msgspec.field(default_factory=dict)
    sizes: ReachedSizes = msgspec.field(default_factory=dict)

    @property
    def is_weak(self) -> bool:
        """Whether the reference accepted fewer than one in ten ordinary attempts."""
        attempts = self.ordinary_accepted + self.ordinary_rejected
        return attempts > 0 and self.ordinary_accepted < _WEAK_BELOW * attempts

    def __add__(self, other: TestTally) -> TestTally:
        return TestTally(
            **_sums(self, other, _TEST_COUNTS), refusal=least((self.refusal, other.refusal)),
            skip_reason=least((self.skip_reason, other.skip_reason)), profiles=_summed(self.profiles, other.profiles),
            unfit=_least_reasons(self.unfit, other.unfit), sizes=joined_sizes((self.sizes, other.sizes)),
        )  # fmt: skip


#: Share of ordinary attempts that must be accepted; below it a test is weak.
_WEAK_BELOW: Final = 0.1
_TEST_COUNTS: Final = "accepted rejected ordinary_accepted ordinary_rejected empty undefined outside skipped duration_s"


class PairTally(Struct, frozen=True, kw_only=True):
    """Counts of one test on one candidate; each case that is not aligned is a failure of its own.

    Attributes:
        aligned: Aligned cases.
        values_only: Cases of which only values were compared, because the candidate has no backward pass there.
        unsupported: Unsupported cases, by reason.
        errors: The greatest errors of aligned cases, by operator and dtype.
        probes: Its probes.
        delegation: Its compared cases by how much of them the candidate ran.
        compile_s: Seconds spent compiling.
        cost: What its cases cost.
    """

    aligned: int = 0
    values_only: int = 0
    unsupported: tuple[UnsupportedCases, ...] = ()
    errors: tuple[AlignedError, ...] = ()
    probes: ProbeCounts = ProbeCounts()
    delegation: DelegationCounts = DelegationCounts()
    compile_s: float = 0.0
    cost: Cost = Cost()

    @property
    def not_compared(self) -> int:
        """Cases that are unsupported."""
        return sum(item.cases for item in self.unsupported)

    def __add__(self, other: PairTally) -> PairTally:
        return PairTally(
            **_sums(self, other, "aligned values_only probes delegation compile_s cost"),
            unsupported=joined_unsupported((*self.unsupported, *other.unsupported)),
            errors=joined_errors((*self.errors, *other.errors)),
        )  # fmt: skip


class UsageTally(Struct, frozen=True, kw_only=True):
    """What the cases of a run used of a candidate, or of what was recorded.

    Attributes:
        calls: Calls by operator, for a candidate that counts them.
        probed: Operators that probes called, for a candidate that counts calls.
        left_out: Parameters and buffers of the reference's modules that the candidate's modules lack.
        exercised: How each operator was exercised.
    """

    calls: dict[str, int] = msgspec.field(default_factory=dict)
    probed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    exercised: dict[str, Exercised] = msgspec.field(default_factory=dict)

    def __add__(self, other: UsageTally) -> UsageTally:
        exercised = dict(self.exercised)
        add(exercised, other.exercised)
        calls = dict(self.calls)
        for operator, count in other.calls.items():
            calls[operator] = calls.get(operator, 0) + count
        return UsageTally(
            calls=_cut(calls), probed=_united(self.probed, other.probed), exercised=_cut(exercised),
            left_out=_united(self.left_out, other.left_out),
        )  # fmt: skip


class _Tally(Protocol):
    def __add__(self, other: Any, /) -> Any: ...


Tally = TypeVar("Tally", bound=_Tally)
Named = TypeVar("Named")


def add(tallies: dict[str, Tally], more: Mapping[str, Tally]) -> None:
    """Add tallies to those of the same names; a first one is added to nothing, since a sum has bounds."""
    for name, tally in more.items():
        tallies[name] = tallies.get(name, type(tally)()) + tally


def result_fields(test: TestTally, pair: PairTally) -> dict[str, Any]:
    """Return the fields of a ``TestResult`` that are counts."""
    return {
        "attempts": AttemptCounts(accepted=test.accepted, rejected=test.rejected),
        "ordinary": AttemptCounts(accepted=test.ordinary_accepted, rejected=test.ordinary_rejected),
        "profiles": test.profiles,
        "no_profile": {name: why for name, why in test.unfit.items() if name not in test.profiles},
        "sizes": test.sizes,
        "duration_s": round(test.duration_s, 3),
        "refusal": test.refusal,
        "undefined_gradients": test.undefined,
        "rejected_cases": test.empty,
        "skip_reason": test.skip_reason,
        "values_only": pair.values_only,
        "unsupported": pair.unsupported,
        "errors": pair.errors,
        "probes": pair.probes,
        "delegation": pair.delegation,
        "compile_s": round(pair.compile_s, 3),
    }


def tallies_of(result: TestResult) -> tuple[TestTally, PairTally]:
    """Return the tallies of which ``result_fields`` makes a result's fields."""
    test = TestTally(
        accepted=result.attempts.accepted, rejected=result.attempts.rejected, profiles=result.profiles,
        unfit=result.no_profile, sizes=result.sizes, duration_s=result.duration_s, refusal=result.refusal,
        ordinary_accepted=result.ordinary.accepted, ordinary_rejected=result.ordinary.rejected,
        undefined=result.undefined_gradients, empty=result.rejected_cases, skip_reason=result.skip_reason,
    )  # fmt: skip
    pair = PairTally(
        values_only=result.values_only,
        unsupported=result.unsupported,
        errors=result.errors,
        probes=result.probes,
        delegation=result.delegation,
        compile_s=result.compile_s,
    )
    return test, pair


def usage_of(result: RunResult) -> dict[str, UsageTally]:
    """Return what a run or a shard used, by candidate; the empty name stands for what was recorded."""
    names = {"", *result.calls, *result.probed, *(name for item in result.operators for name in item.candidates)}
    exercised: dict[str, dict[str, Exercised]] = {name: {} for name in names}
    for item in result.operators:
        for name, found in {"": item.recorded, **item.candidates}.items():
            exercised[name][item.operator] = found
    return {
        name: UsageTally(
            calls=result.calls.get(name, {}), probed=tuple(result.probed.get(name, ())), exercised=exercised[name]
        )
        for name in sorted(names)
    }


def least(texts: Iterable[str]) -> str:
    """Return the first text in alphabetical order that is not empty, so that the order of cases does not matter."""
    return min(filter(None, texts), default="")


def _cut(found: dict[str, Named]) -> dict[str, Named]:
    """Return the first names in alphabetical order, so that the same ones stay whatever the order is."""
    return found if len(found) <= OPERATORS_LISTED else dict(sorted(found.items())[:OPERATORS_LISTED])


def _united(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*one, *other})[:OPERATORS_LISTED]) if {*other} - {*one} else one


def _sums(one: Struct, other: Struct, names: str) -> dict[str, Any]:
    return {name: getattr(one, name) + getattr(other, name) for name in names.split()}


def _summed(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def _least_reasons(one: Mapping[str, NoProfile], other: Mapping[str, NoProfile]) -> dict[str, NoProfile]:
    return {name: min(found[name] for found in (one, other) if name in found) for name in sorted({*one, *other})}

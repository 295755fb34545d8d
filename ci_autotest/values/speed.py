"""Speed of a candidate beside its correctness, as values: what was timed, the ratio, and what can be said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from ci_autotest.values.verdict import Kind, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

Phase: TypeAlias = Literal["forward", "backward"]
#: What can be said of a candidate's speed; the last three are of a call that was not timed.
SpeedVerdict: TypeAlias = Literal["slower", "faster", "same", "cannot_tell", "not_timed", "misaligned", "crashed"]


class Ratio(Struct, frozen=True, kw_only=True):
    """A candidate's time divided by the time that it is measured against, with an interval of 99.9 % confidence.

    Attributes:
        low: Lower end of the interval.
        median: Median of the pairs.
        high: Upper end of the interval.
        pairs: Number of pairs of times, each measured within a few milliseconds.
    """

    low: float
    median: float
    high: float
    pairs: int


class Instructions(Struct, frozen=True, kw_only=True):
    """Instructions of one call, forward and backward, as callgrind counts them; they do not depend on the load.

    Attributes:
        candidate: Of the candidate.
        reference: Of what it is measured against.
    """

    candidate: int
    reference: int


class SpeedResult(Struct, frozen=True, kw_only=True):
    """How fast a candidate runs a test's body at one set of larger sizes, forward or backward.

    Attributes:
        test: Id of the test.
        candidate: Name of the candidate.
        case: Number of the case whose draws were used, with the profile ``large_shapes`` where the test leaves sizes
            free.
        phase: The forward or the backward pass.
        operators: Operators of the body.
        inputs: Dtype and shape of each input, for example ``float32[512, 512]``.
        against: What the candidate is measured against: ``reference``, or ``original`` for a graph pass, which is
            measured against the same graph before the pass.
        verdict: ``slower`` or ``faster`` if that repeats in fresh processes; ``same`` if the times differ by less than
            a tenth; ``cannot_tell`` if the interval is too wide or the result does not repeat; ``not_timed`` with a
            reason; ``misaligned`` or ``crashed`` if that happened at these sizes, which fails the run.
        reason: Why it was not timed, or cannot be told.
        operator: The operator that is wrong at these sizes; if the worker was lost, the test.
        target: The operator as the test spells it.
        kind: What differs at these sizes; null if nothing does.
        known: Reason of the configuration's row that accepts this difference; null if none does.
        new: Whether the baseline lacks this difference; null without a baseline, or if nothing differs.
        ratio: Time of the candidate divided by the other.
        candidate_s: Median seconds of a call of the candidate.
        reference_s: Median seconds of a call of what it is measured against.
        instructions: Counts of instructions, where valgrind is installed, of the calls that are slowest.
        factor: Factor of ``slower_factor`` in the run.
        before: The ratio in the baseline, if it timed the same call.
        change: What the baseline says: ``slower`` if the whole interval lies above the baseline's, by the factor;
            ``faster`` the other way round; ``same`` if they overlap; null without such a baseline.
    """

    test: str
    candidate: str
    case: int
    phase: Phase
    operators: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    against: Literal["reference", "original"] = "reference"
    verdict: SpeedVerdict
    reason: str = ""
    operator: str = ""
    target: str = ""
    kind: Kind | None = None
    known: str | None = None
    new: bool | None = None
    ratio: Ratio | None = None
    candidate_s: float = 0.0
    reference_s: float = 0.0
    instructions: Instructions | None = None
    factor: float = 1.0
    before: Ratio | None = None
    change: Literal["slower", "faster", "same"] | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What must be equal for two results to be about the same call."""
        return self.test, self.candidate, self.case, self.phase, self.operators, self.inputs, self.against

    @property
    def identity(self) -> tuple[str, str, str]:
        """Candidate, operator and kind, as of a finding; without a kind nothing differs."""
        return self.candidate, self.operator, self.kind or ""


def is_too_slow(item: SpeedResult) -> bool:
    """Whether ``--fail-on slower`` counts a result: all of its interval lies above the factor.

    Where the baseline timed the same call, only what became slower since then counts.
    """
    if item.change is not None:
        return item.change == "slower"
    return item.verdict == "slower" and item.ratio is not None and item.ratio.low >= item.factor


def is_wrong_at_size(item: SpeedResult) -> bool:
    """Whether a call that was aligned at the test's own sizes is wrong at larger ones, and no row accepts that."""
    return item.verdict in {"misaligned", "crashed"} and item.known is None


def against_baseline(results: Iterable[SpeedResult], baseline: Iterable[SpeedResult]) -> tuple[SpeedResult, ...]:
    """Return results with the ratio of the same call in the baseline, and what became of it."""
    ratios = {item.key: item.ratio for item in baseline}
    return tuple(_changed(item, ratios.get(item.key)) for item in results)


def _changed(item: SpeedResult, before: Ratio | None) -> SpeedResult:
    if item.ratio is None or before is None:
        return msgspec.structs.replace(item, before=None, change=None)
    change: Literal["slower", "faster", "same"] = "same"
    if item.ratio.low > before.high * item.factor:
        change = "slower"
    elif item.ratio.high * item.factor < before.low:
        change = "faster"
    return msgspec.structs.replace(item, before=before, change=change)

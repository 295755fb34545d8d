"""What is said of one case: how it ended, what departs, and on which side; frozen values that are written as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from ci_autotest.errors import UnsupportedReason

if TYPE_CHECKING:
    from ci_autotest.errors import Unsupported

Outcome: TypeAlias = Literal["aligned", "misaligned", "unsupported", "crashed", "timed_out", "flaky", "not_run"]
Kind: TypeAlias = Literal[
    "value", "gradient", "shape", "dtype", "metadata", "state", "aliasing", "mutation", "error", "leniency", "graph",
    "crash", "timeout", "nondeterminism", "stateful",
]  # fmt: skip
Blame: TypeAlias = Literal["candidate", "reference", "both", "ill_conditioned", "unknown"]
#: Outcomes of a case, in the order in which the worst is chosen for a test (first is worst).
WORST_FIRST: Final[tuple[Outcome, ...]] = (
    "crashed", "timed_out", "misaligned", "flaky", "unsupported", "not_run", "aligned",
)  # fmt: skip


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value that leaves the process."""


class Difference(Struct, frozen=True, kw_only=True):
    """Say by how much a tensor departs from its counterpart.

    Attributes:
        mismatched: Elements outside the tolerance.
        total: Elements compared.
        greatest_absolute: In the unit of the elements, exact of integers; ``None`` when not finite.
        greatest_relative: A ratio to the reference; ``None`` when not finite or the reference is 0.
        greatest_ulp: Units in the last place; ``None`` for what has none.
        greatest_index: Where ``greatest_absolute`` is.
        first_index: The first element outside the tolerance, in row-major order.
        first_pair: Candidate's and reference's value there; hexadecimal for floating point.
        first_pair_decimal: The same, for reading.
        rtol: Ratio that was allowed.
        atol: Absolute difference that was allowed, in the unit of the elements.
    """

    mismatched: int
    total: int
    greatest_absolute: int | float | None
    greatest_relative: float | None
    greatest_ulp: int | None
    greatest_index: tuple[int, ...]
    first_index: tuple[int, ...]
    first_pair: tuple[str, str]
    first_pair_decimal: tuple[str, str]
    rtol: float
    atol: float


class Misalignment(Struct, frozen=True, kw_only=True):
    """Say how a candidate departs from the reference at one place of a program.

    Attributes:
        kind: What differs.
        step: Index of the step whose value, gradient or state it is; the refused step for ``error``
            and ``leniency``.
        what: The thing compared, for reading: ``value of softmax``, ``gradient of x``.
        candidate: What the candidate has, for reading.
        reference: What the reference has, for reading.
        difference: Numbers, where both sides are tensors of one shape.
        detail: One more line where needed, such as the candidate's exception.
    """

    kind: Kind
    step: int
    what: str
    candidate: str
    reference: str
    difference: Difference | None = None
    detail: str = ""


class StepError(Struct, frozen=True, kw_only=True):
    """Say how far the sides are apart after one step of a program whose error is accumulated.

    Attributes:
        step: Its index.
        what: The value's name.
        greatest_absolute: In the unit of the elements; ``None`` when not finite.
        greatest_ulp: Units in the last place; ``None`` for what has none.
    """

    step: int
    what: str
    greatest_absolute: int | float | None
    greatest_ulp: int | None


class Verdict(Struct, frozen=True, kw_only=True):
    """Say what a trial showed, once localized and blamed: what a shrinker must keep.

    Attributes:
        outcome: Of the trial.
        operator: The culprit's operator.
        target: As the test spelled it.
        kind: What differs.
        blame: Which side is wrong, by the float64 oracle.
        step: Index of the culprit in the program.
        accumulated: No step is misaligned alone.
        misalignment: Of the culprit alone, else of the whole program.
        oracle: The oracle's word, one sentence; of an unsupported case the detail of its reason.
        oracle_value: The float64 value at ``first_index``, hexadecimal.
        growth: Of accumulated error, step by step.
        reason: Why the case is unsupported, where it is.
        is_demanded: The author wrote that the reference refuses the step, so that a candidate that accepts it fails.
        is_of_a_rejected_attempt: The reference rejected the attempt: it is reported, and no case.
    """

    outcome: Outcome
    operator: str = ""
    target: str = ""
    kind: Kind | None = None
    blame: Blame = "unknown"
    step: int = -1
    accumulated: bool = False
    misalignment: Misalignment | None = None
    oracle: str = ""
    oracle_value: str | None = None
    growth: tuple[StepError, ...] = ()
    reason: UnsupportedReason | None = None
    is_demanded: bool = False
    is_of_a_rejected_attempt: bool = False

    @property
    def is_no_case(self) -> bool:
        """Whether it is reported beside the case that it is of, which has an outcome of its own."""
        return self.is_of_a_rejected_attempt or self.kind == "stateful"


def unsupported_verdict(why: Unsupported) -> Verdict:
    """Return the verdict on a case that is not compared."""
    return Verdict(outcome="unsupported", reason=why.reason, oracle=why.detail)


#: What a backward pass is called where it is compared as one thing.
BACKWARD: Final = "backward pass"
#: What autograd says to the three misuses after which a gradient would be silently wrong: a value that the gradient
#: needs was overwritten, a leaf that requires grad was written to, a leaf was moved into the graph. Source: the
#: messages of PyTorch 2.13.
_MISUSES: Final = (
    "has been modified by an inplace operation",
    "a leaf Variable that requires grad is being used in an in-place operation",
    "a view of a leaf Variable that requires grad is being used in an in-place operation",
    "leaf variable has been moved into the graph interior",
)


def is_misuse(refusal: str) -> bool:
    """Whether the reference refused a misuse of autograd: a candidate that accepts it computes a wrong gradient."""
    return any(text in refusal for text in _MISUSES)

"""The verdict on one case as frozen values: its outcome, what differs and which side is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import msgspec

from ci_autotest.errors import UnsupportedReason
from ci_autotest.values.error_pattern import ErrorPattern

if TYPE_CHECKING:
    from ci_autotest.errors import Unsupported

Outcome: TypeAlias = Literal[
    "aligned", "misaligned", "reference_off", "known", "unsupported", "crashed", "timed_out", "flaky",
    "not_run", "skipped",
]  # fmt: skip
Kind: TypeAlias = Literal[
    "value", "gradient", "shape", "dtype", "metadata", "state", "aliasing", "mutation", "error", "leniency", "graph",
    "crash", "timeout", "nondeterminism", "stateful", "randomness", "rank",
]  # fmt: skip
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
Blame: TypeAlias = Literal["candidate", "reference", "both", "ill_conditioned", "unknown"]
#: Outcomes of a case, worst first: a test has the worst outcome of its cases.
WORST_FIRST: Final[tuple[Outcome, ...]] = (
    "crashed", "timed_out", "misaligned", "flaky", "reference_off", "known", "unsupported", "not_run", "skipped",
    "aligned",
)  # fmt: skip
#: Those of a candidate that does not do what PyTorch does.
FAILED_OUTCOMES: Final[frozenset[Outcome]] = frozenset({"crashed", "timed_out", "misaligned"})
#: Outcomes as columns of a table: what is right, what is wrong, what was not compared.
COLUMNS: Final[tuple[Outcome, ...]] = (
    "aligned", "misaligned", "crashed", "timed_out", "reference_off", "known", "unsupported", "flaky", "not_run",
    "skipped",
)  # fmt: skip


class Struct(msgspec.Struct, frozen=True):
    """Base of every value that leaves the process. A reader ignores fields of a newer minor version."""


class Difference(Struct, frozen=True, kw_only=True):
    """The difference between a tensor and its counterpart.

    Attributes:
        mismatched: Number of elements outside the tolerance.
        total: Number of elements compared.
        greatest_absolute: In the unit of the elements, exact for integers; null if not finite.
        greatest_relative: A ratio to the reference; null if not finite or the reference is 0.
        greatest_ulp: In units in the last place; null for dtypes without them.
        greatest_index: Index of ``greatest_absolute``.
        first_index: The first element outside the tolerance, in row-major order.
        first_pair: The candidate's and the reference's value there; hexadecimal for floating point.
        first_pair_decimal: The same values in decimal.
        rtol: Allowed difference relative to the reference.
        atol: Allowed absolute difference, in the unit of the elements.
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

    @property
    def percent(self) -> float:
        """Percentage of the elements that are outside the tolerance; a damaged report may have any numbers."""
        return 100 * (min(max(self.mismatched, 0), self.total) / self.total) if self.total > 0 else 0.0


Aspect: TypeAlias = Literal["value", "shape", "dtype", "metadata", "memory", "end"]


class Value(Struct, frozen=True, kw_only=True, tag="value"):
    """The result of a step.

    Attributes:
        name: Name of the step.
        aspect: The property that differs; ``memory`` is the storage that it shares, ``end`` the value after the run.
        element: Index in a tuple, if the step returned one.
    """

    name: str
    aspect: Aspect = "value"
    element: int | None = None

    def __str__(self) -> str:
        if self.aspect == "end":
            return f"{self.name} after the run"
        return f"{self.aspect} of {self.name}" + ("" if self.element is None else f"[{self.element}]")


class Gradient(Struct, frozen=True, kw_only=True, tag="gradient"):
    """The gradient of a step's value, or of a parameter of its module."""

    name: str
    parameter: str = ""

    def __str__(self) -> str:
        return f"gradient of {self.name}" + (f".{self.parameter}" if self.parameter else "")


class Cotangent(Struct, frozen=True, kw_only=True, tag="cotangent"):
    """The gradient passed to an output, named by its position, to which the backward pass wrote."""

    position: int

    def __str__(self) -> str:
        return f"gradient put into output {self.position}, which the backward pass wrote to"


class State(Struct, frozen=True, kw_only=True, tag="state"):
    """A parameter or buffer after the run; without a name, the set of their names."""

    name: str = ""

    def __str__(self) -> str:
        return f"state {self.name} after the run" if self.name else "names of the state after the run"


class Call(Struct, frozen=True, kw_only=True, tag="call"):
    """A call that raises or accepts something, not its result."""

    name: str

    def __str__(self) -> str:
        return f"call of {self.name}"


class BackwardPass(Struct, frozen=True, tag="backward"):
    """A backward pass that raises or accepts something, not one of its gradients."""

    def __str__(self) -> str:
        return "backward pass"


class InFlight(Struct, frozen=True, kw_only=True, tag="in flight"):
    """The operator in which a worker was lost, as the test spelled it.

    Attributes:
        target: The operator.
        compiling: Whether it was lost while the operator was compiled or exported, before anything ran.
    """

    target: str
    compiling: bool = False

    def __str__(self) -> str:
        return f"in compiling {self.target}" if self.compiling else f"in {self.target}"


class Result(Struct, frozen=True, tag="result"):
    """The whole result of a candidate, if its parts cannot be compared."""

    def __str__(self) -> str:
        return "result"


Place: TypeAlias = Value | Gradient | Cotangent | State | Call | BackwardPass | InFlight | Result
#: Kinds of findings that cost the worker.
_LOST: Final = frozenset({"crash", "timeout"})
_AS_A_GRAPH: Final = ", as a graph"


def place_text(at: Place | None, kind: Kind) -> str:
    """Return a place in words."""
    # A worker is lost inside the pass, while an error is raised by it.
    if isinstance(at, BackwardPass) and kind in _LOST:
        return f"in its {at}"
    return ("" if at is None else str(at)) + (_AS_A_GRAPH if kind == "graph" else "")


def printable(at: Place | None) -> Place | None:
    """Return a place if it can stand beside code, which a line end in one of its names could add to."""
    return at if str(at).isprintable() else None


def is_of_backward(at: Place | None) -> bool:
    """Whether the difference only shows in the backward pass."""
    return isinstance(at, Gradient | Cotangent | BackwardPass)


#: What a side has that returned something else where the other one has a tensor.
NO_TENSOR: Final = "no tensor"


class Misalignment(Struct, frozen=True, kw_only=True):
    """How a candidate differs from the reference at one place of a program.

    Attributes:
        kind: What differs.
        step: Index of the step whose value, gradient or state differs; the refused step for ``error`` and ``leniency``.
        at: What was compared; null for two observations without a program.
        candidate: What the candidate has, in words.
        reference: What the reference has, in words.
        difference: The numbers, if both sides are tensors of one shape.
        detail: One more line if needed, for example the candidate's exception.
        lacks_gradient: Whether the values agree and the candidate's are of no gradient.
    """

    kind: Kind
    step: int
    at: Place | None = None
    candidate: str
    reference: str
    difference: Difference | None = None
    detail: str = ""
    lacks_gradient: bool = False

    @property
    def what(self) -> str:
        """What was compared, in words: ``value of softmax``, ``gradient of x``."""
        return place_text(self.at, self.kind)


class StepError(Struct, frozen=True, kw_only=True):
    """The error after one step of a program whose error accumulates.

    Attributes:
        step: Index of the step.
        what: Name of the value.
        greatest_absolute: In the unit of the elements; null if not finite.
        greatest_ulp: In units in the last place; null for dtypes without them.
    """

    step: int
    what: str
    greatest_absolute: int | float | None
    greatest_ulp: int | None


class Verdict(Struct, frozen=True, kw_only=True):
    """The result of a trial, localized and blamed. The shrinker keeps outcome, operator, kind and blame.

    Attributes:
        outcome: Outcome of the trial.
        operator: Operator of the culprit.
        target: The operator as the test spells it.
        kind: What differs.
        blame: Which side is wrong, according to the float64 oracle.
        step: Index of the culprit in the program.
        accumulated: Whether the error accumulates over steps, none of which is misaligned on its own.
        misalignment: Misalignment of the culprit on its own, else of the whole program.
        oracle: What the oracle says, in one sentence; for an unsupported case the detail of its reason.
        oracle_value: The float64 value at ``first_index``, hexadecimal.
        growth: How an accumulated error grows, step by step.
        reason: Why the case is unsupported, if it is.
        is_demanded: Whether the test says that the reference refuses the step, so that accepting it is a failure.
        is_of_a_rejected_attempt: Whether the reference rejected the attempt, so that the verdict belongs to no case.
        pattern: Which elements are wrong, and what they have in common.
        notes: What the body says about the case.
        known: Why the source of the test expects the difference; empty if it does not.
        is_accepted: Whether a row of ``known`` accepts the difference.
        is_beside_another: Whether its case has another verdict besides, which counts as the case's.
        accepted: The verdicts of the case that are beside this one.
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
    pattern: ErrorPattern | None = None
    notes: tuple[str, ...] = ()
    known: str = ""
    is_accepted: bool = False
    is_beside_another: bool = False
    accepted: tuple[Verdict, ...] = ()

    @property
    def identity(self) -> tuple[Outcome, str, Kind | None]:
        """What a verdict on another run must have to be the same: outcome, operator and kind."""
        return self.outcome, self.operator, self.kind

    @property
    def is_no_case(self) -> bool:
        """Whether the verdict is reported beside a case that has an outcome of its own."""
        return self.is_of_a_rejected_attempt or self.is_beside_another or self.kind == "stateful"


def unsupported_verdict(why: Unsupported) -> Verdict:
    """Return the verdict on an unsupported case."""
    return Verdict(outcome="unsupported", reason=why.reason, oracle=why.detail)

"""The verdict on one case as frozen values: outcome, what differs, which side is wrong. Written as JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from ci_autotest.errors import UnsupportedReason

if TYPE_CHECKING:
    from collections.abc import Callable

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


class Value(Struct, frozen=True, kw_only=True, tag="value"):
    """What a step gave.

    Attributes:
        name: Of the step.
        aspect: What of it; ``memory`` is what it shares, ``end`` the value as it is after the run.
        element: Which element of a tuple it is, where it is one.
    """

    name: str
    aspect: Literal["value", "shape", "dtype", "metadata", "memory", "end"] = "value"
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
    """The gradient that was put into an output, by the output's position: the backward pass wrote to it."""

    position: int

    def __str__(self) -> str:
        return f"gradient put into output {self.position}, which the backward pass wrote to"


class State(Struct, frozen=True, kw_only=True, tag="state"):
    """A parameter or buffer after the run; without a name, which of them there are."""

    name: str = ""

    def __str__(self) -> str:
        return f"state {self.name} after the run" if self.name else "names of the state after the run"


class Call(Struct, frozen=True, kw_only=True, tag="call"):
    """A call as such: what it raises, or accepts."""

    name: str

    def __str__(self) -> str:
        return f"call of {self.name}"


class BackwardPass(Struct, frozen=True, tag="backward"):
    """The backward pass as one thing: what it raises, or accepts."""

    def __str__(self) -> str:
        return "backward pass"


class InFlight(Struct, frozen=True, kw_only=True, tag="in flight"):
    """The operator in which a worker was lost, as the test spelled it."""

    target: str

    def __str__(self) -> str:
        return f"in {self.target}"


class Result(Struct, frozen=True, tag="result"):
    """All that a candidate gave, where it cannot be looked at."""

    def __str__(self) -> str:
        return "result"


Place: TypeAlias = Value | Gradient | Cotangent | State | Call | BackwardPass | InFlight | Result
#: Kinds of a finding whose worker was lost.
_LOST: Final = frozenset({"crash", "timeout"})
_AS_A_GRAPH: Final = ", as a graph"
#: How a place is read back from its text, which is all that a report holds of it: the inverse of ``place_text``.
_READ: Final[tuple[tuple[str, Callable[[re.Match[str]], Place]], ...]] = (
    (r"(?:in its )?backward pass", lambda _: BackwardPass()),
    (r"gradient put into output (\d{1,9}), which the backward pass wrote to", lambda m: Cotangent(position=int(m[1]))),
    (r"gradient of ([^.]*)(?:\.(.*))?", lambda m: Gradient(name=m[1], parameter=m[2] or "")),
    (r"names of the state after the run", lambda _: State()),
    (r"state (.*) after the run", lambda m: State(name=m[1])),
    (
        r"(value|shape|dtype|metadata|memory) of (.*?)(?:\[(\d{1,9})\])?",
        lambda m: Value(name=m[2], aspect=m[1], element=None if m[3] is None else int(m[3])),  # type: ignore[arg-type]
    ),
    (r"call of (.*)", lambda m: Call(name=m[1])),
    (r"(.*) after the run", lambda m: Value(name=m[1], aspect="end")),
    (r"in (.*)", lambda m: InFlight(target=m[1])),
    (r"result", lambda _: Result()),
)


def place_text(at: Place | None, kind: Kind) -> str:
    """Return where something differs, for reading."""
    if isinstance(at, BackwardPass) and kind in _LOST:
        return f"in its {at}"
    return ("" if at is None else str(at)) + (_AS_A_GRAPH if kind == "graph" else "")


def place_of(text: str) -> Place | None:
    """Return the place that a text of ``place_text`` is of, as a report holds it; ``None`` of any other text.

    A report comes from outside, and its names are written beside code: no line ends in them.
    """
    told = text.removesuffix(_AS_A_GRAPH)
    if not told.isprintable():
        return None
    found = ((re.fullmatch(pattern, told), make) for pattern, make in _READ)
    return next((make(match) for match, make in found if match is not None), None)


def is_of_backward(at: Place | None) -> bool:
    """Whether it takes the backward pass to see what differs."""
    return isinstance(at, Gradient | Cotangent | BackwardPass)


class Misalignment(Struct, frozen=True, kw_only=True):
    """Say how a candidate departs from the reference at one place of a program.

    Attributes:
        kind: What differs.
        step: Index of the step whose value, gradient or state it is; the refused step for ``error``
            and ``leniency``.
        at: What was compared; ``None`` of two observations alone.
        candidate: What the candidate has, for reading.
        reference: What the reference has, for reading.
        difference: Numbers, where both sides are tensors of one shape.
        detail: One more line where needed, such as the candidate's exception.
    """

    kind: Kind
    step: int
    at: Place | None = None
    candidate: str
    reference: str
    difference: Difference | None = None
    detail: str = ""

    @property
    def what(self) -> str:
        """The thing compared, for reading: ``value of softmax``, ``gradient of x``."""
        return place_text(self.at, self.kind)


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

"""The trace of a run: values, metadata, gradients, and where it stopped."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ci_autotest.values.case import draws_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.errors import Unsupported
    from ci_autotest.program.ir import Program, Step
    from ci_autotest.values.case import Draw


#: What is read of a tensor when it is observed, because later steps change it without a trace: requires_grad, is_leaf,
#: and the version counter, which has holes (SEMANTICS, rule 3). A plain tuple: one is made for each value of a case.
Facts: TypeAlias = tuple[bool, bool, int]


class Failure(NamedTuple):
    """Say which step raised what.

    Attributes:
        step: Its index.
        kind: Name of the error's class, for reading.
        message: Its text, for reading.
        lacking: That it says that something is not implemented, where it does.
    """

    step: int
    kind: str
    message: str
    lacking: Unsupported | None = None


class Raised(NamedTuple):
    """Say what a backward pass raised.

    Attributes:
        kind: Name of the error's class, for reading.
        message: Its text, for reading.
    """

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Metadata(NamedTuple):
    """What is compared of a tensor before its elements.

    Attributes:
        dtype: Name without framework.
        shape: Sizes in elements.
        strides: In elements.
        device: ``cpu`` or ``cuda:0``.
        requires_grad: As observed.
        is_leaf: As observed.
        layout: ``strided`` for dense tensors.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str
    requires_grad: bool
    is_leaf: bool
    layout: str = "strided"

    def __str__(self) -> str:
        layout = "" if self.layout == "strided" else f" {self.layout}"
        grad = " that requires grad" if self.requires_grad else ""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}] on {self.device}{layout}{grad}"


class Observation(NamedTuple):
    """Hold a value as it was seen at its step.

    Attributes:
        metadata: ``None`` for what is not a tensor.
        data: The tensor (a copy that no later step changes), or the plain value.
    """

    metadata: Metadata | None
    data: Any


class Trace:
    """Hold what one side's run of a program left behind. Filled by a backend, read by the alignment.

    Attributes:
        values: Live value of each step, by index.
        facts: What was observed of each tensor, ``None`` for other values.
        observations: Copies taken at each step; empty unless the run took snapshots.
        edges: Gradient edges taken at each step; empty unless the run took snapshots.
        copies: Copy and gradient edge of values that later steps write to, by index, where the run was told which.
        failure: The step that raised, if one did.
        gradients: Gradient by what it is with respect to: a step's index, or ``(index, parameter)``
            of a module.
        backward_failure: What the backward pass raised.
        backward_lacking: That this says that something is not implemented, where it does.
        cotangents: The gradients put in, by position; checked afterwards for having been written
            to.
        shown: Steps whose values the backend shows; ``None`` for all. A compiler shows inputs and
            outputs only.
        fired: Calls of hooks so far.
        hooks_see_outside: Whether the hooks on an output of a call see what comes from other calls alone, as they do
            where a kernel computes all outputs at once.
        is_nothing: Whether a gradient says that nothing came from outside, while the backward pass is run.
        moved: Where the value of each step is by now, by the index that the step had when it was recorded; ``None``:
            where it was.
        untested: Why this run says nothing about the candidate: nothing was replaced, nothing was
            compiled.
        is_told: Whether another process told of the values: what memory they share and how often they were written to
            is not known, and of intermediates that are overwritten there is no gradient.
        has_flags: Whether ``requires_grad`` and ``is_leaf`` exist on this side.
        has_backward: Whether this side has a backward pass; without, its values alone are compared.
        around: What the backend entered for each call, and enters for those of hooks.
        calls: How often functions of the user's were called in place of an operator; 0 of an operator that was not
            replaced. Of backends that replace none, empty.
        answered: Those of ``calls`` that say what the candidate computes itself: of a device of its own it is all, and
            this is empty.
        left_out: Parameters and buffers that this side's modules lack: they are not compared.
    """

    # Class attributes are the values at the start; a run sets what it sees, and most runs see little.
    observations: list[Observation | None] = []  # noqa: RUF012 - a run with snapshots puts its own in their place
    edges: list[Any] = []  # noqa: RUF012 - likewise
    copies: Mapping[int, tuple[Any, Any]] = MappingProxyType({})
    failure: Failure | None = None
    gradients: Mapping[GradientKey, Any] = MappingProxyType({})
    backward_failure: Raised | None = None
    cotangents: Mapping[int, Any] = MappingProxyType({})
    shown: frozenset[int] | None = None
    fired: int = 0
    hooks_see_outside: bool = False
    is_nothing: Callable[[object], bool] | None = None
    moved: Sequence[int] | None = None
    backward_lacking: Unsupported | None = None
    untested: Unsupported | None = None
    is_remote: bool = False
    has_flags: bool = True
    has_backward: bool = True
    around: object = None
    calls: Mapping[str, int] = MappingProxyType({})
    answered: Mapping[str, int] = MappingProxyType({})
    left_out: Sequence[str] = ()

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.facts: list[Facts | None] = []

    def load(self) -> None:
        """Make everything of the trace there that its backend has put off; nothing, where it ran in this process."""


GradientKey: TypeAlias = int | tuple[int, str]


class Attempt(NamedTuple):
    """Hold one accepted or rejected attempt, live: what was recorded and what the reference did.

    Attributes:
        program: What was recorded; of a rejected attempt it ends with the refused step, without
            output.
        trace: The reference's side.
        sources: Data of each placeholder by key: a tensor in shape, or the storage's elements where
            not contiguous.
        cotangents: Gradients to put in, by position of the output's tensors.
        log: The draw log, each draw a plain tuple of ``Draw``'s fields.
        profile: What the attempt turned out to be about.
        refused: The step that the reference refused, where it did.
        is_probe: Whether it is several calls of a body, which take several times as long as a case.
        has_outside: Whether an input was made of an array that left the recording, or may have been computed from one.
        untested: Why nothing of it is compared, ``None`` where something is.
    """

    program: Program
    trace: Trace
    sources: dict[str, Any]
    cotangents: dict[int, Any]
    log: list[tuple[Any, ...]]
    profile: str
    refused: Step | None
    is_probe: bool = False
    has_outside: bool = False
    untested: Unsupported | None = None

    @property
    def draws(self) -> list[Draw]:
        """The draw log."""
        return draws_of(self.log)

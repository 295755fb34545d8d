"""The trace of a run: values, metadata, gradients, and the step at which it failed."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ci_autotest.values.case import draws_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.errors import Unsupported
    from ci_autotest.kinds import Candidate
    from ci_autotest.program.distribution import Distribution
    from ci_autotest.program.ir import Program, Step
    from ci_autotest.values.case import Draw
    from ci_autotest.values.delegation import Delegation
    from ci_autotest.values.result import NoProfile
    from ci_autotest.values.size_classes import FreeDimension
    from ci_autotest.values.verdict import Verdict


#: ``requires_grad``, ``is_leaf`` and the version counter of a tensor at its step, because later steps may change them.
#: The counter misses some writes (SEMANTICS, rule 3). A plain tuple, because one is made for each value of a case.
Facts: TypeAlias = tuple[bool, bool, int]


class Failure(NamedTuple):
    """The error of a step.

    Attributes:
        step: Index of the step.
        kind: Name of the error's class; for readers, but for that of a write into a guard band.
        message: The error's text, for readers only.
        lacking: Set if the error means that something is not implemented.
    """

    step: int
    kind: str
    message: str
    lacking: Unsupported | None = None


class Raised(NamedTuple):
    """The error of a backward pass.

    Attributes:
        kind: Name of the error's class, for readers only.
        message: The error's text, for readers only.
    """

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class RankFault(NamedTuple):
    """A place of a run where the ranks of a group do not agree, or do not lie as their placements say.

    Attributes:
        step: Index of the step.
        key: The gradient's key if it is one; ``None`` for the step's value or its call.
        is_call: Whether ranks differ in what the call did, so that it has no value.
        seen: What the ranks did, in words.
        expected: What they should have done, in words.
        detail: One more line, for example the error of one rank.
        state: If it is a parameter or buffer of the step's module: its name.
    """

    step: int
    key: GradientKey | None
    is_call: bool
    seen: str
    expected: str
    detail: str = ""
    state: str = ""


class ReferenceBackend(Protocol):
    """What runs a program as the side that is believed."""

    def run(
        self, program: Program, sources: Mapping[str, Any], *, snapshots: bool = False, copied: Collection[int] = ()
    ) -> Trace:
        """Run the program forward."""

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run the backward pass, and put every gradient into the trace."""


class Expectation(NamedTuple):
    """What the run of ranks is held against if a part of it is not that of the whole batch, by its definition.

    Attributes:
        trace: The reference's run on the slice of each rank, with snapshots.
        reference: Runs a program slice by slice.
        sentence: What is compared per slice, and why.
        of_whole: Outputs of the whole batch that are not those of the slices, by index. Ranks that have these are held
            against the whole batch, because they have made their rows independent, as a SyncBatchNorm does.
    """

    trace: Trace
    reference: ReferenceBackend
    sentence: str
    of_whole: Mapping[int, Any]


class Metadata(NamedTuple):
    """The metadata of a tensor, which is compared before its elements.

    Attributes:
        dtype: Name without the framework, for example ``float32``.
        shape: Sizes in elements.
        strides: Strides in elements.
        device: For example ``cpu`` or ``cuda:0``.
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
    """A value as it was at its step.

    Attributes:
        metadata: ``None`` if the value is not a tensor.
        data: A copy of the tensor, which no later step changes, or the plain value.
        exact: The tensor in float64, if ``strictness: measured`` asks for it and it is known.
    """

    metadata: Metadata | None
    data: Any
    exact: Any = None


class Trace:
    """The record of one side's run of a program. Backends fill it, and the alignment reads it.

    Attributes:
        values: Live value of each step, by index.
        facts: Observed facts of each tensor; ``None`` for other values.
        observations: Copies taken at each step; empty unless the run took snapshots.
        edges: Gradient edges taken at each step; empty unless the run took snapshots.
        copies: Copy and gradient edge of each value that a later step writes to, by index, if the run took copies.
        failure: The step that raised, if one did.
        gradients: Gradients by what they are with respect to: a step's index, or ``(index, parameter)`` of a module.
        backward_failure: The error of the backward pass.
        backward_lacking: Set if that error means that something is not implemented.
        cotangents: The gradients of the outputs, by position. They are checked afterwards, because nobody may write to
            them.
        shown: Steps whose values are visible; ``None`` for all. Of a compiled body, only inputs and outputs are.
        fired: Number of calls of hooks so far.
        is_nothing: During the backward pass: whether a gradient means that none came from outside the call.
        moved: Current index of each step's value, by the index that the step had when it was recorded; ``None`` if
            no index has changed.
        untested: Why this run tested nothing of the candidate, for example because nothing was compiled.
        is_remote: Whether another process sent the values. Then it is unknown which memory they share and how often
            they were written to, and overwritten intermediates have no gradients.
        has_flags: Whether ``requires_grad`` and ``is_leaf`` exist on this side.
        has_backward: Whether this side has a backward pass; if not, only values are compared.
        around: The backend's context of each call, which the calls of hooks need too.
        calls: For each operator that was called, how often the user's function replaced it, 0 if never. Empty for
            backends without replacements.
        answered: The part of ``calls`` that tells what the candidate computes itself. Empty for a candidate on a device
            of its own, because it computes every operator.
        left_out: Parameters and buffers that this side's modules lack; they are not compared.
        rank_faults: For a group of ranks: where they disagree.
        distributions: For a group of ranks: how the value of each step lies on them, by index.
        replaced: Steps that a pass over the body's graph replaced or removed.
        returned: What an exported body's callable returned, by index; the values are copies of it.
        expectation: What the run is held against; ``None`` for the reference's run of the whole program.
        is_kept: Whether another run of the body with these sizes calls what was made of it for this one: what was
            compiled, or the ranks.
        delegation: Of a compiler: which steps it ran itself; ``None`` for a candidate that runs all that it is given.
    """

    # Defaults are class attributes, because most runs set only a few of them and a trace is made for each case.
    observations: list[Observation | None] = []  # noqa: RUF012 - a run with snapshots replaces the list
    edges: list[Any] = []  # noqa: RUF012 - likewise
    copies: Mapping[int, tuple[Any, Any]] = MappingProxyType({})
    failure: Failure | None = None
    gradients: Mapping[GradientKey, Any] = MappingProxyType({})
    backward_failure: Raised | None = None
    cotangents: Mapping[int, Any] = MappingProxyType({})
    shown: frozenset[int] | None = None
    fired: int = 0
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
    rank_faults: Sequence[RankFault] = ()
    distributions: Mapping[int, Distribution] = MappingProxyType({})
    replaced: frozenset[int] = frozenset()
    is_kept: bool = False
    delegation: Delegation | None = None
    returned: Mapping[int, Any] = MappingProxyType({})
    expectation: Expectation | None = None

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.facts: list[Facts | None] = []

    def counterpart(self, reference: Trace) -> Trace:
        """Return the trace that this one is held against: the reference's, unless the run has an expectation."""
        return reference if self.expectation is None else self.expectation.trace

    def load(self) -> None:
        """Complete the trace if its backend has deferred that; a backend in this process never does."""


GradientKey: TypeAlias = int | tuple[int, str]


class Background(Protocol):
    """What the source of a test knows about a case; it is asked only if the case fails."""

    def notes(self, candidate: Candidate, verdict: Verdict) -> tuple[str, ...]:
        """Return sentences that are shown with the finding of a backend on a device."""

    def known(self, candidate: Candidate, verdict: Verdict) -> str:
        """Return why a difference is expected of a backend on a device; empty if it is not."""


class Attempt(NamedTuple):
    """One attempt, accepted or rejected, with live values: what was recorded, and what the reference did.

    Attributes:
        program: The recorded program. If the attempt was rejected, it ends with the refused step and has no output.
        trace: The reference's trace.
        sources: Data of each placeholder by key: a tensor of its shape, or the elements of its storage if it is not
            contiguous.
        cotangents: Gradients of the outputs, by position of the output's tensors.
        log: The draw log; each draw is a plain tuple of ``Draw``'s fields.
        profile: The profile that the attempt has in the end.
        refused: The step that the reference refused, if it refused one.
        is_probe: Whether it consists of several calls of a body, and takes several times as long as a case.
        has_outside: Whether an input was made from an array that left the recording, or may have been computed from
            one.
        remarks: Classes of torch in the body of which nothing is tested.
        unfit: The profile that the case was to have and why it is ordinary instead; ``None`` if it has its profile.
        untested: Why nothing of it is compared; ``None`` if something is.
        assumption: The false assumption that ended the body; empty if none did.
        skipped: Why the body skipped the case; empty if it did not.
        unsupported: Why no candidate can run it; ``None`` if the body does not say so.
        notes: What the body says about the case.
        key: The two words of the key of its random streams.
        grid: Combinations of the axes of the test's grid that the body drew.
        point: The values of these axes.
        background: What the source of the test knows about the case.
        dimensions: The free dimensions of its inputs, with their sizes.
        batch: The dimension of the batch of each input that has one, by its key; ``None`` for the first dimension of
            every input.
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
    remarks: frozenset[str] = frozenset()
    unfit: tuple[str, NoProfile] | None = None
    untested: Unsupported | None = None
    assumption: str = ""
    skipped: str = ""
    unsupported: Unsupported | None = None
    notes: tuple[str, ...] = ()
    key: tuple[int, int] = (0, 0)
    grid: int = 1
    point: tuple[object, ...] = ()
    background: Background | None = None
    dimensions: Sequence[FreeDimension] = ()
    batch: Mapping[str, int] | None = None

    @property
    def is_rejected(self) -> bool:
        """Whether the reference refused a step, or the body an assumption."""
        return self.refused is not None or bool(self.assumption)

    @property
    def is_complete(self) -> bool:
        """Whether the body ran to its end."""
        return not (self.is_rejected or self.skipped or self.unsupported)

    @property
    def draws(self) -> list[Draw]:
        """The draw log."""
        return draws_of(self.log)


def overwritten(trace: Trace) -> frozenset[int]:
    """Return the indices of values that a later step wrote to."""
    return frozenset(
        index
        for index, (facts, value) in enumerate(zip(trace.facts, trace.values, strict=True))
        if facts is not None and value._version != facts[2]
    )

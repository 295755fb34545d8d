"""What ranks that share a batch are held against: the whole batch, or where rows are not independent, slice by slice.

The reference stays PyTorch in one process. A test can be split if the slices can run. Where they give what the whole
batch gives, that is what the ranks must give. Where they do not, as for a BatchNorm in training, each rank must give
what one process gives on its slice; gradients of parameters are those of all slices together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.ranks.batch_plan import NotSplitError, RankPlan
from ci_autotest.backends.ranks.batch_split import ranks_of, sliced, with_own_rows, with_sizes
from ci_autotest.backends.ranks.joins import EACH, SAME, is_close, joined
from ci_autotest.backends.ranks.lockstep import Lockstep
from ci_autotest.backends.ranks.wholes import as_plain, module_of
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.backends.trace import Expectation, Failure, Raised, Trace
from ci_autotest.errors import UnsupportedReason
from ci_autotest.program.ir import PARAMETER, output_refs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ci_autotest.backends.ranks.batch_split import Slices
    from ci_autotest.backends.ranks.slice_comparison import Decisions
    from ci_autotest.program.ir import Program

_Tensor: Final = torch.Tensor
_MIXED: Final = (
    "compared per slice: the rows of the batch are not independent here, as in a BatchNorm in training without "
    "synchronisation"
)
_OF_BUFFERS: Final = (
    "buffers are compared per slice: {} depend on the rows of a rank, as the running mean of a BatchNorm"
)


def split_plan(
    program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any], ranks: int, *, shares_buffers: bool
) -> tuple[Slices, RankPlan]:
    """Return the parts of a case, and how they run on ranks.

    A body that holds the number of all rows as a size, as of ``x.view(x.size(0), 2)``, has the number of a rank's own
    rows there, unless the slices give what the whole batch gives without that only.

    Raises:
        NotSplitError: A slice cannot run alone, or the test has no parameters.
    """
    slices = sliced(program, sources, ranks)
    own = with_own_rows(program, slices)
    found: list[tuple[Slices, RankPlan]] = []
    errors: list[NotSplitError] = []
    for each in (slices,) if own is None else (own, slices):
        try:
            plan = plan_of(program, sources, cotangents, each, shares_buffers=shares_buffers)
        except NotSplitError as error:
            errors.append(error)
            continue
        if not plan.is_mixed:
            return each, plan
        found.append((each, plan))
    if not found:
        raise errors[-1]
    return found[0]


def plan_of(
    program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any], slices: Slices, *,
    shares_buffers: bool = True,
) -> RankPlan:  # fmt: skip
    """Return how a case runs on ranks.

    Args:
        program: The program of the whole batch.
        sources: Data of each placeholder by key.
        cotangents: Gradients of the outputs, by position.
        slices: The parts of the program.
        shares_buffers: Whether ranks get the buffers of the first one before each forward pass.

    Raises:
        NotSplitError: A slice cannot run alone, or the test has no parameters.
    """
    reference = TorchBackend(is_candidate=True)
    whole = reference.run(program, sources, snapshots=True)
    if whole.failure is not None:
        raise NotSplitError(UnsupportedReason.BATCH, f"the whole batch raises {whole.failure.message}")
    if not _trains(program, whole):
        raise NotSplitError(UnsupportedReason.NO_PARAMETERS, "the test has no parameters that ranks could train")
    if cotangents:
        reference.backward(program, whole, cotangents)
    lockstep, plan = _planned(Lockstep(program, slices, whole, shares_buffers=shares_buffers), cotangents)
    if plan.is_mixed and lockstep.comparison.is_ambiguous:
        # A sum whose parts and whole are all zero could also be a mean: then the gradients decide.
        summed = Lockstep(program, slices, whole, prefer="sum", shares_buffers=shares_buffers)
        other = _planned(summed, cotangents)
        if not other[1].is_mixed:
            lockstep, plan = other
    return plan if plan.mixes is not None else plan._replace(expectation=_expectation(lockstep, plan))


def _planned(lockstep: Lockstep, cotangents: Mapping[int, Any]) -> tuple[Lockstep, RankPlan]:
    lockstep.forward()
    return lockstep, lockstep.plan(cotangents)


def _trains(program: Program, whole: Trace) -> bool:
    modules = [value for value in whole.values[: len(program.setup)] if isinstance(value, torch.nn.Module)]
    if any(parameter.requires_grad for module in modules for parameter in module.parameters()):
        return True
    return any(spec.state == PARAMETER and spec.requires_grad for step in program.body if (spec := step.spec))


def _expectation(lockstep: Lockstep, plan: RankPlan) -> Expectation | None:
    """Return what the ranks are held against; ``None`` for the whole batch."""
    decisions = lockstep.comparison.decisions
    if not (decisions.is_mixed or plan.of_slices):
        return None
    names = ", ".join(sorted({name or lockstep.program.steps[index].name for index, name in plan.of_slices}))
    sentence = _MIXED if decisions.is_mixed else _OF_BUFFERS.format(names)
    first = len(lockstep.program.setup)
    reference = SliceReference(decisions._replace(sized=tuple(index - first for index in lockstep.slices.sized)))
    return Expectation(_joined_trace(lockstep), reference, sentence, _of_whole(lockstep))


class SliceTrace(Trace):
    """A trace of the slices, which a backward pass goes on from."""

    def __init__(self, lockstep: Lockstep) -> None:
        super().__init__()
        whole = lockstep.whole
        self.lockstep = lockstep
        self.values, self.facts = list(whole.values), list(whole.facts)
        self.observations, self.edges = list(whole.observations), list(whole.edges)
        self.gradients, self.backward_failure = whole.gradients, whole.backward_failure


class SliceReference:
    """PyTorch in one process, slice by slice: the trace has what is that of slices joined as the ranks' values are.

    Args:
        decisions: How the values of the body are joined.
    """

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions
        self._torch = TorchBackend(is_candidate=True)

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,  # noqa: ARG002 - the slices are always compared with snapshots of the whole batch
        copied: Collection[int] = (),  # noqa: ARG002 - likewise
    ) -> Trace:
        """Run the slices forward; a slice that cannot run alone is a failure of the output."""
        whole = self._torch.run(program, sources, snapshots=True)
        if whole.failure is not None:
            return whole
        decisions, first = self._decisions, len(program.setup)
        # The setup of a program in float64 is longer.
        slices = with_sizes(sliced(program, sources, ranks_of(program, 0)), [first + at for at in decisions.sized])
        try:
            lockstep = Lockstep(program, slices, whole, decisions=decisions, shares_buffers=decisions.shares_buffers)
            lockstep.forward()
        except NotSplitError as error:
            whole.failure = Failure(len(program.steps) - 1, type(error).__name__, error.why.detail, error.why)
            return whole
        return _joined_trace(lockstep)

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run the backward pass of the whole batch, and of the slices in its place."""
        if not isinstance(trace, SliceTrace):
            return
        lockstep = trace.lockstep
        self._torch.backward(program, lockstep.whole, cotangents)
        try:
            lockstep.backward(cotangents)
        except NotSplitError as error:
            trace.gradients, trace.backward_failure = {}, Raised(type(error).__name__, error.why.detail)
            return
        ended = _joined_trace(lockstep)
        trace.values, trace.gradients = ended.values, ended.gradients
        trace.backward_failure = lockstep.whole.backward_failure


def _joined_trace(lockstep: Lockstep) -> SliceTrace:
    """Return the run of the whole batch, with what is that of slices in its place."""
    trace = SliceTrace(lockstep)
    decisions, buffers = lockstep.comparison.decisions, lockstep.buffers_of_body()
    for index in lockstep.joins if decisions.is_mixed else buffers:
        join = EACH if index in buffers and not decisions.shares_buffers else lockstep.joins[index]
        parts = [values[index] for values in lockstep.values]
        if all(isinstance(part, _Tensor) for part in parts):
            flags = parts[0].requires_grad, parts[0].is_leaf
            value = as_plain(joined(parts, join, lockstep.slices.shares), requires_grad=flags[0], is_leaf=flags[1])
            trace.values[index], trace.facts[index] = value, (*flags, value._version)
            trace.observations[index] = observed(value)
    if decisions.is_mixed:
        trace.gradients = {**trace.gradients, **lockstep.comparison.gradients}
    modules: dict[int, Any] = {}
    for index in lockstep.modules():
        # A method such as ``train`` returns its module.
        owner = id(lockstep.whole.values[index])
        if owner not in modules:
            modules[owner] = module_of(_state(lockstep, index))
        trace.values[index] = modules[owner]
    return trace


def _state(lockstep: Lockstep, index: int) -> dict[str, torch.Tensor]:
    """Return the state of a module: its buffers are those of slices, and its parameters too if rows are mixed."""
    owner, decisions = lockstep.whole.values[index], lockstep.comparison.decisions
    owned = {name for name, _ in owner.named_buffers()}
    states = [values[index].state_dict() for values in lockstep.values]
    state = {}
    for name, whole in owner.state_dict().items():
        parts = [each[name].detach() for each in states]
        own = joined(parts, EACH if name in owned and not decisions.shares_buffers else SAME, lockstep.slices.shares)
        state[name] = (own if decisions.is_mixed or name in owned else whole.detach()).clone()
    return state


def _of_whole(lockstep: Lockstep) -> dict[int, torch.Tensor]:
    """Return the outputs of the whole batch that are not those of the slices."""
    apart = {}
    for index in {ref.index for ref in output_refs(lockstep.program)} & lockstep.joins.keys():
        whole, parts = lockstep.whole.values[index], [values[index] for values in lockstep.values]
        if isinstance(whole, _Tensor) and not is_close(
            joined(parts, lockstep.joins[index], lockstep.slices.shares), whole
        ):  # fmt: skip
            apart[index] = whole.detach()
    return apart

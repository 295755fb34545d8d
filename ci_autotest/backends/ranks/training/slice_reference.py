"""What ranks that share a batch are held against: the whole batch, or where rows are not independent, slice by slice.

The reference stays PyTorch in one process. A test can be split if the slices can run. Where they give what the whole
batch gives, that is what the ranks must give. Where they do not, as for a BatchNorm in training, each rank must give
what one process gives on its slice; gradients of parameters are those of all slices together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.ranks.training.batch_plan import NotSplitError, RankPlan, raised_on_slice, weighted_backward
from ci_autotest.backends.ranks.training.batch_split import (
    ranks_of,
    rows_of,
    sliced,
    split_dimension,
    with_own_rows,
    with_sizes,
)
from ci_autotest.backends.ranks.training.joins import EACH, SAME, Join, is_close, joined, rows_join, total
from ci_autotest.backends.ranks.training.slice_comparison import SliceComparison
from ci_autotest.backends.ranks.wholes import as_plain, module_of
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.backends.trace import Expectation, Failure, Raised, Trace
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import UnsupportedReason
from ci_autotest.host.steps import execute_step
from ci_autotest.program.distribution import REPLICATE, Distribution, shard
from ci_autotest.program.ir import BUFFER, OUTPUT, PARAMETER, PLACEHOLDER, output_refs, step_refs
from ci_autotest.program.training_parts import BACKWARD, parts_of_body

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ci_autotest.backends.ranks.training.batch_split import Slices
    from ci_autotest.backends.ranks.training.slice_comparison import Decisions
    from ci_autotest.backends.trace import GradientKey
    from ci_autotest.program.ir import Program, Step


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
    lockstep, plan = _planned(_Lockstep(program, slices, whole, shares_buffers=shares_buffers), cotangents)
    if plan.is_mixed and lockstep.comparison.is_ambiguous:
        # A sum whose parts and whole are all zero could also be a mean: then the gradients decide.
        summed = _Lockstep(program, slices, whole, prefer="sum", shares_buffers=shares_buffers)
        other = _planned(summed, cotangents)
        if not other[1].is_mixed:
            lockstep, plan = other
    return plan if plan.mixes is not None else plan._replace(expectation=_expectation(lockstep, plan))


def _planned(lockstep: _Lockstep, cotangents: Mapping[int, Any]) -> tuple[_Lockstep, RankPlan]:
    lockstep.forward()
    return lockstep, lockstep.plan(cotangents)


def _trains(program: Program, whole: Trace) -> bool:
    modules = [value for value in whole.values[: program.start] if isinstance(value, torch.nn.Module)]
    if any(parameter.requires_grad for module in modules for parameter in module.parameters()):
        return True
    return any(spec.state == PARAMETER and spec.requires_grad for spec in program.inputs.values())


def _expectation(lockstep: _Lockstep, plan: RankPlan) -> Expectation | None:
    """Return what the ranks are held against; ``None`` for the whole batch."""
    decisions = lockstep.comparison.decisions
    if not (decisions.is_mixed or plan.of_slices):
        return None
    names = ", ".join(sorted({name or lockstep.program.steps[index].name for index, name in plan.of_slices}))
    sentence = _MIXED if decisions.is_mixed else _OF_BUFFERS.format(names)
    sized = tuple(index - lockstep.program.start for index in lockstep.slices.sized)
    reference = SliceReference(decisions._replace(sized=sized))
    return Expectation(_joined_trace(lockstep), reference, sentence, _of_whole(lockstep))


class SliceTrace(Trace):
    """A trace of the slices, which a backward pass goes on from."""

    def __init__(self, lockstep: _Lockstep) -> None:
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
        decisions = self._decisions
        # The setup of a program in float64 is longer.
        sized = [program.start + at for at in decisions.sized]
        slices = with_sizes(sliced(program, sources, ranks_of(program, 0)), sized)
        try:
            lockstep = _Lockstep(program, slices, whole, decisions=decisions, shares_buffers=decisions.shares_buffers)
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


def _joined_trace(lockstep: _Lockstep) -> SliceTrace:
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


def _state(lockstep: _Lockstep, index: int) -> dict[str, torch.Tensor]:
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


def _of_whole(lockstep: _Lockstep) -> dict[int, torch.Tensor]:
    """Return the outputs of the whole batch that are not those of the slices."""
    apart = {}
    for index in {ref.index for ref in output_refs(lockstep.program)} & lockstep.joins.keys():
        whole, parts = lockstep.whole.values[index], [values[index] for values in lockstep.values]
        if isinstance(whole, _Tensor) and not is_close(
            joined(parts, lockstep.joins[index], lockstep.slices.shares), whole
        ):  # fmt: skip
            apart[index] = whole.detach()
    return apart


# The slices of a batch in one process: they run step by step beside one another.
#
# After each backward pass the gradients of parameters are added over the slices, as ranks do, and before each forward
# pass the slices get the buffers of the first one, if ranks do. This tells how the values of the ranks are joined. What
# mixes rows, for example the statistics of a BatchNorm in training, is not that of the whole batch by its definition.


_Module: Final = torch.nn.Module


class _Lockstep:
    """The slices of a case in this process.

    Args:
        program: The program of the whole batch.
        slices: Its parts.
        whole: The run of the whole batch, with snapshots and gradients.
        prefer: Which join a value has that fits several.
        decisions: What an earlier run found out; ``None`` to find it out.
        shares_buffers: Whether ranks get the buffers of the first one before each forward pass.

    Attributes:
        values: The value of each step, for each slice.
        joins: How inputs, modules and outputs are joined, by index.
        comparison: What they give, held against the whole batch.
    """

    def __init__(
        self, program: Program, slices: Slices, whole: Trace, *,
        prefer: str = "mean", decisions: Decisions | None = None, shares_buffers: bool = True,
    ) -> None:  # fmt: skip
        self.program, self.slices, self.whole = program, slices, whole
        self._shares_buffers = shares_buffers
        self.comparison = SliceComparison(
            program, whole, slices.shares, prefer=prefer, decisions=decisions, shares_buffers=shares_buffers
        )
        self._steps = TorchSteps(is_candidate=True)
        self._bindings = [self._steps.binding(sources) for sources in slices.sources]
        self.values: list[list[Any]] = [[] for _ in slices.programs]
        self._weights: dict[int, list[float]] = {}
        self._distributions: dict[int, Distribution] = {}
        self.joins: dict[int, Join] = {}
        self._has_unused = False

    def forward(self) -> None:
        """Run the steps, and find out how the outputs are joined."""
        program = self.program
        begins = {part.indices[0] for part in parts_of_body(program) if part.is_forward}
        for index, step in enumerate(program.steps):
            if index in begins:
                self._share_buffers()
            self._execute(index, step)
            if step.op != OUTPUT and not step.in_setup:
                self._note_distribution(index)
        outputs = {
            ref.index: self.comparison.output(ref.index, [values[ref.index] for values in self.values])
            for ref in output_refs(program)
        }
        self.joins = {**self._inputs(), **{index: join for index, join in outputs.items() if join is not None}}

    def backward(self, cotangents: Mapping[int, Any]) -> list[dict[int, torch.Tensor]]:
        """Run the automatic backward pass; return the part of each rank in what goes into it."""
        given = self._cotangents(cotangents, self.joins)
        if cotangents:
            self._backward(given)
            self.comparison.take_gradients(self._keys(), self.values)
        return given

    def plan(self, cotangents: Mapping[int, Any]) -> RankPlan:
        """Return how the case runs on ranks, once the slices have run forward."""
        given = self.backward(cotangents)
        of_slices = self.comparison.of_slices(self.values)
        if not self._shares_buffers and (self.comparison.decisions.is_mixed or of_slices):
            self.joins.update(dict.fromkeys(self.buffers_of_body(), EACH))
        count = len(self.values)
        weighted = [{at: weight * count for at, weight in own.items()} for own in given]
        return RankPlan(
            self.joins, {at: [weight * count for weight in own] for at, own in self._weights.items()}, weighted,
            self._keys(), self.modules(), of_slices, self._has_unused, self.comparison.why_not_held(),
            self._distributions, self._buffers(), self.comparison.decisions.is_mixed,
        )  # fmt: skip

    def _share_buffers(self) -> None:
        """Give each slice the buffers of the first one."""
        if not self._shares_buffers:
            return
        first, *others = self.values
        with torch.no_grad():
            for values in others:
                for index, value in enumerate(values):
                    if isinstance(value, _Module):
                        own = dict(first[index].named_buffers())
                        for name, buffer in value.named_buffers():
                            buffer.copy_(own[name])
                for index in self.buffers_of_body():
                    if index < len(values):
                        values[index].copy_(first[index])

    def _keys(self) -> list[GradientKey]:
        """Return the leaves and parameters that have gradients."""
        steps = self.program.steps
        return [key for key in self.whole.gradients if isinstance(key, tuple) or steps[key].op == PLACEHOLDER]

    def _buffers(self) -> frozenset[tuple[int, str]]:
        """Return all buffers of modules."""
        return frozenset(
            (index, name) for index in self.modules() for name, _ in self.whole.values[index].named_buffers()
        )

    def buffers_of_body(self) -> list[int]:
        """Return the buffers that the body holds besides its modules."""
        return [index for index, spec in self.program.inputs.items() if spec.state == BUFFER]

    def _execute(self, index: int, step: Step) -> None:
        if step.target == BACKWARD and not step.in_setup:
            self._own_backward(index, step)
            return
        if step.op == OUTPUT:
            for values in self.values:
                values.append(None)
            return
        before = _seeded(step) if step.seed is not None and not step.in_setup else None
        for rank, values in enumerate(self.values):
            try:
                values.append(execute_step(self.slices.programs[rank].steps[index], values, self._bindings[rank]))
            except FOREIGN as error:
                pass_interrupt(error)
                rows = self.slices.rows
                raised = f"{step.target} raises {type(error).__name__} on {rows[rank]} of {sum(rows)} rows"
                raise raised_on_slice(raised, error) from error
        if before is not None and not torch.equal(before, torch.default_generator.get_state()):
            self.comparison.draws = self.comparison.draws or step.name

    def _own_backward(self, index: int, step: Step) -> None:
        """Run a backward pass of the body on each slice, with the part that it has in the loss."""
        root = step_refs(step)[0].index
        parts = [values[root] for values in self.values]
        seen = self.whole.observations[root]
        join = self.comparison.join(root, parts, seen.data) if seen is not None else None
        weights = self._weights[index] = (join or Join("mean")).weights(self.slices.shares)

        def run() -> None:
            for values, weight, binding in zip(self.values, weights, self._bindings, strict=True):
                weighted_backward(step, values, weight, binding)
                values.append(None)

        try:
            self._summed(run)
        except FOREIGN as error:
            pass_interrupt(error)
            raised = f"a backward pass of the body raises {type(error).__name__} on the rows of one rank"
            raise raised_on_slice(raised, error) from error

    def _summed(self, run: Any) -> None:
        """Run backward passes, and add what each slice gives to a parameter."""
        owned = [self._parameters(values) for values in self.values]
        held = [[parameter.grad for parameter in parameters] for parameters in owned]
        for parameters in owned:
            for parameter in parameters:
                parameter.grad = None
        run()
        for number in range(len(owned[0])):
            given = [parameters[number].grad for parameters in owned]
            present = [gradient for gradient in given if gradient is not None]
            self._has_unused |= not present
            for parameters, earlier in zip(owned, held, strict=True):
                before, now = earlier[number], total(present) if present else None
                parameters[number].grad = before if now is None else now if before is None else before + now

    def _parameters(self, values: Sequence[Any]) -> list[torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for index, step in enumerate(self.program.steps[: len(values)]):
            spec = step.spec
            if spec is not None and spec.state == PARAMETER and spec.requires_grad:
                found[id(values[index])] = values[index]
            elif isinstance(values[index], _Module):
                found.update((id(each), each) for each in values[index].parameters() if each.requires_grad)
        return list(found.values())

    def modules(self) -> list[int]:
        """Return the steps whose values are modules."""
        return [index for index, value in enumerate(self.whole.values) if isinstance(value, _Module)]

    def _note_distribution(self, index: int) -> None:
        """Note how a value lies on the ranks, for a step that takes it alone."""
        seen, parts = self.whole.observations[index], [values[index] for values in self.values]
        if seen is None or not isinstance(seen.data, _Tensor) or not all(isinstance(part, _Tensor) for part in parts):
            return
        join = rows_join(parts, seen.data)
        lies = REPLICATE if join is None else shard(join.dimension)
        self._distributions[index] = Distribution((len(parts),), (lies,))

    def _inputs(self) -> dict[int, Join]:
        """Return how inputs and what modules hold are joined."""
        found = dict.fromkeys(self.modules(), SAME)
        for index, spec in self.program.inputs.items():
            dimension = split_dimension(spec)
            found[index] = SAME if dimension is None else Join("rows", dimension)
        return found

    def _cotangents(self, cotangents: Mapping[int, Any], joins: Mapping[int, Join]) -> list[dict[int, torch.Tensor]]:
        """Return the part of each rank in what goes into the backward pass."""
        found: list[dict[int, torch.Tensor]] = [{} for _ in self.values]
        refs = output_refs(self.program)
        for position, whole in cotangents.items():
            join = joins.get(refs[position].index)
            if join is None:
                continue
            for rank, weight in enumerate(join.weights(self.slices.shares)):
                part = rows_of(whole, join.dimension, self._sizes(refs[position].index, join), rank) if (
                    join.kind == "rows"
                ) else whole.detach()  # fmt: skip
                found[rank][position] = part * weight
        return found

    def _sizes(self, index: int, join: Join) -> list[int]:
        return [values[index].shape[join.dimension] for values in self.values]

    def _backward(self, given: Sequence[Mapping[int, torch.Tensor]]) -> None:
        refs = output_refs(self.program)

        def run() -> None:
            for values, own in zip(self.values, given, strict=True):
                pairs = [(values[refs[at].index], weight) for at, weight in own.items()]
                pairs = [(value, weight) for value, weight in pairs if value.requires_grad]
                if pairs:
                    torch.autograd.backward([value for value, _ in pairs], [weight for _, weight in pairs])

        try:
            self._summed(run)
        except FOREIGN as error:
            pass_interrupt(error)
            raised = f"the backward pass raises {type(error).__name__} on the rows of one rank"
            raise raised_on_slice(raised, error) from error


def _seeded(step: Step) -> torch.Tensor:
    """Return the state of the generator as a random step finds it."""
    assert step.seed is not None  # noqa: S101 - the caller looked
    return torch.default_generator.manual_seed(step.seed).get_state()

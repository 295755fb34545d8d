"""What a batch that is split must give, seen in one process: its slices run step by step beside one another.

After each backward pass the gradients of parameters are added over the slices, as ranks do. This tells how the values
of the ranks are joined, and whether a test can be split at all: the slices must give what the whole batch gives. What
mixes rows, for example the statistics of a BatchNorm in training, differs by its definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.ranks.batch_plan import NotSplitError, Plan, raised_on_slice, weighted_backward
from ci_autotest.backends.ranks.batch_split import rows_of, spec_of, split_dimension
from ci_autotest.backends.ranks.joins import SAME, Join, is_close, joins_of, rows_join, total
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import Unsupported, UnsupportedReason
from ci_autotest.host.steps import execute_step
from ci_autotest.program.distribution import REPLICATE, Distribution, shard
from ci_autotest.program.ir import BUFFER, OUTPUT, PARAMETER, PLACEHOLDER, Ref, output_refs
from ci_autotest.program.training_parts import BACKWARD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.backends.ranks.batch_split import Slices
    from ci_autotest.backends.trace import GradientKey, Trace
    from ci_autotest.program.ir import Program, Step

_Tensor: Final = torch.Tensor
_Module: Final = torch.nn.Module
#: A sum whose parts and whole are all zero could also be a mean: then the gradients decide.
_PREFERENCES: Final = ("mean", "sum")


def plan_of(program: Program, sources: Mapping[str, Any], cotangents: Mapping[int, Any], slices: Slices) -> Plan:
    """Return how a case runs on ranks.

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
    first, second = (_Lockstep(program, slices, whole, prefer) for prefer in _PREFERENCES)
    plan = first.plan(cotangents)
    if plan.mixes is None:
        return plan
    other = second.plan(cotangents)
    return other if other.mixes is None else plan


def _trains(program: Program, whole: Trace) -> bool:
    modules = [value for value in whole.values[: len(program.setup)] if isinstance(value, _Module)]
    if any(parameter.requires_grad for module in modules for parameter in module.parameters()):
        return True
    return any(spec.state == PARAMETER and spec.requires_grad for step in program.body if (spec := spec_of(step)))


class _Lockstep:
    """The slices of a case in this process.

    Args:
        program: The program of the whole batch.
        slices: Its parts.
        whole: The run of the whole batch, with snapshots and gradients.
        prefer: Which join a value has that fits several.
    """

    def __init__(self, program: Program, slices: Slices, whole: Trace, prefer: str) -> None:
        self._program, self._slices, self._whole, self._prefer = program, slices, whole, prefer
        self._steps = TorchSteps(is_candidate=True)
        self._bindings = [self._steps.binding(sources) for sources in slices.sources]
        self._values: list[list[Any]] = [[] for _ in slices.programs]
        self._weights: dict[int, list[float]] = {}
        self._distributions: dict[int, Distribution] = {}
        self._has_unused = False
        self._mixes = ""

    def plan(self, cotangents: Mapping[int, Any]) -> Plan:
        program = self._program
        for index, step in enumerate(program.steps):
            self._execute(index, step)
            if step.op != OUTPUT and not step.in_setup:
                self._note_distribution(index)
        outputs = {ref.index: self._output(ref.index) for ref in output_refs(program)}
        joins = {**self._inputs(), **{index: join for index, join in outputs.items() if join is not None}}
        given = self._cotangents(cotangents, joins)
        keys = [
            key for key in self._whole.gradients
            if isinstance(key, tuple) or program.steps[key].op == PLACEHOLDER
        ]  # fmt: skip
        if cotangents:
            self._backward(given)
            self._check_gradients(keys)
        of_slices = self._check_states()
        count = len(self._values)
        weighted = [{at: weight * count for at, weight in own.items()} for own in given]
        mixes = Unsupported(UnsupportedReason.BATCH, self._mixes) if self._mixes else None
        return Plan(
            joins, {at: [weight * count for weight in own] for at, own in self._weights.items()}, weighted, keys,
            self._modules(), of_slices, self._has_unused, mixes, self._distributions,
        )  # fmt: skip

    def _execute(self, index: int, step: Step) -> None:
        if step.target == BACKWARD and not step.in_setup:
            self._own_backward(index, step)
            return
        for rank, values in enumerate(self._values):
            if step.op == OUTPUT:
                values.append(None)
                continue
            try:
                values.append(execute_step(self._slices.programs[rank].steps[index], values, self._bindings[rank]))
            except FOREIGN as error:
                pass_interrupt(error)
                rows = self._slices.rows
                raised = f"{step.target} raises {type(error).__name__} on {rows[rank]} of {sum(rows)} rows"
                raise raised_on_slice(raised, error) from error

    def _own_backward(self, index: int, step: Step) -> None:
        """Run a backward pass of the body on each slice, with the part that it has in the loss."""
        root = step.args[0]
        assert isinstance(root, Ref)  # noqa: S101 - the receiver of a method
        parts = [values[root.index] for values in self._values]
        seen = self._whole.observations[root.index]
        join = self._chosen(joins_of(parts, seen.data, self._slices.shares)) if seen is not None else None
        if join is None:
            self._mix(root.index)
            join = Join("mean")
        weights = self._weights[index] = join.weights(self._slices.shares)

        def run() -> None:
            for values, weight, binding in zip(self._values, weights, self._bindings, strict=True):
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
        owned = [self._parameters(values) for values in self._values]
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
        for index, step in enumerate(self._program.steps[: len(values)]):
            spec = spec_of(step)
            if spec is not None and spec.state == PARAMETER and spec.requires_grad:
                found[id(values[index])] = values[index]
            elif isinstance(values[index], _Module):
                found.update((id(each), each) for each in values[index].parameters() if each.requires_grad)
        return list(found.values())

    def _modules(self) -> list[int]:
        return [index for index, value in enumerate(self._whole.values) if isinstance(value, _Module)]

    def _chosen(self, joins: Sequence[Join]) -> Join | None:
        if self._prefer == "sum" and Join("sum") in joins:
            return Join("sum")
        return joins[0] if joins else None

    def _output(self, index: int) -> Join | None:
        """Return how an output is joined; ``None`` if its parts do not make the whole."""
        whole, parts = self._whole.values[index], [values[index] for values in self._values]
        if not isinstance(whole, _Tensor):
            if any(part != whole for part in parts):
                self._mix(index)
            return SAME
        join = self._chosen(joins_of(parts, whole, self._slices.shares))
        if join is None:
            self._mix(index)
            return rows_join(parts, whole)
        return join

    def _mix(self, index: int) -> None:
        step = self._program.steps[index]
        self._mixes = self._mixes or (
            f"rows are not independent: {step.name} of a part of the batch is not that part of {step.name} of the "
            "whole batch, as for a BatchNorm in training. Only whether the ranks agree is compared"
        )

    def _note_distribution(self, index: int) -> None:
        """Note how a value lies on the ranks, for a step that takes it alone."""
        seen, parts = self._whole.observations[index], [values[index] for values in self._values]
        if seen is None or not isinstance(seen.data, _Tensor) or not all(isinstance(part, _Tensor) for part in parts):
            return
        join = rows_join(parts, seen.data)
        lies = REPLICATE if join is None else shard(join.dimension)
        self._distributions[index] = Distribution((len(parts),), (lies,))

    def _inputs(self) -> dict[int, Join]:
        """Return how inputs and what modules hold are joined."""
        found = dict.fromkeys(self._modules(), SAME)
        for index, step in enumerate(self._program.steps):
            spec = spec_of(step)
            if spec is not None and not step.in_setup:
                dimension = split_dimension(spec)
                found[index] = SAME if dimension is None else Join("rows", dimension)
        return found

    def _cotangents(self, cotangents: Mapping[int, Any], joins: Mapping[int, Join]) -> list[dict[int, torch.Tensor]]:
        """Return the part of each rank in what goes into the backward pass."""
        found: list[dict[int, torch.Tensor]] = [{} for _ in self._values]
        refs = output_refs(self._program)
        for position, whole in cotangents.items():
            join = joins.get(refs[position].index)
            if join is None:
                continue
            for rank, weight in enumerate(join.weights(self._slices.shares)):
                part = rows_of(whole, join.dimension, self._sizes(refs[position].index, join), rank) if (
                    join.kind == "rows"
                ) else whole.detach()  # fmt: skip
                found[rank][position] = part * weight
        return found

    def _sizes(self, index: int, join: Join) -> list[int]:
        return [values[index].shape[join.dimension] for values in self._values]

    def _backward(self, given: Sequence[Mapping[int, torch.Tensor]]) -> None:
        refs = output_refs(self._program)

        def run() -> None:
            for values, own in zip(self._values, given, strict=True):
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

    def _check_gradients(self, keys: Sequence[GradientKey]) -> None:
        for key in keys:
            whole = self._whole.gradients[key]
            parts = [_gradient_of(values, key) for values in self._values]
            if whole is None or any(part is None for part in parts):
                continue
            index = key if isinstance(key, int) else key[0]
            spec = spec_of(self._program.steps[index])
            dimension = split_dimension(spec) if spec is not None else None
            is_state = isinstance(key, tuple) or bool(spec and spec.state)
            given = [part for part in parts if part is not None]
            now = given[0] if is_state else torch.cat(given, dimension) if dimension is not None else total(given)
            if not is_close(now, whole):
                self._mix(index)

    def _check_states(self) -> frozenset[tuple[int, str]]:
        """Return the buffers whose values are those of a slice, by their definition."""
        found = set()
        for index in self._modules():
            whole = self._whole.values[index]
            parameters = dict(whole.named_parameters())
            for name, tensor in whole.state_dict().items():
                if any(not is_close(values[index].state_dict()[name], tensor) for values in self._values):
                    if name in parameters:
                        self._mix(index)
                    found.add((index, name))
        for index, step in enumerate(self._program.steps):
            spec = spec_of(step)
            if spec is not None and spec.state and not step.in_setup:
                whole = self._whole.values[index]
                if any(not is_close(values[index], whole) for values in self._values):
                    if spec.state != BUFFER:
                        self._mix(index)
                    found.add((index, ""))
        return frozenset(found)


def _gradient_of(values: Sequence[Any], key: GradientKey) -> torch.Tensor | None:
    """Return the gradient that a leaf or parameter holds."""
    owner = values[key] if isinstance(key, int) else values[key[0]].get_parameter(key[1])
    found: torch.Tensor | None = owner.grad
    return found

"""One run of a program on DTensors: the same code in each rank's process, and once for all simulated ranks.

The setup runs on plain tensors, as on every side; then the parameters of its modules are distributed. A tensor that a
step makes from no other tensor is the same on every rank.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch
from torch.distributed.tensor import DTensor, Replicate

from ci_autotest.backends.autograd_engine import gradient_edge
from ci_autotest.backends.backward import backward
from ci_autotest.backends.input_copies import place
from ci_autotest.backends.protocol import IN_BACKWARD
from ci_autotest.backends.ranks.parts import as_dtensor, dense_strides, distribution_of
from ci_autotest.backends.ranks.ranks import RankError
from ci_autotest.backends.ranks.refusals import refusal_of_ranks, sentence_of
from ci_autotest.backends.trace import Failure, Raised, RankFault, Trace
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import Unsupported, UnsupportedReason, error_text, user_frame_text
from ci_autotest.host.steps import execute_step
from ci_autotest.program.distribution import PARTIAL, REPLICATE, Distribution
from ci_autotest.program.ir import (
    ARRAY,
    CALL_METHOD,
    OUTPUT,
    Ref,
    TensorSpec,
    step_refs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from torch.distributed.device_mesh import DeviceMesh

    from ci_autotest.backends.torch_steps import TorchSteps
    from ci_autotest.backends.trace import GradientKey
    from ci_autotest.program.ir import Program, Step

_Tensor: Final = torch.Tensor


def fault_of(error: RankError, index: int, key: GradientKey | None = None) -> RankFault:
    """Return an error of the ranks as a fault at a step or a gradient."""
    return RankFault(index, key, is_call=error.is_call, seen=error.seen, expected=error.expected, detail=error.detail)


def _mixed(error: BaseException) -> Unsupported:
    return Unsupported(UnsupportedReason.NO_SHARDING_RULE, sentence_of(error))


class Ranks(Protocol):
    """The ranks that this process runs: all of them if they are simulated, or one.

    Attributes:
        mesh: The mesh.
        sizes: Its sizes.
        device: The device of these ranks.
    """

    mesh: DeviceMesh
    sizes: tuple[int, ...]
    device: torch.device

    def own_part(self, tensor: torch.Tensor, distribution: Distribution) -> torch.Tensor:
        """Return the part of a plain tensor that the ranks of this process hold."""

    def active(self) -> AbstractContextManager[object]:
        """Return the context in which operators run on these ranks."""

    def seed(self, number: int) -> None:
        """Seed the generator of each rank."""

    def shapes(self, part: torch.Tensor) -> Mapping[int, tuple[int, ...]]:
        """Return the shape of the part that each rank of this process holds."""

    def is_of_kernel(self, error: BaseException) -> bool:
        """Whether an operator on a rank's part raised an error, and not DTensor itself."""

    def is_mixed(self) -> bool:
        """Whether the last operator that DTensor got took a plain tensor too."""


class RankRun:
    """One run.

    Args:
        ranks: The ranks.
        steps: The meaning of steps in torch.
        on_step: Called with the index of each step before it runs.
        seen: Called inside of the ranks' context with each value of the body and its index, as soon as it is there.
    """

    def __init__(
        self,
        ranks: Ranks,
        steps: TorchSteps,
        on_step: Callable[[int], None] | None,
        seen: Callable[[int, Any], None] | None = None,
    ) -> None:
        self._ranks, self._steps, self._on_step, self._seen = ranks, steps, on_step, seen
        mesh = ranks.mesh
        self._mesh = ranks.sizes
        self._everywhere = Distribution(self._mesh, (REPLICATE,) * mesh.ndim)
        self.faults: list[RankFault] = []

    def forward(self, program: Program, sources: Mapping[str, Any], *, keeps_edges: bool = False) -> Trace:
        """Run the program forward; an error ends the run and is noted in the trace, whose tensors are DTensors."""
        trace = Trace()
        if keeps_edges:
            trace.edges = []
        binding = self._steps.binding(sources)
        binding.run = (trace, program.steps)
        for step in program.setup:
            if not self._executed(step, trace, binding, sources):
                return trace
        with self._ranks.active():
            self._distribute_modules(program, trace)
            for step in program.body:
                if not self._executed(step, trace, binding, sources):
                    return trace
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run the backward pass; the gradients in the trace are DTensors."""
        if self._on_step is not None:
            self._on_step(IN_BACKWARD)

        def lacks(error: BaseException) -> Unsupported | None:
            if isinstance(error, RankError):
                self._note(error, program.calls[-1][0] if program.calls else len(program.steps) - 1, key=-1)
                return None
            return self._refusal(error)

        with self._ranks.active():
            try:
                backward(program, trace, cotangents, self._weight, lacks)
            except FOREIGN as error:  # Looking for the graph of a view may raise too.
                pass_interrupt(error)
                trace.backward_failure = Raised(type(error).__name__, error_text(error))
                trace.backward_lacking = lacks(error)

    def _executed(self, step: Step, trace: Trace, binding: Any, sources: Mapping[str, Any]) -> bool:
        values, index = trace.values, len(trace.values)
        if step.op == OUTPUT:
            values.append(None)
            trace.facts.append(None)
            return True
        if self._on_step is not None:
            self._on_step(index)
        value: Any
        try:
            if step.seed is not None:
                self._ranks.seed(step.seed)
            if (spec := step.spec) is not None and not step.in_setup:
                value = self.placed(sources[step.target], spec)
            elif (tensor := _converted(step, values)) is not None:
                value = tensor.detach().clone()  # the whole array exists where ranks are gathered
            else:
                value = execute_step(step, values, binding)
            if not step.in_setup and isinstance(value, _Tensor) and self._is_new(step, value, values):
                value = DTensor.from_local(
                    value, self._ranks.mesh, [Replicate()] * self._ranks.mesh.ndim, run_check=False
                )
            seen = (value.requires_grad, value.is_leaf, value._version) if isinstance(value, _Tensor) else None
            if self._seen is not None and not step.in_setup:
                self._seen(index, value)
            # Of a view, this computes the graph anew, which DTensor may refuse.
            has_edge = trace.edges is not Trace.edges and isinstance(value, _Tensor) and value.requires_grad
            edge = gradient_edge(value) if has_edge else None
        except FOREIGN as error:
            pass_interrupt(error)
            self._failed(error, index, trace)
            return False
        values.append(value)
        trace.facts.append(seen)
        if trace.edges is not Trace.edges:
            trace.edges.append(edge)
        return True

    def _failed(self, error: BaseException, index: int, trace: Trace) -> None:
        if isinstance(error, RankError):
            self._note(error, index)
            trace.failure = Failure(index, type(error).__name__, str(error))
            return
        message = error_text(error) + user_frame_text(error)
        trace.failure = Failure(index, type(error).__name__, message, self._refusal(error))

    def _refusal(self, error: BaseException) -> Unsupported | None:
        """Return what DTensor says that it cannot do, if an error says so.

        Inside of an operator a plain tensor may meet DTensors, which DTensor refuses in compiled code.
        """
        found = refusal_of_ranks(error)
        if found is None and isinstance(error, RuntimeError) and self._ranks.is_mixed():
            return None if self._ranks.is_of_kernel(error) else _mixed(error)
        return found

    def _note(self, error: RankError, index: int, key: GradientKey | None = None) -> None:
        self.faults.append(fault_of(error, index, key))

    def placed(self, source: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
        """Return an input as a leaf that lies on the ranks as its spec says."""
        found = self._cut(place(source, spec, self._ranks.device).detach(), spec.distribution or self._everywhere)
        return found.requires_grad_() if spec.requires_grad else found

    def _cut(self, tensor: torch.Tensor, distribution: Distribution) -> torch.Tensor:
        """Return a plain tensor, which every rank has, as a DTensor."""
        part = self._ranks.own_part(tensor, distribution)
        return as_dtensor(part, self._ranks.mesh, distribution, tensor.shape, dense_strides(tensor))

    def _weight(self, source: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return the gradient of an output, which lies on the ranks as the output does."""
        on = distribution_of(self._mesh, value.placements) if isinstance(value, DTensor) else None
        if on is not None:
            on = Distribution(on.mesh, tuple(REPLICATE if each == PARTIAL else each for each in on.placements))
        return self._cut(source.to(self._ranks.device, value.dtype), on or self._everywhere)

    def _is_new(self, step: Step, value: torch.Tensor, values: list[Any]) -> bool:
        """Whether a step made a plain tensor from no other tensor."""
        return not isinstance(value, DTensor) and not any(isinstance(values[r.index], _Tensor) for r in step_refs(step))

    def _distribute_modules(self, program: Program, trace: Trace) -> None:
        """Distribute the parameters of the setup's modules; their buffers are the same on every rank."""
        for step in program.setup:
            if (loaded := step.loaded_state) is not None:
                module, state = loaded
                specs = {name: program.setup[index].spec for name, index in state.items()}
                self._distribute(trace.values[module], specs)

    def _distribute(self, module: torch.nn.Module, specs: Mapping[str, TensorSpec | None]) -> None:
        made: dict[int, torch.nn.Parameter] = {}
        for path, owner in module.named_modules(remove_duplicate=True):
            for name, parameter in list(owner.named_parameters(recurse=False)):
                if isinstance(parameter, DTensor):
                    continue
                spec = specs.get(f"{path}.{name}".lstrip("."))
                on = spec.distribution if spec is not None else None
                if id(parameter) not in made:
                    spread = self._cut(parameter.detach(), on or self._everywhere)
                    made[id(parameter)] = torch.nn.Parameter(spread, requires_grad=parameter.requires_grad)
                owner.register_parameter(name, made[id(parameter)])
            for name, buffer in list(owner.named_buffers(recurse=False)):
                if not isinstance(buffer, DTensor):
                    owner._buffers[name] = self._cut(buffer, self._everywhere)


def _converted(step: Step, values: list[Any]) -> DTensor | None:
    """Return the tensor of which a step wants an array; ``None`` of another step, and where torch refuses it."""
    if step.op != CALL_METHOD or step.target != ARRAY or not isinstance(step.args[0], Ref):
        return None
    found = values[step.args[0].index]
    if not isinstance(found, DTensor) or not _has_array(found.dtype):
        return None
    is_forced = dict(step.kwargs).get("force") is True
    return found if is_forced or not (found.requires_grad or found.is_conj() or found.is_neg()) else None


@lru_cache(maxsize=64)
def _has_array(dtype: torch.dtype) -> bool:
    """Whether numpy has a dtype."""
    try:
        torch.empty(0, dtype=dtype).numpy()
    except TypeError:
        return False
    return True

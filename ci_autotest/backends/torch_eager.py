"""The backend ``torch``: each step by torch itself, one after the other, on one device."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from ci_autotest.backends.devices import seed
from ci_autotest.backends.engine import gradient_edge, gradients
from ci_autotest.backends.foreign import FOREIGN, pass_interrupt
from ci_autotest.backends.hooks import Hook
from ci_autotest.backends.trace import Failure, Metadata, Observation, Trace
from ci_autotest.errors import ProgramError, said, where
from ci_autotest.execute.steps import execute_step
from ci_autotest.program.check import CONSTANTS
from ci_autotest.program.ir import (
    OUTPUT,
    OWN_DEVICE,
    PLACEHOLDER,
    REGISTERS,
    UNHOOKED,
    Constant,
    Device,
    DType,
    Ref,
    TensorSpec,
    autocast_dtype,
    contiguous_strides,
    output_refs,
    ref_to,
)
from ci_autotest.program.targets import is_function

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from ci_autotest.program.ir import Argument, Program, Step

_Tensor: Final = torch.Tensor
_Module: Final = torch.nn.Module
_CONSTRUCTED: Final = (torch.nn.Module, torch.nn.Parameter, torch.nn.utils.rnn.PackedSequence)
CPU: Final = torch.device("cpu")
#: What ``on_step`` is told when the backward pass begins.
IN_BACKWARD: Final = -2


class TorchBackend:
    """Execute steps with torch.

    Args:
        device: ``cpu``, ``cuda`` or another that is attached: what the symbol ``device`` is bound to.
    """

    shows_steps = True
    takes_copies = True

    def __init__(self, device: str = "cpu") -> None:
        """Bind the device."""
        self.device = torch.device(device) if device != "cpu" else CPU
        self.on_step: Callable[[int], None] | None = None
        self._functions: dict[str, Callable[..., Any]] = {}

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),
        around: AbstractContextManager[object] | None = None,
    ) -> Trace:
        """Run the steps forward and return what was seen; a step that raises ends the run and is in the trace.

        Args:
            program: Setup and body.
            sources: Data of each placeholder by key.
            snapshots: Whether every value is copied at its step.
            copied: Indices of values that are copied at their step, because later steps write to them.
            around: Entered for each call, not for placeholders.
        """
        trace = Trace()
        if snapshots:
            trace.observations, trace.edges = [], []
        binding = self.binding(sources)
        binding.run, binding.around = (trace, program.steps), around
        values, facts, device, on_step = trace.values, trace.facts, self.device, self.on_step
        for step in program.steps:
            op = step.op
            if op == OUTPUT:
                values.append(None)
                facts.append(None)
                continue
            if on_step is not None:
                on_step(len(values))
            value: Any
            try:
                if op == PLACEHOLDER:
                    value = place(sources[step.target], step.args[0], device)  # type: ignore[arg-type]
                elif around is None:
                    value = execute_step(step, values, binding)
                else:
                    with around:
                        value = execute_step(step, values, binding)
            except FOREIGN as error:
                pass_interrupt(error)
                trace.failure = Failure(len(values), type(error).__name__, said(error) + where(error))
                return trace
            values.append(value)
            facts.append((value.requires_grad, value.is_leaf, value._version) if isinstance(value, _Tensor) else None)
            if snapshots:
                _observe(trace, value)
            elif copied and len(values) - 1 in copied:
                keep_copy(trace, len(values) - 1, value)
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Put the cotangents into the outputs that require grad, and keep every gradient in the trace."""
        if self.on_step is not None:
            self.on_step(IN_BACKWARD)
        backward(program, trace, cotangents)

    def take_seen(self) -> dict[str, int]:
        """Return nothing: torch counts no calls."""
        return {}

    def binding(self, sources: Mapping[str, Any]) -> _Binding:
        """Return the torch side of the interpreter for one run over ``sources``."""
        return _Binding(self, sources)

    def function(self, target: str) -> Callable[..., Any]:
        """Return the torch function or module class that a target names.

        Raises:
            ProgramError: The target is not an operator of torch.
        """
        found = self._functions.get(target)
        if found is None:
            found = resolve(target)
            if self.device is not CPU and isinstance(found, type) and issubclass(found, _Module):
                found = _placed(found, self.device)
            self._functions[target] = found
        return found

    def constant(self, argument: Argument) -> Any:  # noqa: ANN401 - a torch constant
        """Return a dtype, device or constant of torch."""
        if isinstance(argument, DType):
            return getattr(torch, argument.name)
        if isinstance(argument, Device):
            return self.device if argument.symbol == OWN_DEVICE else torch.device("cpu")
        if isinstance(argument, Constant) and argument.target in CONSTANTS:
            return getattr(torch, argument.target.removeprefix("torch."))
        message = f"a {type(argument).__name__} is not an argument of a call."
        raise ProgramError(message)


def _placed(module: type[torch.nn.Module], device: torch.device) -> Callable[..., torch.nn.Module]:
    """Return what constructs a module on a device: a program that was recorded on the host has no step for that."""
    return lambda *args, **kwargs: module(*args, **kwargs).to(device)


class _Binding:
    """The torch side of the interpreter for one run: the backend and the run's data."""

    __slots__ = ("around", "backend", "constant", "function", "handles", "run", "sources")

    def __init__(self, backend: TorchBackend, sources: Mapping[str, Any]) -> None:
        self.backend = backend
        self.sources = sources
        self.handles: dict[int, Any] = {}
        self.around: AbstractContextManager[object] | None = None
        self.run: tuple[Trace, Sequence[Step]] | None = None
        self.function = backend.function
        self.constant = backend.constant

    def placeholder(self, step: Step) -> Any:  # noqa: ANN401 - a tensor
        return place(self.sources[step.target], step.args[0], self.backend.device)  # type: ignore[arg-type]

    def in_mode(self, step: Step, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - a tensor
        if step.seed is not None:
            torch.default_generator.manual_seed(step.seed)
            if self.backend.device is not CPU:
                seed(self.backend.device, step.seed)
        if not step.modes:
            return call()
        if REGISTERS[0] in step.modes:
            return self._register(step)
        with ExitStack() as stack:
            for mode in step.modes:
                stack.enter_context(mode_of(mode, self.backend.device))
            return call()

    def _register(self, step: Step) -> None:
        """Register a hook, whose steps are carried out when autograd calls, or remove one."""
        receiver = step.args[0]
        assert self.run is not None  # noqa: S101 - a program with hooks is run step by step
        assert isinstance(receiver, Ref)  # noqa: S101 - checked when read
        if step.target == UNHOOKED:
            self.handles[receiver.index].remove()
            return
        trace, steps = self.run
        index = len(trace.values)
        hook = Hook(trace, steps, index, self, _seen_in(trace), self.around)
        self.handles[index] = trace.values[receiver.index].register_hook(hook)


def _seen_in(trace: Trace) -> Callable[[int, Any], None]:
    """Return what notes a value that a hook gives, where the run takes snapshots."""

    def seen(index: int, value: Any) -> None:  # noqa: ANN401 - whatever a step gave
        if trace.observations:
            trace.observations[index] = observed(value)

    return seen


def mode_of(mode: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the block that puts a mode in force; autocast without its cache, which would live longer than a step."""
    dtype = autocast_dtype(mode)
    if dtype is None:
        return torch.no_grad()
    return torch.autocast(device.type, dtype=getattr(torch, dtype), cache_enabled=False)


def contiguous_spec(tensor: torch.Tensor) -> TensorSpec:
    """Return the spec of a contiguous copy of a tensor, gradients aside."""
    shape = tuple(tensor.shape)
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(dtype, shape, contiguous_strides(shape), 0, tensor.numel())


def place(source: torch.Tensor, spec: TensorSpec, device: torch.device) -> torch.Tensor:
    """Return a copy of a source in the layout of ``spec``, a leaf on the device that its symbol names.

    A copy each time: torch aligns every allocation alike, so both sides read equally aligned memory
    (rule 16).
    """
    tensor = source.clone()
    if device is not CPU and spec.device == OWN_DEVICE and device.type != "cpu":
        tensor = tensor.to(device)
    if not spec.is_contiguous:
        tensor = tensor.as_strided(spec.shape, spec.strides, spec.offset)
    return tensor.requires_grad_() if spec.requires_grad else tensor


def resolve(target: str) -> Callable[..., Any]:
    """Return what a dotted target names in torch.

    Raises:
        ProgramError: The target is not on the allow list, or this torch has no such operator.
    """
    if not target.startswith("torch.") or not is_function(target):
        message = f"target {target!r} is not an operator of torch and is never called."
        raise ProgramError(message)
    found: Any = torch
    for part in target.split(".")[1:]:
        found = getattr(found, part, None)
    is_class = isinstance(found, type) and not issubclass(found, _CONSTRUCTED)
    if not callable(found) or is_class:
        message = f"torch {torch.__version__} has no operator {target!r}."
        raise ProgramError(message)
    return found  # type: ignore[no-any-return]


def metadata(tensor: torch.Tensor) -> Metadata:
    """Return what is compared of a tensor before its elements."""
    return Metadata(
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        tuple(tensor.stride()) if tensor.layout is torch.strided else (),
        str(tensor.device),
        tensor.requires_grad,
        tensor.is_leaf,
        str(tensor.layout).removeprefix("torch."),
    )


def observed(value: Any) -> Observation:  # noqa: ANN401 - whatever a step gave
    """Return a value as it is now: a tensor's metadata with a copy of its elements, or the plain value."""
    if isinstance(value, _Tensor):
        return Observation(metadata(value), value.detach().clone())
    if isinstance(value, np.ndarray):
        return _observed_array(value)
    is_parts = isinstance(value, tuple | list) and not isinstance(value, torch.Size)
    if is_parts or hasattr(value, "state_dict"):  # a module, here or in another interpreter
        return Observation(None, None)
    return Observation(None, value)


def _observed_array(array: NDArray[Any]) -> Observation:
    """Return an array of numpy as a tensor of its elements, told apart from one by its layout."""
    data = torch.from_numpy(array)
    return Observation(metadata(data)._replace(layout="array"), data)


def keep_copy(trace: Trace, index: int, value: Any) -> None:  # noqa: ANN401 - whatever a step gave
    """Copy a value that a later step writes to, and take the edge that stays the gradient of this version."""
    if isinstance(value, _Tensor):
        edge = gradient_edge(value) if value.requires_grad else None
        trace.copies = {**trace.copies, index: (value.detach().clone(), edge)}


def _observe(trace: Trace, value: Any) -> None:  # noqa: ANN401 - whatever a step gave
    trace.observations.append(observed(value))
    differentiable = isinstance(value, _Tensor) and value.requires_grad
    trace.edges.append(gradient_edge(value) if differentiable else None)


def backward(program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
    """Run one backward pass over all outputs of a trace, into ``trace.gradients``.

    Outputs that require grad are found on each side by itself (rule 9); each side gets its own copy
    of the cotangents (rule 8). Gradients are taken for leaves, parameters and intermediates alike.
    """
    roots, weights = _roots(program, trace, cotangents)
    if not roots:
        return
    keys, inputs = _inputs(program, trace, roots)
    if not keys:
        return  # an input was returned as it is: its gradient is what was put in
    try:
        found = gradients(roots, weights, inputs)
    except FOREIGN as error:
        pass_interrupt(error)
        trace.backward_failure = f"{type(error).__name__}: {said(error)}"
        return
    trace.gradients = dict(zip(keys, found, strict=True))
    if trace.shown is not None:
        _forget_outputs(program, trace)


def _forget_outputs(program: Program, trace: Trace) -> None:
    """Keep the gradients of leaves and parameters of a body that was run as a whole.

    Of an output that is made into another one inside, as the cell state of an LSTM is, a whole shows no more than the
    gradient that was put in.
    """
    steps = program.steps
    trace.gradients = {
        key: gradient
        for key, gradient in trace.gradients.items()
        if isinstance(key, tuple) or steps[key].op == PLACEHOLDER
    }


def _roots(
    program: Program, trace: Trace, cotangents: Mapping[int, Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    roots: list[torch.Tensor] = []
    weights: list[torch.Tensor] = []
    given = trace.cotangents = {}
    values, refs = trace.values, output_refs(program)
    for position, source in cotangents.items():
        value = values[refs[position].index] if position < len(refs) else None
        if not isinstance(value, _Tensor) or not value.requires_grad or value.shape != source.shape:
            continue
        weight = source.clone() if value.is_cpu else source.to(value.device)
        given[position] = weight
        roots.append(value)
        weights.append(weight if weight.dtype is value.dtype else weight.to(value.dtype))
    return roots, weights


def _inputs(program: Program, trace: Trace, roots: list[torch.Tensor]) -> tuple[list[Any], list[Any]]:
    """Return what gradients are taken for: every tensor that requires grad, once, and every module's parameters."""
    keys: list[Any] = []
    inputs: list[Any] = []
    edges, values, copies = trace.edges, trace.values, trace.copies
    last = len(values) - 1
    # The gradient of an output that nothing else uses is the cotangent itself.
    seen = {id(roots[0])} if len(roots) == 1 and program.body[-1].args == (ref_to(last - 1),) else set()
    for index, facts in enumerate(trace.facts):
        value = values[index]
        if facts is None:
            if isinstance(value, _Module):
                _add_parameters(index, value, seen, (keys, inputs))
        elif edges:
            if edges[index] is not None and not (id(value) in seen and index == last - 1):
                keys.append(index)
                inputs.append(edges[index])
        elif index in copies:
            if copies[index][1] is not None:
                keys.append(index)
                inputs.append(copies[index][1])
        elif value.requires_grad and id(value) not in seen:
            seen.add(id(value))
            keys.append(index)
            inputs.append(value)
    return keys, inputs


def _add_parameters(index: int, module: torch.nn.Module, seen: set[int], found: tuple[list[Any], list[Any]]) -> None:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in seen:
            seen.add(id(parameter))
            found[0].append((index, name))
            found[1].append(parameter)

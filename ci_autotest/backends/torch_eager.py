"""The backend ``torch``: each step by torch itself, one after the other, on one device."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.backward import backward
from ci_autotest.backends.devices import seed
from ci_autotest.backends.foreign import FOREIGN, pass_interrupt
from ci_autotest.backends.hooks import Hook
from ci_autotest.backends.observing import keep_copy, observe, observed
from ci_autotest.backends.placing import CPU, place
from ci_autotest.backends.trace import Failure, Trace
from ci_autotest.errors import ProgramError, said, where
from ci_autotest.execute.steps import PYTHON_TARGETS, execute_step
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
    autocast_dtype,
)
from ci_autotest.program.targets import is_function

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.backends.columns import Entering, Side
    from ci_autotest.backends.lockstep import Lockstep
    from ci_autotest.program.ir import Argument, Program, Step

_Tensor: Final = torch.Tensor
_Module: Final = torch.nn.Module
_CONSTRUCTED: Final = (torch.nn.Module, torch.nn.Parameter, torch.nn.utils.rnn.PackedSequence)
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
                # What cannot be read is the candidate's error too: of a tensor made in inference mode, its version.
                seen = (value.requires_grad, value.is_leaf, value._version) if isinstance(value, _Tensor) else None
            except FOREIGN as error:
                pass_interrupt(error)
                trace.failure = Failure(len(values), type(error).__name__, said(error) + where(error))
                return trace
            values.append(value)
            facts.append(seen)
            if snapshots:
                observe(trace, value)
            elif copied and len(values) - 1 in copied:
                keep_copy(trace, len(values) - 1, value)
        return trace

    def sweep(self, lockstep: Lockstep, enter: Entering) -> Side:
        """Run cases in lockstep, forward and backward, and return what was seen; on the host only."""
        side = lockstep.forward(self, enter)
        lockstep.backward(side, enter, is_torchs_own=True)
        return side

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

    def callee(self, target: str) -> Callable[..., Any]:
        """Return what a target names, in torch or in Python itself."""
        return PYTHON_TARGETS.get(target) or self.function(target)

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

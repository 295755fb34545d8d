"""Execute steps in torch on one device: the meaning of targets, constants and modes."""

from __future__ import annotations

import io
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.backends.autograd_engine import gradients
from ci_autotest.backends.devices import lacking, seed
from ci_autotest.backends.hooks import Hook
from ci_autotest.backends.input_copies import CPU, place
from ci_autotest.backends.operators.signatures import resolved
from ci_autotest.backends.operators.user_operators import find
from ci_autotest.backends.result_bands import ResultBands
from ci_autotest.backends.snapshots import keep_copy, observe, observed
from ci_autotest.backends.trace import Failure, Trace
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import ProgramError, error_text, user_frame_text
from ci_autotest.host.steps import execute_step
from ci_autotest.program.backward_passes import GRAD
from ci_autotest.program.check import CONSTANTS
from ci_autotest.program.ir import (
    CANDIDATE_MODES,
    EXPECT,
    LOAD,
    NO_GRAD,
    OUTPUT,
    OWN_DEVICE,
    PLACEHOLDER,
    REGISTERS,
    RESULT_BANDS,
    SAVE,
    UNHOOKED,
    Device,
    DType,
    FrameworkConstant,
    autocast_dtype,
    operator_check_of,
    result_bands_of,
    step_refs,
)
from ci_autotest.program.targets import is_function, is_own

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.program.ir import Argument, Program, Step


# Tensors that are saved to memory and loaded again, as ``torch.save`` and ``torch.load`` do with files.
#
# A program may come from outside, so nothing here opens a file, and what is loaded is always ``weights_only``.


def save(values: Sequence[torch.Tensor]) -> bytes:
    """Return what ``torch.save`` writes for a list of tensors."""
    memory = io.BytesIO()
    torch.save(list(values), memory)
    return memory.getvalue()


def load(content: bytes, map_location: torch.device | None = None) -> list[torch.Tensor]:
    """Return the tensors that ``save`` has written; on ``map_location`` if it is given."""
    found: list[Any] = torch.load(io.BytesIO(content), map_location=map_location, weights_only=True)
    return found


_Module: Final = torch.nn.Module
_Tensor: Final = torch.Tensor
_CONSTRUCTED: Final = (torch.nn.Module, torch.nn.Parameter, torch.nn.utils.rnn.PackedSequence)


class ForwardOptions(NamedTuple):
    """What a run of the steps forward does beside running them.

    Attributes:
        snapshots: Whether every value is copied at its step.
        copied: Indices of values to copy at their step, because later steps write to them.
        around: Context of each call, but not of placeholders.
        on_step: Called with the index of each step before it runs.
    """

    snapshots: bool = False
    copied: Collection[int] = ()
    around: AbstractContextManager[object] | None = None
    on_step: Callable[[int], None] | None = None


#: Steps are run, and nothing else.
_PLAIN: Final = ForwardOptions()


class TorchSteps:
    """The meaning of steps in torch.

    Args:
        device: ``cpu``, ``cuda`` or another attached device, to which the symbol ``device`` is bound.
        is_candidate: Whether its own results, and not what a test expects, are the values of expectations.
    """

    def __init__(self, device: str = "cpu", *, is_candidate: bool = False) -> None:
        self.device = torch.device(device) if device != "cpu" else CPU
        self.is_candidate = is_candidate
        self._functions: dict[str, Callable[..., Any]] = {EXPECT: own_result if is_candidate else expected_result}

    def binding(self, sources: Mapping[str, Any]) -> TorchBinding:
        """Return torch's side of the interpreter for one run with ``sources``."""
        return TorchBinding(self, sources)

    def run(self, program: Program, sources: Mapping[str, Any], options: ForwardOptions = _PLAIN) -> Trace:
        """Run the steps forward; an error ends the run and is noted in the trace.

        Args:
            program: Setup and body.
            sources: Data of each placeholder by key.
            options: What else is done.
        """
        trace = Trace()
        snapshots, copied, around, on_step = options
        if snapshots:
            trace.observations, trace.edges = [], []
        binding = self.binding(sources)
        binding.run, binding.around = (trace, program.steps), around
        values, facts, device = trace.values, trace.facts, self.device
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
                # Reading a tensor's facts may raise too, for example its version if it was made in inference mode.
                seen = (value.requires_grad, value.is_leaf, value._version) if isinstance(value, _Tensor) else None
            except FOREIGN as error:
                pass_interrupt(error)
                trace.failure = Failure(
                    len(values), type(error).__name__, error_text(error) + user_frame_text(error), lacking(error)
                )
                return trace
            values.append(value)
            facts.append(seen)
            # A copy of every value would cost far more than the step, so only overwritten values are copied in a case.
            if snapshots:
                observe(trace, value)
            elif copied and len(values) - 1 in copied:
                keep_copy(trace, len(values) - 1, value)
        return trace

    def function(self, target: str) -> Callable[..., Any]:
        """Return the torch function or module class that a target names.

        Raises:
            ProgramError: The target is not an operator of torch.
        """
        found = self._functions.get(target)
        if found is None:
            found = _OWN.get(target) or resolve(target)
            if self.device is not CPU and isinstance(found, type) and issubclass(found, _Module):
                found = _placed(found, self.device)
            self._functions[target] = found
        return found

    def replace(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Let targets name other functions."""
        self._functions.update(functions)

    def constant(self, argument: Argument) -> Any:
        """Return a dtype, device or constant of torch."""
        if isinstance(argument, DType):
            return getattr(torch, argument.name)
        if isinstance(argument, Device):
            return self.device if argument.symbol == OWN_DEVICE else torch.device("cpu")
        if isinstance(argument, FrameworkConstant) and argument.target in CONSTANTS:
            return getattr(torch, argument.target.removeprefix("torch."))
        message = f"a {type(argument).__name__} is not an argument of a call."
        raise ProgramError(message)


def own_result(value: Any, *_: object) -> Any:
    """Return what a candidate gives where a test expects something: a copy, which later steps do not write to."""
    with torch._C.DisableTorchFunction():  # No call of the test, so that no replacement answers it.
        return value.detach().clone()


def expected_result(_: object, expected: torch.Tensor, *__: object) -> torch.Tensor:
    """Return what a test expects."""
    return expected.clone()


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, *flags: Any, **options: Any) -> Any:
    """Call ``torch.autograd.grad``, or the engine if each output has a cotangent: torch would import sympy to check."""
    is_weighted = type(outputs) is type(inputs) is type(grad_outputs) is tuple and not flags
    if is_weighted and options == {"allow_unused": True}:
        return gradients(outputs, grad_outputs, inputs)
    if is_weighted and options == {"retain_graph": True, "allow_unused": True}:
        return gradients(outputs, grad_outputs, inputs, keeps_graph=True)
    return torch.autograd.grad(outputs, inputs, grad_outputs, *flags, **options)


#: Functions that are called in the place of torch's own.
_OWN: Final[dict[str, Any]] = {GRAD: grad, SAVE: save, LOAD: load}


def _placed(module: type[torch.nn.Module], device: torch.device) -> Callable[..., torch.nn.Module]:
    """Return a constructor that moves the module to a device: a program recorded on the CPU has no step for that."""
    return lambda *args, **kwargs: module(*args, **kwargs).to(device)


class TorchBinding:
    """Torch's side of the interpreter for one run: the device and the run's data."""

    __slots__ = ("around", "constant", "device", "function", "handles", "is_candidate", "run", "sources")

    def __init__(self, owner: TorchSteps, sources: Mapping[str, Any]) -> None:
        self.device = owner.device
        self.is_candidate = owner.is_candidate
        self.sources = sources
        self.handles: dict[int, Any] = {}
        self.around: AbstractContextManager[object] | None = None
        self.run: tuple[Trace, Sequence[Step]] | None = None
        self.function = owner.function
        self.constant = owner.constant

    def placeholder(self, step: Step) -> Any:
        """Return an input, placed on the device."""
        return place(self.sources[step.target], step.args[0], self.device)  # type: ignore[arg-type]

    def in_mode(self, step: Step, call: Callable[[], Any]) -> Any:
        """Call in the modes of a step and with its seed; a step that registers a hook does that instead."""
        if step.seed is not None:
            # `torch.manual_seed` takes 100 times as long, because it also seeds every kind of device.
            torch.default_generator.manual_seed(step.seed)
            if self.device is not CPU:
                seed(self.device, step.seed)
        if not step.modes:
            return call()
        if step.modes == NO_GRAD:
            with torch.no_grad():
                return call()
        if REGISTERS[0] in step.modes:
            return self._register(step)
        with ExitStack() as stack:
            for mode in step.modes:
                if mode not in CANDIDATE_MODES:
                    stack.enter_context(mode_of(mode, self.device))
            bands, check = result_bands_of(step), operator_check_of(step)
            # The mode of replacements has it, and knows which of these are operators.
            checking = getattr(self.around, "checking", None)
            if check and checking is not None:
                stack.enter_context(checking(check))
            if not bands or not self.is_candidate:
                return call()
            with ResultBands(has_zeros=bands == RESULT_BANDS[1]):
                return call()

    def wait(self) -> None:
        """Do nothing, because torch raises errors in the call itself."""

    def lacks(self, error: Exception) -> bool:
        """Whether an error says that something is not implemented, on this device or by the user's function."""
        return isinstance(error, NotImplementedError)

    def _register(self, step: Step) -> None:
        """Register a hook, whose steps run when autograd calls it, or remove one."""
        receiver = step_refs(step)[0]
        assert self.run is not None  # noqa: S101 - a program with hooks runs step by step
        if step.target == UNHOOKED:
            self.handles[receiver.index].remove()
            return
        trace, steps = self.run
        index = len(trace.values)
        hook = Hook(trace, steps, index, self, _seen_in(trace), self.around)
        self.handles[index] = trace.values[receiver.index].register_hook(hook)


def _seen_in(trace: Trace) -> Callable[[int, Any], None]:
    """Return a callback that observes the values of a hook's steps if the run takes snapshots."""

    def seen(index: int, value: Any) -> None:
        if trace.observations:
            trace.observations[index] = observed(value)

    return seen


def mode_of(mode: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context manager of a mode; autocast has no cache, because its cache would outlive the step."""
    dtype = autocast_dtype(mode)
    if dtype is None:
        return torch.no_grad()
    return torch.autocast(device.type, dtype=getattr(torch, dtype), cache_enabled=False)


def resolve(target: str) -> Callable[..., Any]:
    """Return the operator that a dotted target names in torch, or that the user has declared.

    Raises:
        ProgramError: The target is not on the allow list, or this torch has no such operator.
    """
    if is_own(target):
        return find(target)
    if not target.startswith("torch.") or not is_function(target):
        message = f"target {target!r} is not an operator of torch and is never called."
        raise ProgramError(message)
    found = resolved(target)
    # Classes other than modules, parameters and packed sequences are not operators, for example storages and dtypes.
    is_class = isinstance(found, type) and not issubclass(found, _CONSTRUCTED)
    if not callable(found) or is_class:
        message = f"torch {torch.__version__} has no operator {target!r}."
        raise ProgramError(message)
    return found  # type: ignore[no-any-return]

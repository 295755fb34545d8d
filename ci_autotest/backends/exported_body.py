"""What backends share that export each body as one module: torch runs the setup, and a runtime runs the body.

Only outputs are visible; there is no backward pass, and inputs are never written to.
"""

from __future__ import annotations

import logging
import warnings
from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch

from ci_autotest.backends.body_function import begun, prepared, see
from ci_autotest.backends.compiled_bodies import CompileClock, KeptCallables, body_key
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.protocol import IN_COMPILING, Backend
from ci_autotest.backends.torch_compile import python_function
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.errors import Unsupported, UnsupportedError
from ci_autotest.program.backward_passes import PASSES
from ci_autotest.program.codegen import inputs
from ci_autotest.program.ir import HOOK, REGISTERS, output_refs
from ci_autotest.program.refusal import refused_as

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence

    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.program.ir import Program

Made = TypeVar("Made")

#: Steps that a model cannot contain: reads of a tensor's elements while the body is exported, and gradients.
_READS: Final = frozenset({
    "builtins.bool", "builtins.int", "builtins.float", "item", "numpy", "tolist", "retain_grad", *PASSES,
})  # fmt: skip


class ExportingBackend(Backend):
    """Export each body, and run what a runtime makes of it."""

    shows_steps = False
    mode = "forward only"

    def __init__(self) -> None:
        self._torch = TorchBackend(is_candidate=True)
        self.on_step: Callable[[int], None] | None = None
        self._kept: KeptCallables[Any] = KeptCallables()
        self._clock = CompileClock()

    def adapted(self, attempt: Attempt) -> Attempt:
        """Return the attempt as it is: an exported body has no gradients whatever the row says."""
        return attempt

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),  # noqa: ARG002 - a model shows its outputs only when it ends
    ) -> Trace:
        """Run the setup, then the exported body."""
        trace = begun(program, snapshots=snapshots)
        trace.is_remote, trace.has_flags, trace.has_backward = True, False, False
        trace.shown = frozenset()
        try:
            _refuse_unexportable(program)
            self._run_model(program, sources, trace, snapshots=snapshots)
        except UnsupportedError as error:
            trace.untested, trace.shown = error.why, frozenset()
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Do nothing: an exported body has no backward pass (``Trace.has_backward``)."""

    def forget_bodies(self) -> None:
        """Export bodies anew from now on."""
        self._kept.clear()

    def taken_compile_s(self) -> float:
        """Return the seconds spent exporting and compiling since the last call of this method."""
        return self._clock.taken()

    def _made(self, key: Hashable, first: int, make: Callable[[], Made], holds: Callable[[Made], bool] = bool) -> Made:
        """Return what was made of a body: what is kept of it if that holds, else made now. A refusal is kept, too.

        Args:
            key: What it is kept by; ``None`` if it is not.
            first: Index of the first call, which is the step in flight afterwards.
            make: Exports and compiles the body.
            holds: Whether what is kept holds for this run.

        Raises:
            UnsupportedError: The exporter or the compiler refuses the body.
        """
        found = self._kept.get(key)
        if not isinstance(found, Unsupported) and (found is None or not holds(found)):
            self._enter(IN_COMPILING)
            try:
                with self._clock.running():
                    found = make()
            except UnsupportedError as error:
                found = error.why
            self._kept.keep(key, found)
        self._enter(first)
        if isinstance(found, Unsupported):
            raise UnsupportedError(found.detail, reason=found.reason)
        return found

    def _enter(self, step: int) -> None:
        if self.on_step is not None:
            self.on_step(step)

    def _run_model(self, program: Program, sources: Mapping[str, Any], trace: Trace, *, snapshots: bool) -> None:
        # Torch runs the program first, with modules of its own, to find out which outputs are tensors.
        plain = self._torch.run(program, sources)
        if plain.failure is not None or not prepared(self._torch.steps, program, sources, trace):
            trace.failure = trace.failure or plain.failure
            return
        refs = output_refs(program)
        kept = [i for i, ref in enumerate(refs) if isinstance(plain.values[ref.index], torch.Tensor)]
        if not kept:
            message = "the body has no tensor among its outputs, and a model can have no other outputs"
            raise UnsupportedError(message)
        first = program.calls[0][0] if program.calls else len(program.steps) - 1
        bound = [trace.values[index] for _, index in inputs(program)]
        # The exporter's tracing may write to these values, but the model's run does not, so they are not shown.
        trace.values = [None] * len(trace.values)
        function = python_function(program, self._torch.device)
        outputs, ran = self._outputs(program, ExportedBody(function, bound, kept), bound, trace, first)
        if trace.failure is not None:
            return
        trace.shown = frozenset(refs[place].index for place, own in zip(kept, ran, strict=True) if own)
        for place, value in zip(kept, outputs, strict=True):
            trace.values[refs[place].index] = value
            see(trace, refs[place].index, snapshots=snapshots)

    @abstractmethod
    def _outputs(
        self, program: Program, body: ExportedBody, bound: Sequence[Any], trace: Trace, first: int
    ) -> tuple[list[torch.Tensor], tuple[bool, ...]]:
        """Return what the runtime gives, and which of it the runtime computes itself.

        Args:
            program: The program.
            body: Its body as a module.
            bound: The body's inputs.
            trace: Gets an error of the runtime, and what it ran itself.
            first: Index of the first call, to which an error belongs.

        Raises:
            UnsupportedError: The body cannot be exported.
        """


def export_key(program: Program, bound: Sequence[Any]) -> Hashable:
    """Return what an exported body holds for; ``None`` if for this run only: a module in training changes itself."""
    is_training = any(isinstance(value, torch.nn.Module) and value.training for value in bound)
    return None if is_training else body_key(program, bound)


def called_operators(program: Program) -> str:
    """Return the operators that a body calls, in case the exporter's reason names none."""
    return ", ".join(dict.fromkeys(step_operator(step, program.steps) for _, step in program.calls))


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """Silence warnings, and a logger of an exporter: its errors say what it refuses."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _refuse_unexportable(program: Program) -> None:
    """Refuse a body that reads elements, computes gradients or has hooks: the model would contain torch's results.

    Raises:
        UnsupportedError: The body has such a step.
    """
    for step in program.body:
        name = str(step.args[1]) if step.target == "builtins.getattr" else step.target
        if step.target in _READS or name in {"grad", "item", "numpy"}:
            message = f"a body that reads elements or gradients cannot be exported: {name}"
            raise UnsupportedError(message)
        if {*HOOK, *REGISTERS} & set(step.modes):
            message = "a model cannot contain hooks"
            raise UnsupportedError(message)
        if refused_as(step) is not None:
            message = "a model cannot contain a step that is expected to be refused"
            raise UnsupportedError(message)


class ExportedBody(torch.nn.Module):
    """A body and its modules as one module, so that the exporter treats their parameters as the model's.

    Args:
        function: The body as a function of its modules and tensors.
        arguments: Its arguments in order; ``forward`` replaces the tensors by its own.
        kept: Positions of the outputs that are tensors.
    """

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any], kept: Sequence[int]) -> None:
        super().__init__()
        self._function = function
        self._arguments = [None if isinstance(value, torch.Tensor) else value for value in arguments]
        self._places = [i for i, value in enumerate(arguments) if isinstance(value, torch.Tensor)]
        self._kept = kept
        modules = [value for value in arguments if isinstance(value, torch.nn.Module)]
        for number, module in enumerate(modules):
            self.add_module(f"module_{number}", module)
        # The exporter only looks at the outermost module. Without a module in training, a body is exported for
        # inference.
        self.training = any(module.training for module in modules)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the body's outputs that are tensors."""
        arguments = list(self._arguments)
        for place, tensor in zip(self._places, tensors, strict=True):
            arguments[place] = tensor
        outputs = self._function(*arguments)
        return tuple(outputs[i] for i in self._kept)

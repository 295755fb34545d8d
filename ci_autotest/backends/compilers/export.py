"""The backends ``export`` and ``onnxruntime``: torch runs the setup, and an exporter makes a model of the body.

Exporter and runtime together are the candidate, so that a wrong translation is a finding like a wrong kernel. Only
outputs are visible; there is no backward pass, and inputs are never written to. An output that the exporter folded into
a constant was computed by torch and is not compared. If nothing else is left of a body, the case is unsupported.
"""

from __future__ import annotations

from abc import abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from ci_autotest.backends.body_function import begun, prepared, see
from ci_autotest.backends.body_source import lines_of, python_function
from ci_autotest.backends.compilers.compiled_bodies import CompileClock, KeptCallables, body_key
from ci_autotest.backends.compilers.delegation import DelegationWatch
from ci_autotest.backends.compilers.exported_body import ExportedBody, called_operators, one_line, refuse_unexportable
from ci_autotest.backends.operator_usage import computing
from ci_autotest.backends.protocol import IN_COMPILING, Backend
from ci_autotest.backends.sameness import same_bits
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.backends.trace import Failure
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import UnavailableError, Unsupported, UnsupportedError, UnsupportedReason, error_text
from ci_autotest.program.codegen import inputs
from ci_autotest.program.ir import output_refs
from ci_autotest.values.delegation import Delegation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program


class Model(NamedTuple):
    """What an exporter made of a body.

    Attributes:
        function: Takes the body's tensors, and returns one or several.
        ran: For each output, whether the model computes it; the exporter may have made it a constant.
        holds: Whether the model may be used for other tensors of the same key.
    """

    function: Callable[..., Any]
    ran: tuple[bool, ...]
    holds: Callable[[Sequence[torch.Tensor]], bool] = lambda _: True


class Exporter(Protocol):
    """Makes a model of a body.

    Attributes:
        name: What messages call it.
        version: Version of the runtime.
        libraries: Versions of other libraries that matter, by name.
        is_dynamic: Whether a model is used again for other sizes.
        runs_all: Whether the runtime has no way back to PyTorch, so that it runs all that is left of a body.
    """

    name: str
    version: str = str(torch.__version__)
    libraries: Mapping[str, str] = MappingProxyType({})
    is_dynamic: bool = False
    runs_all: bool = False

    def key(self, program: Program, bound: Sequence[Any]) -> Hashable:
        """Return what a model holds for; ``None`` if for this run only: a module in training changes itself."""
        is_training = any(isinstance(value, torch.nn.Module) and value.training for value in bound)
        return None if is_training else body_key(program, bound)

    @abstractmethod
    def model(self, body: ExportedBody, tensors: Sequence[torch.Tensor], called: str) -> Model:
        """Return the model of a body.

        Args:
            body: The body.
            tensors: Its inputs; they are not written to.
            called: The operators that it calls, in case a reason names none.

        Raises:
            UnsupportedError: The body cannot be exported, or the runtime has no kernel for it.
        """


class ExportBackend(Backend):
    """Export each body, and run what a runtime makes of it.

    Args:
        exporter: Makes the model.
        device: ``cpu``.
        delegated: As for ``CompileBackend``.

    Raises:
        UnavailableError: The device is not ``cpu``.
    """

    shows_steps = False
    mode = "forward only"

    def __init__(self, exporter: Exporter, device: str = "cpu", delegated: Callable[..., Any] | None = None) -> None:
        if device != "cpu":
            message = f"a candidate that exports bodies asks for device '{device}': it runs on cpu. Write device: cpu."
            raise UnavailableError(message)
        self._exporter, self._delegated = exporter, delegated
        self.version, self.libraries = exporter.version, exporter.libraries
        self._torch = TorchSteps(is_candidate=True)
        self.on_step: Callable[[int], None] | None = None
        self._kept: KeptCallables[Model | Unsupported] = KeptCallables()
        self._clock = CompileClock()

    def untrained(self, program: Program) -> Program:
        """Return the program as it is: an exported body has no gradients whatever the row says."""
        return program

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
            refuse_unexportable(program)
            self._run_model(program, sources, trace, snapshots=snapshots)
        except UnsupportedError as error:
            trace.untested, trace.shown = error.why, frozenset()
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Do nothing: an exported body has no backward pass (``Trace.has_backward``)."""

    def begin_window(self) -> None:
        """Make callables for several sizes anew: which size was the first must not depend on the number of workers."""
        if self._exporter.is_dynamic:
            self.forget_bodies()

    def forget_bodies(self) -> bool:
        """Export bodies anew from now on."""
        self._kept.clear()
        return True

    def taken_compile_s(self) -> float:
        """Return the seconds spent exporting and compiling since the last call of this method."""
        return self._clock.taken()

    def _model(
        self, key: Hashable, first: int, body: ExportedBody, tensors: Sequence[torch.Tensor], called: str
    ) -> Model:
        """Return what was made of a body: what is kept of it if that holds, else made now. A refusal is kept, too.

        Args:
            key: What it is kept by; ``None`` if it is not.
            first: Index of the first call, which is the step in flight afterwards.
            body: The body.
            tensors: Its inputs.
            called: The operators that it calls, in case the exporter's reason names none.

        Raises:
            UnsupportedError: The exporter or the compiler refuses the body.
        """
        found = self._kept.get(key)
        if found is None or (isinstance(found, Model) and not found.holds(tensors)):
            self._enter(IN_COMPILING)
            try:
                with self._clock.running():
                    found = self._exporter.model(body, tensors, called)
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
        if plain.failure is not None or not prepared(self._torch, program, sources, trace):
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
        trace.returned = {refs[place].index: value for place, value in zip(kept, outputs, strict=True)}
        for index, value in trace.returned.items():
            trace.values[index] = value.clone()
            see(trace, index, snapshots=snapshots)

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
        name = self._exporter.name
        tensors = tuple(value.detach().clone() for value in bound if isinstance(value, torch.Tensor))
        key = self._exporter.key(program, bound)
        given = [tensor.clone() for tensor in tensors]
        watch = None if self._exporter.runs_all else DelegationWatch(name, lines_of(program), self._delegated)
        try:
            model = self._model(key, first, body, tensors, called_operators(program))
            if watch is not None:
                watch.capture_run(body, [tensor.clone() for tensor in tensors])
            with torch.no_grad():
                returned = (watch.watched(model.function) if watch is not None else model.function)(*given)
        except UnsupportedError:
            raise
        except FOREIGN as error:
            pass_interrupt(error)
            if isinstance(error, NotImplementedError):
                message = f"{name}: {one_line(error)}"
                raise UnsupportedError(message, reason=UnsupportedReason.NOT_IMPLEMENTED) from error
            trace.failure = Failure(first, type(error).__name__, error_text(error))
            return [], ()
        outputs = _tensors_of(returned)
        wrong = _contract_error(outputs, len(model.ran), tensors, given)
        if wrong:
            trace.failure = Failure(first, "ContractError", f"{name}: {wrong}")
            return [], model.ran
        trace.is_kept = key is not None
        trace.delegation = Delegation(computing(program)) if watch is None else watch.found(program)
        return [output.detach() for output in outputs], model.ran


def _tensors_of(returned: Any) -> list[Any]:
    if isinstance(returned, dict):
        return list(returned.values())
    return list(returned) if isinstance(returned, tuple | list) else [returned]


def _contract_error(
    outputs: Sequence[Any], count: int, inputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
) -> str:
    """Return how a callable breaks its contract; empty if it does not."""
    if len(outputs) != count:
        return f"the callable returns {len(outputs)} values, the body {count}"
    others = [type(value).__name__ for value in outputs if not isinstance(value, torch.Tensor)]
    if others:
        return f"the callable returns {others[0]} in place of a tensor"
    changed = [at for at, (one, now) in enumerate(zip(inputs, given, strict=True)) if not same_bits(now, one)]
    return f"the callable changes its input {changed[0]}" if changed else ""

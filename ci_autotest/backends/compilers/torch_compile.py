"""The backend ``torch.compile``: the setup runs eagerly, and the body is one compiled function.

Only inputs and outputs are visible. If nothing was compiled, the case is unsupported, because a fallback to eager mode
is not a pass.
"""

from __future__ import annotations

import difflib
import importlib.util
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.body_call import BodyCalls, called_with
from ci_autotest.backends.body_function import (
    backward_of_whole,
    begun,
    has_leaf,
    prepared,
    see,
    see_outputs,
    with_refusals,
)
from ci_autotest.backends.body_source import lines_of, own_functions, python_function
from ci_autotest.backends.case_scope import CaseScope
from ci_autotest.backends.compilers.compiled_bodies import CompiledBodies, CompiledBody, KeptCallables, body_key
from ci_autotest.backends.compilers.delegation import OF_TORCH, DelegationWatch, compiler_of
from ci_autotest.backends.devices import lacking
from ci_autotest.backends.protocol import IN_BACKWARD, IN_COMPILING, Backend
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.backends.trace import Failure, Raised, Trace
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import ConfigError, Unsupported, UnsupportedReason, error_text, is_raised_on_purpose
from ci_autotest.program.backward_passes import (
    READS_GRADIENT,
    creates_graph,
    goes_through_earlier_calls,
    with_kept_graphs,
)
from ci_autotest.program.codegen import inputs, names
from ci_autotest.program.hook_names import kept_names
from ci_autotest.program.refusal import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from ci_autotest.backends.trace import Attempt
    from ci_autotest.program.ir import Program
    from ci_autotest.values.kernel_scope import RunMode


#: With torch 2.13 and ``aot_eager``, a hook does not find what another one left in a list, and the gradient is zero.
_KEPT: Final = (
    "a hook keeps a value for later (for example that of an autograd function, or a module's full backward hook), "
    "which is not compiled"
)

#: Where torch 2.13 compiles such a gradient, the result has no gradient, or torch refuses its backward pass.
_CURVED: Final = "a gradient is differentiated again (create_graph=True), which graphs of AOTAutograd do not allow"
#: Such a graph is one node of autograd, which needs all of its values for a pass through a part of it.
_SHARED: Final = (
    "a backward pass goes through calls that were made before another pass, and what they saved was written to in "
    "between, which one compiled graph does not allow"
)
#: The compiler that runs the graph as it is; all others differentiate it ahead of time.
_EAGER: Final = "eager"

#: Libraries that torch's list of compilers names whether they are installed or not, by the compiler's name.
_LIBRARIES: Final = MappingProxyType({"openxla": "torch_xla", "tvm": "tvm"})


class CompileBackend(Backend):
    """Compile each body.

    Args:
        options: Arguments of ``torch.compile``; ``backend`` is ``inductor`` by default.
        device: ``cpu``, ``cuda`` or another attached device.
        delegated: Takes what the compiler returned for a graph, and returns the names of the operators that it runs
            itself, or their number; ``None`` if that is to be seen.
        how: How bodies are run: with gradients, within ``torch.no_grad()``, or within ``torch.inference_mode()``.
    """

    shows_steps = False

    def __init__(
        self,
        options: Mapping[str, Any],
        device: str = "cpu",
        delegated: Callable[..., Any] | None = None,
        how: RunMode = "training",
    ) -> None:
        self._torch = TorchSteps(device)
        self.device = self._torch.device
        self.on_step: Callable[[int], None] | None = None
        # Replacements by operator; they are compiled together with the body.
        self.functions: Mapping[str, Callable[..., Any]] = {}
        self._delegated = delegated
        self.case_scope = CaseScope(run_mode=how)
        self._without_gradients = torch.inference_mode if how == "inference" else torch.no_grad
        self._options = dict(options)
        self._compiler = self._options.pop("backend", "inductor")
        #: How bodies raise that the compiler refuses to train.
        self._refusals: KeptCallables[Failure] = KeptCallables()
        self._bodies = CompiledBodies(self._options, is_kept=not self._has_cuda_graphs())
        # A misspelled compiler is a fault of the configuration; in a case it would look like the candidate's error.
        try:
            torch._dynamo.lookup_backend(self._compiler)
        except Exception as error:
            known = _compilers()
            nearest = difflib.get_close_matches(str(self._compiler), known, 1, 0.7)
            hint = f"Did you mean {nearest[0]!r}? " if nearest else ""
            message = f"torch.compile has no backend {self._compiler!r}. {hint}Allowed here: {', '.join(known)}."
            raise ConfigError(message) from error
        if self._compiler == "inductor":
            try:
                compiler_of(self._compiler, self._options)
            except RuntimeError as error:
                message = f"torch.compile refuses the options: {' '.join(error_text(error).split())[:300]}."
                raise ConfigError(message) from error

    def replace(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Let targets of the setup name other functions."""
        self._torch.replace(functions)

    def untrained(self, program: Program) -> Program:
        """Return the program as it is: the compiled body is called within ``torch.no_grad()``."""
        return program

    def adapted(self, attempt: Attempt) -> Attempt:
        """Return an attempt whose backward passes keep their graphs.

        A compiled graph is one node of autograd, so that the first pass through it would free what a later one needs.
        A program whose second pass is refused stays as it is.
        """
        program = attempt.program
        return attempt if refusals(program.steps) else attempt._replace(program=with_kept_graphs(program))

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),  # noqa: ARG002 - a graph shows its outputs only when it ends
    ) -> Trace:
        """Run the setup, then the compiled body."""
        if refusals(program.steps):
            return with_refusals(self.run, program, sources, snapshots=snapshots)
        trace = begun(program, snapshots=snapshots)
        self.case_scope.mark(trace)
        # Tensors of inference have no version and are copied, so that it is not known which memory they share.
        trace.is_remote = self._without_gradients is torch.inference_mode
        if not prepared(self._torch, program, sources, trace):
            return trace
        bound = [index for _, index in inputs(program)]
        for index in bound:
            see(trace, index, snapshots=snapshots)
        is_curved = self._compiler != _EAGER and any(map(creates_graph, program.steps))
        if is_curved or kept_names(program.steps, names(program)):
            why = (UnsupportedReason.NO_KERNEL, _CURVED) if is_curved else (UnsupportedReason.NO_GRAPH, _KEPT)
            trace.untested = Unsupported(*why)
            trace.shown = frozenset(bound)
            return trace
        given = [trace.values[index] for index in bound]
        outputs = self._outputs(program, given, trace)
        if trace.untested is not None and not outputs:
            trace.shown = frozenset(bound)
            return trace
        see_outputs(program, trace, outputs, frozenset(bound), snapshots=snapshots)
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Run one backward pass over all outputs; leaves and parameters only."""
        if not self.case_scope.is_trained or trace.backward_lacking is not None:
            return
        if self.on_step is not None:
            self.on_step(IN_BACKWARD)
        backward_of_whole(program, trace, cotangents, self._lacking_backward)

    def _outputs(self, program: Program, arguments: list[Any], trace: Trace) -> tuple[Any, ...]:
        """Run a compiled body, without gradients if its compiler refuses to be trained."""
        key = self._key(program, arguments)
        trace.failure = self._refusals.get(key)
        outputs = () if trace.failure is not None else self._call(program, arguments, trace)
        if trace.failure is None or trace.failure.lacking is not None or not self._may_refuse(program, arguments):
            return outputs
        return self._without_training(program, arguments, trace, trace.failure)

    def _lacking_backward(self, error: BaseException) -> Unsupported | None:
        """Return that a compiler refuses to run a backward pass: its own code raises an error on purpose.

        What torch raises there, for example of a gradient with a wrong shape, is a fault of the compiler. So is what
        raises in a compiler of torch itself, because all of these can be trained.
        """
        if self._compiler in OF_TORCH or not is_raised_on_purpose(error, Path(torch.__file__).parent):
            return lacking(error)
        return _refusal(type(error).__name__, error_text(error))

    def _may_refuse(self, program: Program, arguments: Sequence[Any]) -> bool:
        """Whether a body that raises is trained, by a compiler that may be for inference only."""
        is_own = self.case_scope.is_trained and self._compiler not in OF_TORCH
        return is_own and any(map(has_leaf, arguments)) and all(s.target not in READS_GRADIENT for s in program.steps)

    def _without_training(
        self, program: Program, arguments: Sequence[Any], trace: Trace, failure: Failure
    ) -> tuple[Any, ...]:
        """Run a body again without gradients. If it runs, the compiler has refused to be trained; its values count."""
        given = [value.detach() if isinstance(value, torch.Tensor) else value for value in arguments]
        again = Trace()
        with torch.no_grad():
            outputs = self._call(program, given, again)
        if again.failure is not None or again.untested is not None:
            return ()
        trace.failure, trace.delegation = None, again.delegation
        self._refusals.keep(self._key(program, arguments), failure)
        trace.has_flags = False
        trace.backward_failure = Raised(failure.kind, failure.message)
        trace.backward_lacking = _refusal(failure.kind, failure.message)
        return outputs

    def body_calls(self, program: Program, values: Sequence[Any]) -> BodyCalls:
        """Return what runs the compiled body once; its first call compiles."""
        self._bodies.forget()
        written = python_function(program, self.device, self.functions)
        compiled = torch.compile(written, backend=self._compiler, **self._options)
        if not self.case_scope.is_trained:
            compiled = self._without_gradients()(compiled)
        return BodyCalls(called_with(compiled, program, values))

    def _has_cuda_graphs(self) -> bool:
        """Whether a second run may write to the results of the first, which a CUDA graph has memory of its own for."""
        modes = {"reduce-overhead", "max-autotune"}
        asked = self._options.get("mode") in modes or "triton.cudagraphs" in self._options.get("options", {})
        return self.device.type == "cuda" and (asked or self._compiler == "cudagraphs")

    def forget_bodies(self) -> bool:
        """Compile bodies anew from now on."""
        self._bodies.forget()
        return True

    def taken_compile_s(self) -> float:
        """Return the seconds spent compiling since the last call of this method."""
        return self._bodies.clock.taken()

    def _call(self, program: Program, arguments: list[Any], trace: Trace) -> tuple[Any, ...]:
        first = program.calls[0][0] if program.calls else len(program.steps) - 1
        key = self._key(program, arguments)
        body = self._bodies.get(key) or self._made(program, key)
        try:
            found = self._run_compiled(body, arguments, first)
            if body.watch.is_outdated:
                self._bodies.forget()
                body = self._made(program, key)
                found = self._run_compiled(body, arguments, first)
            # A tensor that was made in inference mode, also by the compiler's own choice, has no version.
            found = [
                value.clone() if isinstance(value, torch.Tensor) and value.is_inference() else value for value in found
            ]
        except FOREIGN as error:
            pass_interrupt(error)
            is_of_shared_graph = type(error) is RuntimeError and self._compiler != _EAGER
            if is_of_shared_graph and goes_through_earlier_calls(program) and _runs(body.plain, arguments):
                trace.untested = Unsupported(UnsupportedReason.NO_GRAPH, _SHARED)
                return ()
            trace.failure = Failure(first, type(error).__name__, error_text(error), lacking(error))
            return ()
        self._bodies.settle(body, program, key)
        trace.is_kept = body.watch.is_settled
        if not body.watch.runs:
            detail = "nothing was compiled: torch.compile ran the body eagerly"
            trace.untested = Unsupported(UnsupportedReason.NOT_COMPILED, detail)
        trace.delegation = body.watch.found(program)
        return tuple(found)

    def _key(self, program: Program, arguments: Sequence[Any]) -> Hashable:
        """Return what a compiled body holds for; ``None`` if for one run only."""
        key = body_key(program, arguments)
        functions = {**own_functions(program), **self.functions}.items()
        return key and (key, torch.is_grad_enabled(), *((operator, id(function)) for operator, function in functions))

    def _made(self, program: Program, key: Hashable) -> CompiledBody:
        """Return a body that its first run compiles."""
        watch = DelegationWatch(self._compiler, lines_of(program, self.functions), self._delegated)
        return self._bodies.make(partial(python_function, program, self.device, self.functions), key, watch)

    def _run_compiled(self, body: CompiledBody, arguments: Sequence[Any], first: int) -> Any:
        """Run a compiled body; ``None`` if what is kept of it does not hold for this run."""
        if self.on_step is not None:
            self.on_step(first if body.watch.is_settled else IN_COMPILING)
        try:
            with nullcontext() if self.case_scope.is_trained else self._without_gradients():
                return self._bodies.run(body, arguments, lambda: self.on_step and self.on_step(first))
        except FOREIGN as error:
            pass_interrupt(error)
            if not body.watch.is_outdated:
                raise
        return None


def _refusal(kind: str, message: str) -> Unsupported:
    # Below an empty line torch tells how to report a bug of its own.
    said = " ".join(message.partition("\n\n")[0].split())
    return Unsupported(UnsupportedReason.NOT_TRAINED, f"trained, it raises {kind}: {said[:300]}")


def _runs(function: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    """Whether a body runs without a compiler, so that an error is none of its kernels'."""
    try:
        function(*arguments)
    except FOREIGN as error:
        pass_interrupt(error)
        return False
    return True


def _compilers() -> list[str]:
    """Return the compilers that work here, those that only fail on purpose for torch's own tests left out."""
    return [
        name
        for name in torch._dynamo.list_backends(exclude_tags=())
        if not name.endswith("_TESTING_ONLY") and _is_installed(name)
    ]


def _is_installed(compiler: str) -> bool:
    """Whether the library is there that a compiler of torch's list hands the graph to."""
    library = next((module for prefix, module in _LIBRARIES.items() if compiler.startswith(prefix)), "torch")
    return importlib.util.find_spec(library) is not None

"""The backend ``onnxruntime``: the setup is run by torch, the body is exported to ONNX and run by ONNX Runtime.

The candidate is both together: a wrong translation of the exporter's is a finding like a wrong kernel. It shows outputs
only, has no backward pass, and does not write to its inputs. What the exporter folded into a constant was computed by
torch and is not compared; a body of which nothing else is left was not tested, and says so.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.onnx import _constants

from ci_autotest.backends.onnx.export import Body, exported
from ci_autotest.backends.onnx.exported_graph import computed, drawing, undefined
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.protocol import Backend
from ci_autotest.backends.torch_compile import python_function
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.backends.trace import Failure
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.backends.whole_graph import begun, prepared, see
from ci_autotest.environments import beside_torch
from ci_autotest.errors import ConfigError, UnavailableError, UnsupportedError, UnsupportedReason, error_text
from ci_autotest.program.codegen import inputs
from ci_autotest.program.ir import HOOK, REGISTERS, output_refs
from ci_autotest.program.refusal import refused_as

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program

_OPTIONS: Final = {"dynamo": bool, "opset_version": int}
_NAME: Final = "onnxruntime"
#: What a body cannot ask of a model: the elements of a tensor while the model is made, and gradients.
_READS: Final = frozenset({
    "builtins.bool", "builtins.int", "builtins.float", "item", "numpy", "tolist", "backward", "retain_grad",
    "torch.autograd.grad", "torch.autograd.backward",
})  # fmt: skip
#: Dtypes that numpy, in which onnxruntime takes and gives tensors, does not have, or onnxruntime has no kernel of.
_NOT_TAKEN: Final = frozenset({torch.bfloat16, torch.complex64, torch.complex128})


class OnnxBackend(Backend):
    """Export each body, and run what was exported.

    Args:
        options: Arguments of ``torch.onnx.export``: ``dynamo``, which exporter (``False`` unless given: the other takes
            about half a second for each body), and ``opset_version``.
        device: ``cpu``.

    Raises:
        ConfigError: An option has the wrong type, or the exporter does not know the opset.
        UnavailableError: A package is missing, or the device is not ``cpu``.
    """

    shows_steps = False
    mode = "forward only"

    def __init__(self, options: Mapping[str, Any], device: str = "cpu") -> None:
        if device != "cpu":
            message = (
                f"candidate of backend 'onnxruntime' asks for device '{device}': it runs on cpu. Write device: cpu."
            )
            raise UnavailableError(message)
        self._torch = TorchBackend()
        self.on_step: Callable[[int], None] | None = None
        self._options = {"dynamo": False, **options}
        if any(type(value) is not _OPTIONS[name] for name, value in self._options.items()):
            message = (
                f"backend 'onnxruntime' has options {dict(options)}. Write dynamo: true or false, opset_version: 18."
            )
            raise ConfigError(message)
        self._runtime, self._onnx = _imported(_NAME), _imported("onnx")
        self.libraries = {"onnx": str(self._onnx.__version__), "torch": str(torch.__version__)}
        self._check_opset()
        if self._options["dynamo"]:
            self.libraries["onnxscript"] = str(_imported("onnxscript").__version__)
        self.version = str(self._runtime.__version__)
        self._runtime.set_default_logger_severity(4)  # What it has to say is in its errors.

    def _check_opset(self) -> None:
        """Refuse an opset that torch cannot export: every test would be unsupported, or exported to another opset.

        Raises:
            ConfigError: The opset is out of the exporter's range.

        Source:
            ``torch/onnx/_constants.py`` (PyTorch 2.13). ``dynamo=True`` has no limit of its own: it converts what it
            exported with the package onnx, and silently keeps opset 18 where that fails.
        """
        opset, oldest = self._options.get("opset_version"), _constants.ONNX_MIN_OPSET
        is_dynamo = self._options["dynamo"]
        newest = self._onnx.defs.onnx_opset_version() if is_dynamo else _constants.ONNX_MAX_OPSET
        if opset is not None and not oldest <= opset <= newest:
            message = (
                f"backend 'onnxruntime' has opset_version: {opset}, and torch {torch.__version__} exports opsets "
                f"{oldest} to {newest} with dynamo: {str(is_dynamo).lower()}. Give one of these, or leave it out."
            )
            raise ConfigError(message)

    def run(
        self,
        program: Program,
        sources: Mapping[str, Any],
        *,
        snapshots: bool = False,
        copied: Collection[int] = (),  # noqa: ARG002 - a model shows its outputs at its end
    ) -> Trace:
        """Run the setup, then the exported body."""
        trace = begun(program, snapshots=snapshots)
        trace.is_remote, trace.has_flags, trace.has_backward = True, False, False
        trace.shown = frozenset()
        try:
            _refuse_what_cannot_be_asked(program)
            self._go(program, sources, trace, snapshots=snapshots)
        except UnsupportedError as error:
            trace.untested, trace.shown = error.why, frozenset()
        return trace

    def backward(self, program: Program, trace: Trace, cotangents: Mapping[int, Any]) -> None:
        """Do nothing: an exported body has no backward pass, and its trace says so."""

    def _go(self, program: Program, sources: Mapping[str, Any], trace: Trace, *, snapshots: bool) -> None:
        # Run by torch first: it says which outputs are tensors, and its modules are its own.
        plain = self._torch.run(program, sources)
        if plain.failure is not None or not prepared(self._torch.steps, program, sources, trace):
            trace.failure = trace.failure or plain.failure
            return
        refs = output_refs(program)
        kept = [i for i, ref in enumerate(refs) if isinstance(plain.values[ref.index], torch.Tensor)]
        if not kept:
            message = "the body puts out no tensor, and a model puts out nothing else"
            raise UnsupportedError(message)
        first = program.calls[0][0] if program.calls else len(program.steps) - 1
        if self.on_step is not None:
            self.on_step(first)
        bound = [trace.values[index] for _, index in inputs(program)]
        trace.values = [None] * len(
            trace.values
        )  # What the exporter traced wrote to torch's values, not to the model's.
        function = python_function(program, self._torch.device)
        called = ", ".join(dict.fromkeys(step_operator(step, program.steps) for _, step in program.calls))
        outputs, ran = self._outputs(Body(function, bound, kept), bound, called, trace, first)
        if trace.failure is not None:
            return
        trace.shown = frozenset(refs[place].index for place, own in zip(kept, ran, strict=True) if own)
        for place, value in zip(kept, outputs, strict=True):
            trace.values[refs[place].index] = value
            see(trace, refs[place].index, snapshots=snapshots)

    def _outputs(
        self, body: Body, bound: Sequence[Any], called: str, trace: Trace, first: int
    ) -> tuple[list[torch.Tensor], tuple[bool, ...]]:
        """Return what the model puts out, and of which outputs it computed something."""
        given = [value for value in bound if isinstance(value, torch.Tensor)]
        named = {f"input_{i}": value.detach().clone() for i, value in enumerate(given)}
        arrays = {name: _array(value) for name, value in named.items()}
        data = exported(body, named, self._options, called)
        model = self._onnx.load_from_string(data)
        draws, ran = drawing(model), computed(model)
        if draws:
            message = f"the exported graph draws ({draws}): its numbers are others"
            raise UnsupportedError(message)
        if not any(ran):
            message = f"the exporter folded the body into constants ({called}): nothing of it ran on onnxruntime"
            raise UnsupportedError(message, reason=UnsupportedReason.CONSTANT)
        try:
            session = self._runtime.InferenceSession(data, self._session_options(), providers=["CPUExecutionProvider"])
            found = session.run(None, {item.name: arrays[item.name] for item in session.get_inputs()})
        except FOREIGN as error:
            pass_interrupt(error)
            if lacking := self._lacking(error, model):
                message = f"onnxruntime {self.version}: {lacking}"
                raise UnsupportedError(message) from error
            trace.failure = Failure(first, type(error).__name__, error_text(error))
            return [], ran
        return [torch.from_numpy(array) for array in found], ran

    def _lacking(self, error: BaseException, model: Any) -> str:
        """Return that there is no kernel of an operator, or in ONNX no such operator; nothing of another error."""
        errors = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
        if isinstance(error, errors.NotImplemented):
            return _plain(error_text(error))
        return undefined(model, self._onnx) if isinstance(error, errors.InvalidGraph) else ""

    def _session_options(self) -> Any:
        """Return the options of a session: one thread, as torch has in a worker."""
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return options


def _imported(name: str) -> Any:
    """Return a package that the backend needs beside torch.

    Raises:
        UnavailableError: It cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:
        reason = (
            f"{type(error).__name__}: {error_text(error).splitlines()[0].rstrip('.')}"
            if error_text(error)
            else "no reason"
        )
        message = (
            f"candidate of backend 'onnxruntime' needs the package {name}, which cannot be imported beside torch "
            f"({reason}). Run: {beside_torch(_NAME)}"
        )
        raise UnavailableError(message) from error


def _refuse_what_cannot_be_asked(program: Program) -> None:
    """Refuse a body that reads elements, asks for gradients or registers hooks: a trace would hold what torch gave.

    Raises:
        UnsupportedError: It does.
    """
    for step in program.body:
        name = str(step.args[1]) if step.target == "builtins.getattr" else step.target
        if step.target in _READS or name in {"grad", "item", "numpy"}:
            message = f"a model reads no tensor and no gradient while it is made: {name}"
            raise UnsupportedError(message)
        if {*HOOK, *REGISTERS} & set(step.modes):
            message = "hooks are not part of a model"
            raise UnsupportedError(message)
        if refused_as(step) is not None:
            message = "a step that is to be refused is not part of a model"
            raise UnsupportedError(message)


def _array(tensor: torch.Tensor) -> Any:
    """Return an input as onnxruntime takes it, in memory of its own.

    Raises:
        UnsupportedError: Numpy has no such dtype.
    """
    if tensor.dtype in _NOT_TAKEN:
        message = (
            f"onnxruntime is given arrays of numpy and has no kernels of {str(tensor.dtype).removeprefix('torch.')}"
        )
        raise UnsupportedError(message)
    return tensor.clone(memory_format=torch.contiguous_format).resolve_neg().numpy()


def _plain(told: str) -> str:
    """Return what onnxruntime said, without the prefix of every error."""
    return told.splitlines()[0].rpartition(" : ")[2].rstrip(".")

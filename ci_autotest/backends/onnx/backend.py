"""The backend ``onnxruntime``: torch runs the setup, and ONNX Runtime runs the exported body.

The candidate is exporter and runtime together, so that a wrong translation is a finding like a wrong kernel. Only
outputs are visible; there is no backward pass, and inputs are never written to. An output that the exporter folded into
a constant was computed by torch and is not compared. If nothing else is left of a body, the case is unsupported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.onnx import _constants

from ci_autotest.backends.body_function import begun, prepared, see
from ci_autotest.backends.onnx.export import ExportedBody, computed, drawing, exported, undefined
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.protocol import Backend
from ci_autotest.backends.torch_compile import python_function
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.backends.trace import Failure
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.environments import beside_torch
from ci_autotest.errors import ConfigError, UnavailableError, UnsupportedError, UnsupportedReason, error_text
from ci_autotest.program.codegen import inputs
from ci_autotest.program.ir import HOOK, REGISTERS, output_refs
from ci_autotest.program.refusal import refused_as
from ci_autotest.values.dtypes import BITS, COMPLEX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program

_OPTIONS: Final = {"dynamo": bool, "opset_version": int}
_NAME: Final = "onnxruntime"
#: Steps that a model cannot contain: reads of a tensor's elements while the body is exported, and gradients.
_READS: Final = frozenset({
    "builtins.bool", "builtins.int", "builtins.float", "item", "numpy", "tolist", "backward", "retain_grad",
    "torch.autograd.grad", "torch.autograd.backward",
})  # fmt: skip
#: Dtypes that NumPy lacks (onnxruntime exchanges tensors as NumPy arrays), or that onnxruntime has no kernels for.
_NOT_TAKEN: Final = frozenset(getattr(torch, name) for name in COMPLEX | BITS.keys())


class OnnxBackend(Backend):
    """Export each body, and run the model.

    Args:
        options: Arguments of ``torch.onnx.export``: ``opset_version``, and ``dynamo``, which selects the exporter. The
            default is ``False``, because the other one takes about half a second for each body.
        device: ``cpu``.
        candidate: The candidate's name, for messages.

    Raises:
        ConfigError: An option has the wrong type, or the exporter does not know the opset.
        UnavailableError: A package is missing, or the device is not ``cpu``.
    """

    shows_steps = False
    mode = "forward only"

    def __init__(self, options: Mapping[str, Any], device: str = "cpu", candidate: str = _NAME) -> None:
        if device != "cpu":
            message = (
                f"candidate of backend 'onnxruntime' asks for device '{device}': it runs on cpu. Write device: cpu."
            )
            raise UnavailableError(message)
        self._torch = TorchBackend(is_candidate=True)
        self.on_step: Callable[[int], None] | None = None
        self._options = {"dynamo": False, **options}
        if any(type(value) is not _OPTIONS[name] for name, value in self._options.items()):
            message = (
                f"candidate '{candidate}' has options {dict(options)}. Write dynamo: true or false, opset_version: 18."
            )
            raise ConfigError(message)
        self._runtime, self._onnx = _imported(_NAME), _imported("onnx")
        self.libraries = {"onnx": str(self._onnx.__version__), "torch": str(torch.__version__)}
        self._check_opset(candidate)
        if self._options["dynamo"]:
            self.libraries["onnxscript"] = str(_imported("onnxscript").__version__)
        self.version = str(self._runtime.__version__)
        self._runtime.set_default_logger_severity(4)  # Its errors already contain what it would log.

    def _check_opset(self, candidate: str) -> None:
        """Refuse an opset that torch cannot export, because every test would be unsupported or use another opset.

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
                f"candidate '{candidate}' has opset_version: {opset}, and torch {torch.__version__} exports opsets "
                f"{oldest} to {newest} with dynamo: {str(is_dynamo).lower()}. Give one of these, or leave it out."
            )
            raise ConfigError(message)

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
        if self.on_step is not None:
            self.on_step(first)
        bound = [trace.values[index] for _, index in inputs(program)]
        # The exporter's tracing may write to these values, but the model's run does not, so they are not shown.
        trace.values = [None] * len(trace.values)
        function = python_function(program, self._torch.device)
        called = ", ".join(dict.fromkeys(step_operator(step, program.steps) for _, step in program.calls))
        outputs, ran = self._outputs(ExportedBody(function, bound, kept), bound, called, trace, first)
        if trace.failure is not None:
            return
        trace.shown = frozenset(refs[place].index for place, own in zip(kept, ran, strict=True) if own)
        for place, value in zip(kept, outputs, strict=True):
            trace.values[refs[place].index] = value
            see(trace, refs[place].index, snapshots=snapshots)

    def _outputs(
        self, body: ExportedBody, bound: Sequence[Any], called: str, trace: Trace, first: int
    ) -> tuple[list[torch.Tensor], tuple[bool, ...]]:
        """Return the model's outputs, and which of them the model computes itself."""
        given = [value for value in bound if isinstance(value, torch.Tensor)]
        named = {f"input_{i}": value.detach().clone() for i, value in enumerate(given)}
        arrays = {name: _array(value) for name, value in named.items()}
        data = exported(body, named, self._options, called)
        model = self._onnx.load_from_string(data)
        # Random numbers would be a false alarm, and an output that torch has computed would be green without a test.
        draws, ran = drawing(model), computed(model)
        if draws:
            message = f"the exported graph draws random numbers ({draws}), which differ from torch's"
            raise UnsupportedError(message)
        if not any(ran):
            message = f"the exporter folded the body into constants ({called}), so nothing of it ran on onnxruntime"
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
        """Return that onnxruntime has no kernel for an operator, or ONNX no such operator; empty for other errors."""
        errors = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
        if isinstance(error, errors.NotImplemented):
            return _plain(error_text(error))
        return undefined(model, self._onnx) if isinstance(error, errors.InvalidGraph) else ""

    def _session_options(self) -> Any:
        """Return the options of a session: one thread, because torch also has one in a worker."""
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return options


def _imported(name: str) -> Any:
    """Return a package that the backend needs in addition to torch.

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


def _array(tensor: torch.Tensor) -> Any:
    """Return a copy of an input as an array, which is what onnxruntime takes.

    Raises:
        UnsupportedError: NumPy has no such dtype, or onnxruntime no kernels for it.
    """
    if tensor.dtype in _NOT_TAKEN:
        message = f"onnxruntime takes NumPy arrays and has no kernels for {str(tensor.dtype).removeprefix('torch.')}"
        raise UnsupportedError(message)
    return tensor.clone(memory_format=torch.contiguous_format).resolve_neg().numpy()


def _plain(text: str) -> str:
    """Return the text of onnxruntime's error without its prefix, ``[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : ``."""
    return text.splitlines()[0].rpartition(" : ")[2].rstrip(".")

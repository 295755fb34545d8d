"""The exporter of the backend ``onnxruntime``: ``torch.onnx.export``, and ONNX Runtime, which runs the models.

What an exported graph computes itself is read from the graph: torch may have folded constants, and random numbers
differ. Source: ONNX 1.23, ``docs/IR.md`` (graphs, initializers, subgraphs) and ``docs/Operators.md``.
"""

from __future__ import annotations

import importlib
import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.onnx import _constants

from ci_autotest.backends.compilers.export import Exporter, Model
from ci_autotest.backends.compilers.exported_body import quiet
from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.environments import beside_torch
from ci_autotest.errors import ConfigError, UnavailableError, UnsupportedError, UnsupportedReason, error_text
from ci_autotest.kinds import OnnxRuntimeCandidate
from ci_autotest.values.dtypes import BITS, COMPLEX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ci_autotest.backends.compilers.exported_body import ExportedBody


_OPTIONS: Final = {"dynamo": bool, "opset_version": int}
_NAME: Final = "onnxruntime"
#: Dtypes that NumPy lacks (onnxruntime exchanges tensors as NumPy arrays), or that onnxruntime has no kernels for.
_NOT_TAKEN: Final = frozenset(getattr(torch, name) for name in COMPLEX | BITS.keys())


class OnnxExporter(Exporter):
    """Translate bodies by ``torch.onnx.export``, and run the models by ONNX Runtime.

    Args:
        options: Arguments of ``torch.onnx.export``: ``opset_version``, and ``dynamo``, which selects the exporter. The
            default is ``False``, because the other one takes about half a second for each body.
        candidate: The candidate's name, for messages.

    Raises:
        ConfigError: An option has the wrong type, or the exporter does not know the opset.
        UnavailableError: A package is missing.
    """

    name = _NAME
    runs_all = True

    def __init__(self, options: Mapping[str, Any], candidate: str = _NAME) -> None:
        self._options = {"dynamo": False, **options}
        if any(type(value) is not _OPTIONS[name] for name, value in self._options.items()):
            message = (
                f"candidate '{candidate}' has options {dict(options)}. Write dynamo: true or false, opset_version: 18."
            )
            raise ConfigError(message)
        self._runtime, self._onnx = _imported(_NAME), _imported("onnx")
        libraries = {"onnx": str(self._onnx.__version__), "torch": str(torch.__version__)}
        self._check_opset(candidate)
        if self._options["dynamo"]:
            libraries["onnxscript"] = str(_imported("onnxscript").__version__)
        self.libraries, self.version = libraries, str(self._runtime.__version__)
        self._runtime.set_default_logger_severity(4)  # Its errors already contain what it would log.

    def model(self, body: ExportedBody, tensors: Sequence[torch.Tensor], called: str) -> Model:
        """Return a session of the runtime."""
        named = {f"input_{i}": tensor.clone() for i, tensor in enumerate(tensors)}
        for tensor in tensors:
            _refuse_dtype(tensor)
        with self._naming_what_it_lacks():
            session, ran = self._session(body, named, called)
        names = [item.name for item in session.get_inputs()]

        def run(*given: torch.Tensor) -> list[torch.Tensor]:
            arrays = dict(zip(named, map(_array, given), strict=True))
            with self._naming_what_it_lacks():
                found = session.run(None, {name: arrays[name] for name in names})
            return [torch.from_numpy(array) for array in found]

        return Model(run, ran)

    @contextmanager
    def _naming_what_it_lacks(self) -> Iterator[None]:
        """Raise what the runtime has no kernel for as ``UnsupportedError``."""
        try:
            yield
        except _errors().NotImplemented as error:
            message = f"onnxruntime {self.version}: {_plain(error_text(error))}"
            raise UnsupportedError(message) from error

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

    def _session(
        self, body: ExportedBody, named: Mapping[str, torch.Tensor], called: str
    ) -> tuple[Any, tuple[bool, ...]]:
        """Return the runtime's session of an exported body, and which outputs the runtime computes itself.

        Raises:
            UnsupportedError: The body cannot be exported, or the runtime has no kernel for it.
        """
        data = exported(body, named, self._options, called)
        model = self._onnx.load_from_string(data)
        # Random numbers would be a false alarm, and an output that torch has computed would be green without a test.
        draws, ran = _drawing(model), _computed(model)
        if draws:
            message = f"the exported graph draws random numbers ({draws}), which differ from torch's"
            raise UnsupportedError(message)
        if not any(ran):
            message = f"the exporter folded the body into constants ({called}), so nothing of it ran on onnxruntime"
            raise UnsupportedError(message, reason=UnsupportedReason.CONSTANT)
        try:
            return self._runtime.InferenceSession(
                data, self._session_options(), providers=["CPUExecutionProvider"]
            ), ran
        except _errors().InvalidGraph as error:
            undefined = _undefined(model, self._onnx)
            if not undefined:
                raise
            message = f"onnxruntime {self.version}: {undefined}"
            raise UnsupportedError(message) from error

    def _session_options(self) -> Any:
        """Return the options of a session: one thread, because torch also has one in a worker."""
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return options


def _errors() -> Any:
    """Return the module of onnxruntime's errors."""
    return importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")


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
            f"({reason}). Run: {beside_torch(OnnxRuntimeCandidate.packages)}"
        )
        raise UnavailableError(message) from error


def _refuse_dtype(tensor: torch.Tensor) -> None:
    """Refuse an input that onnxruntime cannot be given.

    Raises:
        UnsupportedError: NumPy has no such dtype, or onnxruntime no kernels for it.
    """
    if tensor.dtype in _NOT_TAKEN:
        message = f"onnxruntime takes NumPy arrays and has no kernels for {str(tensor.dtype).removeprefix('torch.')}"
        raise UnsupportedError(message)


def _array(tensor: torch.Tensor) -> Any:
    """Return a copy of an input as an array, which is what onnxruntime takes."""
    return tensor.clone(memory_format=torch.contiguous_format).resolve_neg().numpy()


def _plain(text: str) -> str:
    """Return the text of onnxruntime's error without its prefix, ``[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : ``."""
    return text.splitlines()[0].rpartition(" : ")[2].rstrip(".")


#: What the exporters append to a reason: requests to the user, and the place of the value in their own graph.
_APPENDED: Final = re.compile(r"\s*(?:Please |\[Caused by |⬆|\(node defined in ).*", re.DOTALL)
#: Types of nodes that compute nothing: their result is stored in the model, or is their input.
_CARRIED: Final = frozenset({"Constant", "Identity"})
#: Types of nodes that always draw random numbers. ``Dropout`` only draws if it has its third input, ``training_mode``.
_DRAWS: Final = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial",
})  # fmt: skip
#: Which input of a Dropout node says whether it drops anything.
_TRAINING: Final = 2


def exported(body: ExportedBody, inputs: Mapping[str, torch.Tensor], options: Mapping[str, Any], called: str) -> bytes:
    """Return a body as an ONNX model.

    Args:
        body: The body.
        inputs: Its tensors in order, by their names in the model; the exporter may write to them.
        options: ``dynamo`` and ``opset_version`` of ``torch.onnx.export``.
        called: The operators that the body calls, in case the exporter's reason names none.

    Raises:
        UnsupportedError: The exporter cannot translate it.
    """
    mode = torch.onnx.TrainingMode
    file: Any = io.BytesIO()  # The exporters also accept file objects, although their annotations do not say so.
    try:
        with quiet("torch.onnx"):
            program = torch.onnx.export(
                body, tuple(inputs.values()), None if options["dynamo"] else file, input_names=list(inputs),
                training=mode.PRESERVE if body.training else mode.EVAL, verbose=False, **options,
            )  # fmt: skip
            if program is not None:
                program.save(file)
    except FOREIGN as error:
        pass_interrupt(error)
        message = f"torch.onnx.export: {reason(error, called)}"
        raise UnsupportedError(message) from error
    data: bytes = file.getvalue()
    return data


def reason(error: BaseException, called: str) -> str:
    """Return why an exporter refused, in one line that names an operator.

    Args:
        error: The exporter's error. Its innermost cause is the most precise.
        called: The operators that the body calls.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    text = _APPENDED.sub("", error_text(error).strip()).strip()
    first = (text.splitlines() or [""])[0].rstrip(".")
    if isinstance(error, torch.onnx.OnnxExporterError) and first:
        return first  # It names the operator itself.
    return f"{type(error).__name__}{f': {first}' if first else ''} (the body calls {called})"


def _computed(model: Any) -> tuple[bool, ...]:
    """Return for each output whether it depends on an input or a computing node, and is not the exporter's constant."""
    graph = model.graph
    fixed = {tensor.name for tensor in graph.initializer}
    inputs = {value.name for value in graph.input} - fixed
    makers = {name: node for node in graph.node for name in node.output}
    return tuple(_is_computed(value.name, makers, inputs) for value in graph.output)


def _is_computed(name: str, makers: dict[str, Any], inputs: set[str]) -> bool:
    """Whether a value comes from an input or from a node that computes."""
    open_names = [name]
    while open_names:
        found = open_names.pop()
        node = makers.get(found)
        if found in inputs or (node is not None and node.op_type not in _CARRIED):
            return True
        open_names += list(node.input) if node is not None else []
    return False


def _drawing(model: Any) -> str:
    """Return the first node type that draws random numbers; empty if none does."""
    for node in _nodes(model.graph):
        is_training = node.op_type == "Dropout" and len(node.input) > _TRAINING and node.input[_TRAINING]
        if node.op_type in _DRAWS or is_training:
            return str(node.op_type)
    return ""


def _undefined(model: Any, onnx: Any) -> str:
    """Return the first operator that ONNX does not define for its inputs' dtypes; empty if all are defined.

    The operators' schemas list the allowed dtypes. A value whose dtype cannot be inferred is skipped.
    """
    graph = onnx.shape_inference.infer_shapes(model).graph
    dtypes = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info)}
    dtypes.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    versions = {domain.domain: domain.version for domain in model.opset_import}
    for node in graph.node:
        schema = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
        for name, formal in zip(node.input, schema.inputs, strict=False):
            spelled = f"tensor({onnx.TensorProto.DataType.Name(dtypes.get(name, 0)).lower()})"
            if dtypes.get(name) and spelled not in formal.types:
                return f"ONNX defines no {node.op_type} of {spelled}"
    return ""


def _nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)

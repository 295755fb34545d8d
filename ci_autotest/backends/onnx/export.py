"""Export a body to ONNX with ``torch.onnx.export``; if the exporter refuses, give its reason in one sentence.

What an exported graph computes itself is read from the graph: torch may have folded constants, and random numbers
differ. Source: ONNX 1.23, ``docs/IR.md`` (graphs, initializers, subgraphs) and ``docs/Operators.md``.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.backends.user_errors import FOREIGN, pass_interrupt
from ci_autotest.errors import UnsupportedError, error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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
        with _quiet():
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


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' logs and warnings, because their errors contain what they refuse."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def computed(model: Any) -> tuple[bool, ...]:
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


def drawing(model: Any) -> str:
    """Return the first node type that draws random numbers; empty if none does."""
    for node in _nodes(model.graph):
        is_training = node.op_type == "Dropout" and len(node.input) > _TRAINING and node.input[_TRAINING]
        if node.op_type in _DRAWS or is_training:
            return str(node.op_type)
    return ""


def undefined(model: Any, onnx: Any) -> str:
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

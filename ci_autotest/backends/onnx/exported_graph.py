"""Find out what an exported graph computes itself: torch may have folded constants, and random numbers differ.

Source: ONNX 1.23, ``docs/IR.md`` (graphs, initializers, subgraphs) and ``docs/Operators.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Types of nodes that compute nothing: their result is stored in the model, or is their input.
_CARRIED: Final = frozenset({"Constant", "Identity"})
#: Types of nodes that always draw random numbers. ``Dropout`` only draws if it has its third input, ``training_mode``.
_DRAWS: Final = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial",
})  # fmt: skip
_TRAINING: Final = 2


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

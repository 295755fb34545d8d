"""What an exported graph computes of itself: torch may have folded a body into constants, and a draw has other numbers.

Source: ONNX 1.23, ``docs/IR.md`` (graphs, initializers, subgraphs) and ``docs/Operators.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Nodes that compute nothing: their result was in the model, or is their input.
_CARRIED: Final = frozenset({"Constant", "Identity"})
#: Nodes that draw, whatever their inputs say; of ``Dropout`` those that are given the third, ``training_mode``.
_DRAWS: Final = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial",
})  # fmt: skip
_TRAINING: Final = 2


def computed(model: Any) -> tuple[bool, ...]:  # noqa: ANN401 - an `onnx.ModelProto`
    """Return of each output whether the model computes it, or reads it from an input: no constant of the exporter's."""
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


def drawing(model: Any) -> str:  # noqa: ANN401 - an `onnx.ModelProto`
    """Return the first node type that draws random numbers, nothing where none does."""
    for node in _nodes(model.graph):
        is_training = node.op_type == "Dropout" and len(node.input) > _TRAINING and node.input[_TRAINING]
        if node.op_type in _DRAWS or is_training:
            return str(node.op_type)
    return ""


def _nodes(graph: Any) -> Iterator[Any]:  # noqa: ANN401 - an `onnx.GraphProto`
    """Yield the nodes of a graph and of the graphs inside them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)

"""A program as a graph of steps in layers, for a page that draws it: forward edges, and those that carry a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ci_autotest.program.codegen import names
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER, step_refs
from ci_autotest.report.mermaid import gradient_path

if TYPE_CHECKING:
    from ci_autotest.program.ir import Program, Step

#: A drawing of more steps is harder to read than the text.
MOST_NODES: Final = 60
_LABEL_CHARS: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A step of a program.

    Attributes:
        index: Index of the step; nodes refer to one another by it.
        name: Name of the value.
        label: What makes it: the target, or the dtype and shape of an input.
        layer: Length of the longest path from an input.
        inputs: The steps whose values it takes.
        gradients: Those of them that get a gradient from it.
        is_input: Whether it is an input of the program.
        is_culprit: Whether it is the step at fault.
    """

    index: int
    name: str
    label: str
    layer: int
    inputs: tuple[int, ...]
    gradients: tuple[int, ...]
    is_input: bool
    is_culprit: bool


def graph_of(program: Program, culprit: int | None) -> tuple[Node, ...]:
    """Return the steps that compute something; empty for a program of too many."""
    steps = [(i, step) for i, step in enumerate(program.steps) if step.op != OUTPUT]
    if len(steps) > MOST_NODES:
        return ()
    named, layers = names(program), dict[int, int]()
    inputs = {i: tuple(dict.fromkeys(ref.index for ref in step_refs(step))) for i, step in steps}
    carried = set(gradient_path(program, [(a, i) for i, _ in steps for a in inputs[i]]))
    nodes = []
    for i, step in steps:
        layers[i] = max((layers[a] + 1 for a in inputs[i] if a in layers), default=0)
        nodes.append(
            Node(
                index=i, name=named[i], label=_label(step), layer=layers[i], inputs=inputs[i],
                gradients=tuple(a for a in inputs[i] if (a, i) in carried),
                is_input=step.op == PLACEHOLDER, is_culprit=i == culprit,
            )
        )  # fmt: skip
    return tuple(nodes)


def _label(step: Step) -> str:
    return step.target[:_LABEL_CHARS] if step.spec is None else step.spec.label

"""A program as a graph: as mermaid text for GitHub, and in layers for a page that draws it.

The misaligned step is marked, the forward pass has solid lines, the gradient dashed ones. A mermaid label consists of
targets from the allow list, our own names, and numbers; characters that could end a label are replaced.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ci_autotest.program.codegen import names
from ci_autotest.program.edit import follows_from, reached
from ci_autotest.program.ir import OUTPUT, PLACEHOLDER, output_refs, step_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Program, Ref, Step

#: A graph of more steps is harder to read than the text; one of fewer calls shows nothing that the text does not.
_MOST_MERMAID_NODES: Final = 40
_FEWEST_CALLS: Final = 4

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_., \[\]:-]")
_STYLE: Final = "  classDef culprit fill:#ffd7d5,stroke:#cf222e,stroke-width:3px,color:#24292f"
#: A drawing of more steps is harder to read than the text.
MOST_NODES: Final = 60
_LABEL_CHARS: Final = 80


def graph_text(program: Program, culprit: int | None, *, is_gradient: bool) -> str:
    """Return the graph; empty for a program with few calls or too many steps.

    Args:
        program: A checked program.
        culprit: Index of the misaligned step.
        is_gradient: Whether the backward pass is misaligned.
    """
    steps = program.steps
    if len(steps) > _MOST_MERMAID_NODES or len(program.calls) < _FEWEST_CALLS:
        return ""
    named = names(program)
    nodes = [f"  s{i}{_mermaid_node(step, named[i])}" for i, step in enumerate(steps) if step.op != OUTPUT]
    edges = [(ref.index, i) for i, step in enumerate(steps) if step.op != OUTPUT for ref in _once(step)]
    forward = [f"  s{a} --> s{b}" for a, b in edges]
    backward = [f"  s{b} -. gradient .-> s{a}" for a, b in _gradient_path(program, edges)] if is_gradient else []
    marks = [] if culprit is None else [_STYLE, f"  class s{culprit} culprit"]
    return "\n".join(["flowchart TD", *nodes, *forward, *backward, *marks])


def _once(step: Step) -> list[Ref]:
    return list(dict.fromkeys(step_refs(step)))


def _mermaid_node(step: Step, name: str) -> str:
    if step.spec is not None:
        return f'(["{_mermaid_label(f"{name}: {step.spec.label}")}"])'
    return f'["{_mermaid_label(f"{name}: {step.target}")}"]'


def _mermaid_label(text: str) -> str:
    return _FOREIGN.sub("?", text)[:120]


def _gradient_path(program: Program, edges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the edges between leaves that require grad and outputs that get a gradient."""
    leaves = {i for i, step in enumerate(program.steps) if (spec := step.spec) is not None and spec.requires_grad}
    weighted = zip(output_refs(program), program.cotangents, strict=False)
    outputs = {ref.index for ref, spec in weighted if spec is not None}
    below, above = reached(program.steps, leaves), follows_from(program.steps, *outputs)
    return [(a, b) for a, b in edges if a in below and b in above]


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
    carried = set(_gradient_path(program, [(a, i) for i, _ in steps for a in inputs[i]]))
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

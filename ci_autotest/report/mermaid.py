"""A program as a mermaid graph: the misaligned step marked, the forward pass in solid lines, the gradient dashed.

Labels consist of targets from the allow list, our own names, and numbers; characters that could end a label are
replaced.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ci_autotest.program.codegen import names
from ci_autotest.program.edit import follows_from, reached
from ci_autotest.program.ir import OUTPUT, output_refs, step_refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Program, Ref, Step

#: A graph of more steps is harder to read than the text; one of fewer calls shows nothing that the text does not.
MOST_NODES: Final = 40
FEWEST_CALLS: Final = 4

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_., \[\]:-]")
_STYLE: Final = "  classDef culprit fill:#ffd7d5,stroke:#cf222e,stroke-width:3px,color:#24292f"


def graph_text(program: Program, culprit: int | None, *, is_gradient: bool) -> str:
    """Return the graph; empty for a program with few calls or too many steps.

    Args:
        program: A checked program.
        culprit: Index of the misaligned step.
        is_gradient: Whether the backward pass is misaligned.
    """
    steps = program.steps
    if len(steps) > MOST_NODES or len(program.calls) < FEWEST_CALLS:
        return ""
    named = names(program)
    nodes = [f"  s{i}{_node(step, named[i])}" for i, step in enumerate(steps) if step.op != OUTPUT]
    edges = [(ref.index, i) for i, step in enumerate(steps) if step.op != OUTPUT for ref in _once(step)]
    forward = [f"  s{a} --> s{b}" for a, b in edges]
    backward = [f"  s{b} -. gradient .-> s{a}" for a, b in gradient_path(program, edges)] if is_gradient else []
    marks = [] if culprit is None else [_STYLE, f"  class s{culprit} culprit"]
    return "\n".join(["flowchart TD", *nodes, *forward, *backward, *marks])


def _once(step: Step) -> list[Ref]:
    return list(dict.fromkeys(step_refs(step)))


def _node(step: Step, name: str) -> str:
    if step.spec is not None:
        return f'(["{_label(f"{name}: {step.spec.label}")}"])'
    return f'["{_label(f"{name}: {step.target}")}"]'


def _label(text: str) -> str:
    return _FOREIGN.sub("?", text)[:120]


def gradient_path(program: Program, edges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the edges between leaves that require grad and outputs that get a gradient."""
    leaves = {i for i, step in enumerate(program.steps) if (spec := step.spec) is not None and spec.requires_grad}
    weighted = zip(output_refs(program), program.cotangents, strict=False)
    outputs = {ref.index for ref, spec in weighted if spec is not None}
    below, above = reached(program.steps, leaves), follows_from(program.steps, *outputs)
    return [(a, b) for a, b in edges if a in below and b in above]

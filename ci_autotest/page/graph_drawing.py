"""Places for the steps of a program's graph: layers from top to bottom, in order of the program."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.report.program_graph import Node

#: Sizes of a box and the gaps between boxes, in the drawing's own units.
_BOX: Final = (164, 40)
_GAP: Final = (16, 34)
_LABEL_CHARS: Final = 24


@dataclass(frozen=True, slots=True)
class StepBox:
    """A step's box: its upper left corner, its two lines of text, and the whole text."""

    x: int
    y: int
    name: str
    label: str
    title: str
    style: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph: its size, its boxes, and its edges as paths."""

    width: int
    height: int
    boxes: tuple[StepBox, ...]
    edges: tuple[str, ...]


def drawing(nodes: Sequence[Node], *, has_backward: bool) -> Drawing | None:
    """Return the drawing of a graph; ``None`` without an edge.

    Args:
        nodes: The steps, in order.
        has_backward: Draw the steps that a gradient reaches, with its edges; else the forward pass.
    """
    edges = [(a, node.index) for node in nodes for a in (node.gradients if has_backward else node.inputs)]
    drawn = {index for edge in edges for index in edge}
    chosen = [node for node in nodes if node.index in drawn]
    if not edges:
        return None
    places, (width, height) = _places(chosen)
    paths = [_path(places[b], places[a], -1) if has_backward else _path(places[a], places[b], 1) for a, b in edges]
    return Drawing(width, height, tuple(_box(node, *places[node.index]) for node in chosen), tuple(paths))


def _places(nodes: Sequence[Node]) -> tuple[dict[int, tuple[int, int]], tuple[int, int]]:
    """Return the corner of each step's box, each layer centred, and the size of all."""
    rows = {layer: row for row, layer in enumerate(sorted({node.layer for node in nodes}))}
    counts = Counter(node.layer for node in nodes)
    pitch, width = _BOX[0] + _GAP[0], max(counts.values()) * (_BOX[0] + _GAP[0])
    taken: Counter[int] = Counter()
    places = {}
    for node in nodes:
        left = (width - counts[node.layer] * pitch + _GAP[0]) // 2
        places[node.index] = left + taken[node.layer] * pitch, 4 + rows[node.layer] * (_BOX[1] + _GAP[1])
        taken[node.layer] += 1
    return places, (width, len(rows) * (_BOX[1] + _GAP[1]) - _GAP[1] + 8)


def _path(start: tuple[int, int], end: tuple[int, int], direction: int) -> str:
    """Return a curve between two boxes: downward from lower to upper edge, or the way back."""
    x, y = start[0] + _BOX[0] // 2, start[1] + (_BOX[1] if direction > 0 else 0)
    to_x, to_y = end[0] + _BOX[0] // 2, end[1] + (0 if direction > 0 else _BOX[1])
    bend = direction * max(12, abs(to_y - y) // 2)
    # The curve ends a little before the box, so that the tip of its arrow does not lie on the edge.
    return f"M{x} {y}C{x} {y + bend} {to_x} {to_y - bend} {to_x} {to_y - 4 * direction}"


def _box(node: Node, x: int, y: int) -> StepBox:
    style = "culprit" if node.is_culprit else "input" if node.is_input else "call"
    label = node.label if node.is_input else node.label.rpartition(".")[2]
    return StepBox(x, y, _short(node.name), _short(label), f"{node.name}: {node.label}", style)


def _short(text: str) -> str:
    return text if len(text) <= _LABEL_CHARS else f"{text[: _LABEL_CHARS - 1]}…"

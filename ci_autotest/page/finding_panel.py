"""A finding as a panel of the page: its words, its program by line, drawings of its graph, its values and its map."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ci_autotest.report.document import one_line, plain, plain_line
from ci_autotest.report.error_pattern_text import pattern_sentence
from ci_autotest.report.evidence import Evidence
from ci_autotest.report.finding_facts import PATTERN, facts
from ci_autotest.report.finding_program import has_backward, mark, missing_program
from ci_autotest.report.standing import state_of
from ci_autotest.report.verdict_line import headline
from ci_autotest.values.amounts import amount_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.report.finding_text import Setting
    from ci_autotest.report.program_graph import Node
    from ci_autotest.report.standing import State
    from ci_autotest.values.error_pattern import ErrorMap
    from ci_autotest.values.finding import Finding

#: Characters of a text, such as an exception, and of a program that a panel shows.
_TEXT_CHARS: Final = 4_000
_PROGRAM_CHARS: Final = 20_000
_LINES: Final = 200
_TESTS_SHOWN: Final = 5
_VALUES_SHOWN: Final = 12
#: Sizes of a box and the gaps between boxes, in the drawing's own units.
_BOX: Final = (164, 40)
_GAP: Final = (16, 34)
_LABEL_CHARS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What the page shows of a finding; all texts are plain, and the template escapes them.

    Attributes:
        state: What it says of its operator.
        standing: ``new`` or ``still``; empty without a baseline.
        program: Lines of the program, each with whether it is at fault.
        facts: Names and values of the table.
        texts: Titles and texts that are folded away.
        search: What the search looks at, in lower case.
    """

    id: str
    state: State
    standing: str
    operator: str
    candidate: str
    kind: str
    headline: str
    pattern: str
    program: tuple[tuple[str, bool], ...]
    refusal: str
    forward: _Drawing | None
    backward: _Drawing | None
    facts: tuple[tuple[str, str], ...]
    values: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]
    texts: tuple[tuple[str, str], ...]
    search: str
    has_map: bool


def panel(finding: Finding, setting: Setting, map_data: dict[str, Any] | None) -> Panel:
    """Return the panel of a finding; its program comes from its checked file, unless this process wrote the report."""
    found = Evidence(program=finding.program) if setting.source is None else setting.source(finding) or Evidence()
    is_new = setting.is_new(finding)
    told = facts(finding, is_new=is_new, kernel=setting.kernel(finding))
    names = (finding.operator, finding.candidate, finding.kind, finding.test, *finding.tests[:_TESTS_SHOWN])
    return Panel(
        id=finding.id,
        state=state_of(finding),
        standing="" if is_new is None else "new" if is_new else "still",
        operator=one_line(finding.operator or finding.test, 160),
        candidate=one_line(finding.candidate, 80),
        kind=finding.kind,
        headline=one_line(headline(finding), 300),
        pattern=one_line(pattern_sentence(finding.pattern), 300),
        program=_marked(plain(found.program)[:_PROGRAM_CHARS], finding),
        refusal=one_line(found.refusal or missing_program(finding)),
        forward=_drawing(found.nodes, has_backward=False),
        backward=_drawing(found.nodes, has_backward=True) if has_backward(finding) else None,
        facts=tuple((name, plain_line(fact)) for name, fact in told.items() if name != PATTERN),  # It has a line above.
        values=tuple((one_line(name, 80), one_line(text, 1500)) for name, text in found.values[:_VALUES_SHOWN]),
        commands=_commands(finding),
        texts=_texts(finding),
        search=" ".join(one_line(name, 200) for name in names).lower(),
        has_map=map_data is not None,
    )


def map_of(finding: Finding) -> dict[str, Any] | None:
    """Return the map of a finding for the page's script; ``None`` if it has none, or one that contradicts itself."""
    pattern = finding.pattern
    if pattern is None or not _is_sound(pattern.map, pattern.shape):
        return None
    plain_map: dict[str, Any] = msgspec.to_builtins(pattern.map)
    return {**plain_map, "shape": list(pattern.shape)}


def _is_sound(found: ErrorMap, shape: tuple[int, ...]) -> bool:
    """Whether the cells of a map fit its data. A report may come from outside."""
    cells = [
        -(-size // block) if block > 0 and size > 0 else -1 for size, block in zip(shape, found.block, strict=False)
    ]
    fits = len(found.block) == len(shape) and list(found.cells) == cells and min(cells, default=1) > 0
    return fits and prod(cells) == len(found.levels)


def _marked(program: str, finding: Finding) -> tuple[tuple[str, bool], ...]:
    """Return the lines of a program, each with whether it is at fault.

    That is the line with the comment that marks the fault; without one, each call of the operator. A line with the
    reference's own call beside the candidate's is not at fault.
    """
    comment, call = f"# {mark(finding)}", f"{finding.target}("
    lines = program.split("\n")[:_LINES] if program else []
    if any(each.endswith(comment) for each in lines):
        return tuple((each, each.endswith(comment)) for each in lines)
    # Without a target only the parenthesis is left, which would mark every call.
    return tuple((each, len(call) > 1 and call in each) for each in lines)


def _commands(finding: Finding) -> tuple[str, ...]:
    # Whoever has downloaded the artifact has this folder; whoever ran the tests has the other.
    repro = f"python findings/{finding.id}/repro.py   # in the folder of this page" if finding.repro is not None else ""
    replay = f"{one_line(finding.replay)}   # where the tests ran" if finding.replay else ""
    return tuple(filter(None, (repro, replay)))


def _texts(finding: Finding) -> tuple[tuple[str, str], ...]:
    growth = "\n".join(f"{item.what}: {_amount(item.greatest_absolute)}" for item in finding.growth)
    variants = "\n\n".join(f"# {one_line(item.headline)}\n{item.program}" for item in finding.variants)
    texts = {
        "how the error grows": growth,
        "detail": finding.detail,
        "message": finding.message,
        "other programs with the same finding": variants,
        "output of the process": finding.output,
        "versions": finding.versions,
    }
    return tuple((title, plain(text[:_TEXT_CHARS])) for title, text in texts.items() if text.strip())


def _amount(number: float | None) -> str:
    return "not finite" if number is None else amount_of(number, ".3g")


@dataclass(frozen=True, slots=True)
class _StepBox:
    """A step's box: its upper left corner, its two lines of text, and the whole text."""

    x: int
    y: int
    name: str
    label: str
    title: str
    style: str


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A graph: its size, its boxes, and its edges as paths."""

    width: int
    height: int
    boxes: tuple[_StepBox, ...]
    edges: tuple[str, ...]


def _drawing(nodes: Sequence[Node], *, has_backward: bool) -> _Drawing | None:
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
    return _Drawing(width, height, tuple(_box(node, *places[node.index]) for node in chosen), tuple(paths))


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


def _box(node: Node, x: int, y: int) -> _StepBox:
    style = "culprit" if node.is_culprit else "input" if node.is_input else "call"
    label = node.label if node.is_input else node.label.rpartition(".")[2]
    return _StepBox(x, y, _short(node.name), _short(label), f"{node.name}: {node.label}", style)


def _short(text: str) -> str:
    return text if len(text) <= _LABEL_CHARS else f"{text[: _LABEL_CHARS - 1]}…"

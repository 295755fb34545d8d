"""A finding as a panel of the page: its words, its program by line, its graphs, its values and its map."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ci_autotest.page.graph_drawing import drawing
from ci_autotest.report.document import one_line, plain, plain_line
from ci_autotest.report.error_pattern_text import pattern_sentence
from ci_autotest.report.evidence import Evidence
from ci_autotest.report.finding_facts import PATTERN, facts
from ci_autotest.report.finding_program import has_backward, mark, missing_program
from ci_autotest.report.standing import state_of
from ci_autotest.report.verdict_line import headline
from ci_autotest.values.amounts import amount_of

if TYPE_CHECKING:
    from ci_autotest.page.graph_drawing import Drawing
    from ci_autotest.report.finding_text import Setting
    from ci_autotest.report.standing import State
    from ci_autotest.values.error_pattern import ErrorMap
    from ci_autotest.values.finding import Finding

#: Characters of a text, such as an exception, and of a program that a panel shows.
_TEXT_CHARS: Final = 4_000
_PROGRAM_CHARS: Final = 20_000
_LINES: Final = 200
_TESTS_SHOWN: Final = 5
_VALUES_SHOWN: Final = 12


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
    forward: Drawing | None
    backward: Drawing | None
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
        forward=drawing(found.nodes, has_backward=False),
        backward=drawing(found.nodes, has_backward=True) if has_backward(finding) else None,
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

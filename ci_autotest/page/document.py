"""The whole page: its data, its templates, and the one file that they make."""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ci_autotest.page.finding_panel import map_of, panel
from ci_autotest.page.tables import LETTERS, grid, power_table, speed_rows
from ci_autotest.report.coverage import size_sentence
from ci_autotest.report.document import one_line
from ci_autotest.report.speed_text import speed_sentence
from ci_autotest.report.standing import STATES
from ci_autotest.report.verdict_line import in_reading_order, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.report.finding_text import Setting
    from ci_autotest.values.result import RunResult, TestResult

#: Findings that have a panel; the page names the number of the others.
PANELS_AT_MOST: Final = 2_000
#: Bytes of all maps together, so that a page of many large findings opens at once; the first findings have theirs.
_MAPS_BYTES: Final = 4 << 20
#: Rows of the table of tests, which the page's script fills.
_TESTS_AT_MOST: Final = 20_000
_NOTES_SHOWN: Final = 50


@cache
def environment() -> Environment:
    """Return the environment of the templates: whatever a report holds is escaped, and a missing name is an error."""
    found = Environment(
        loader=PackageLoader("ci_autotest.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    found.filters["line"] = one_line
    found.filters["number"] = lambda number: f"{number:,}"
    return found


def asset(name: str) -> Markup:
    """Return a file of the package that goes into the page as it is."""
    return Markup(files("ci_autotest.page").joinpath("templates", name).read_text("utf-8"))  # noqa: S704 - our own file


def render_page(result: RunResult, setting: Setting) -> str:
    """Return the page of a report as HTML.

    Args:
        result: The run.
        setting: What the page knows beside it: where the programs are.
    """
    setting = setting.of(result)
    findings = in_reading_order(result)[:PANELS_AT_MOST]
    maps: dict[str, Any] = {}
    left = _MAPS_BYTES
    for finding in findings:
        found = map_of(finding)
        left -= len(found["levels"]) if found is not None else 0
        if found is not None and left >= 0:
            maps[finding.id] = found
    panels = [panel(finding, setting, maps.get(finding.id)) for finding in findings]
    return environment().get_template("page.html").render(
        result=result,
        verdict=one_line(verdict(result), 600),
        panels=panels,
        states=STATES,
        counts=Counter(each.state for each in panels),
        standings=Counter(each.standing for each in panels if each.standing),
        outcomes=_outcomes(result),
        more=len(result.findings) - len(panels),
        speed=speed_rows(result),
        speed_sentence=speed_sentence(result),
        power=power_table(result),
        sizes=size_sentence(result),
        notes=[one_line(note, 600) for note in result.notes[:_NOTES_SHOWN]],
        fixed=[one_line(name) for name in result.fixed[:_NOTES_SHOWN]],
        broken=[(one_line(item.test), one_line(item.message, 600)) for item in result.broken[:_NOTES_SHOWN]],
        data=_data(result, panels_of=maps),
        css=asset("page.css"),
        script=asset("page.js"),
    )  # fmt: skip


def _data(result: RunResult, panels_of: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page's script draws: the grid, the table of tests and the maps."""
    names = {info.name: i for i, info in enumerate(result.candidates)}
    # A report from outside may name a candidate that it does not list.
    tests = [_test_row(item, names) for item in result.results[:_TESTS_AT_MOST] if item.candidate in names]
    return {
        "candidates": [one_line(info.name, 80) for info in result.candidates],
        "grid": grid(result, result.findings),
        "letters": [[letter, STATES[state]] for state, letter in LETTERS.items()],
        "tests": tests,
        "maps": dict(panels_of),
    }


def _test_row(item: TestResult, names: Mapping[str, int]) -> list[Any]:
    """Return a test on a candidate as a short list, because a run has thousands."""
    return [one_line(item.test, 200), names[item.candidate], item.outcome, item.cases.aligned, item.cases.compared,
            round(item.duration_s, 3), one_line(item.reason, 200)]  # fmt: skip


def _outcomes(result: RunResult) -> list[tuple[str, Counter[str], int]]:
    """Return the candidates, each with its tests by outcome and its compared cases."""
    found = {info.name: (Counter[str](), [0]) for info in result.candidates}
    for item in result.results:
        if item.candidate in found:
            counts, cases = found[item.candidate]
            counts[item.outcome] += 1
            cases[0] += item.cases.compared
    return [(name, counts, cases[0]) for name, (counts, cases) in found.items()]

"""The pages of a report and of a history: the data, the templates, and the one file that they make."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ci_autotest.page.finding_panel import map_of, panel
from ci_autotest.page.tables import LETTERS, grid, power_table, speed_rows
from ci_autotest.report.coverage import size_sentence
from ci_autotest.report.document import one_line
from ci_autotest.report.speed_text import speed_sentence
from ci_autotest.report.standing import STATES
from ci_autotest.report.trend import trends
from ci_autotest.report.verdict_line import in_reading_order, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.report.finding_text import Setting
    from ci_autotest.report.trend import Trend
    from ci_autotest.values.past_run import PastRun
    from ci_autotest.values.result import RunResult, TestResult

#: Findings that have a panel; the page names the number of the others.
PANELS_AT_MOST: Final = 2_000
#: Bytes of all maps together, so that a page of many large findings opens at once; the first findings have theirs.
_MAPS_BYTES: Final = 4 << 20
#: Rows of the table of tests, which the page's script fills.
_TESTS_AT_MOST: Final = 20_000
_NOTES_SHOWN: Final = 50
#: Size of a plot, in the drawing's own units.
_WIDTH: Final = 240
_HEIGHT: Final = 44
_MARGIN: Final = 4
#: Seconds since 1970 that a date can have.
_YEAR_9999: Final = 253_370_764_800


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


def render_history(runs: Sequence[PastRun]) -> str:
    """Return the page of runs, oldest first."""
    groups = [
        (name, [(trend, _plot(trend), _points(trend, runs)) for trend in own])
        for name, own in groupby(trends(runs), key=lambda trend: trend.group)
    ]
    return environment().get_template("history.html").render(
        groups=groups, count=len(runs), width=_WIDTH, height=_HEIGHT, css=asset("page.css"),
        first=run_name(runs[0]) if runs else "", last=run_name(runs[-1]) if runs else "",
    )  # fmt: skip


def run_name(run: PastRun) -> str:
    """Return what a run is called: its name, and its day if that is known."""
    day = f"{datetime.fromtimestamp(run.time_s, timezone.utc):%Y-%m-%d %H:%M}" if 0 < run.time_s < _YEAR_9999 else ""
    return one_line(" ".join(filter(None, (run.name, day))) or f"seed {run.seed}", 80)


def _plot(trend: Trend) -> list[list[tuple[float, float]]]:
    """Return the lines of a plot: one for each series of runs without a gap."""
    lines: list[list[tuple[float, float]]] = [[]]
    for at, height in enumerate(trend.heights):
        if height is None:
            lines.append([])
        else:
            lines[-1].append((_x(at, len(trend.values)), _y(height)))
    return [each for each in lines if each]


def _points(trend: Trend, runs: Sequence[PastRun]) -> list[dict[str, Any]]:
    return [
        {"x": _x(at, len(runs)), "y": _y(height), "title": f"{run_name(run)}: {format(value, trend.form)}"}
        for at, (run, value, height) in enumerate(zip(runs, trend.values, trend.heights, strict=True))
        if value is not None and height is not None
    ]


def _x(at: int, count: int) -> float:
    return round(_MARGIN + (_WIDTH - 2 * _MARGIN) * (at / (count - 1) if count > 1 else 0.5), 1)


def _y(height: float) -> float:
    return round(_HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * height, 1)

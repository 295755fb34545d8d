"""The page of a history: a small plot of each trend, in one file."""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.page.document import asset, environment
from ci_autotest.report.document import one_line
from ci_autotest.report.trend import trends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.report.trend import Trend
    from ci_autotest.values.past_run import PastRun

#: Size of a plot, in the drawing's own units.
_WIDTH: Final = 240
_HEIGHT: Final = 44
_MARGIN: Final = 4
#: Seconds since 1970 that a date can have.
_YEAR_9999: Final = 253_370_764_800


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

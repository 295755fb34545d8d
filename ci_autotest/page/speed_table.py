"""Speed on the page: a row for each timed call, with its ratio and interval on one logarithmic axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.report.document import one_line
from ci_autotest.report.speed_text import duration_text, in_reading_order, ratio_text, reason_text, verdict_text

if TYPE_CHECKING:
    from ci_autotest.values.result import RunResult
    from ci_autotest.values.speed import Ratio, SpeedResult

#: Rows of the table; the page names the number of the others.
ROWS_AT_MOST: Final = 500
#: Ends of the axis. It is logarithmic, so that twice and half the time lie equally far from its middle.
_LOWEST, _HIGHEST = 0.25, 4.0


class SpeedRow(NamedTuple):
    """One timed call.

    Attributes:
        verdict: Name of its style.
        words: The verdict and its reason.
        test: Id of the test.
        candidate: Name of the candidate.
        call: Operators, inputs and pass.
        ratio: The ratio with its interval; empty if it was not timed.
        before: The same of the baseline.
        counted: The ratio of instructions.
        reference: The time that it is measured against.
        interval: Where the interval lies on the axis: left end, width and median in per cent; ``None`` if not timed.
    """

    verdict: str
    words: str
    test: str
    candidate: str
    call: str
    ratio: str
    before: str
    counted: str
    reference: str
    interval: tuple[float, float, float] | None


def speed_rows(result: RunResult) -> list[SpeedRow]:
    """Return the rows, what is wrong or slower first."""
    return [_row(item) for item in in_reading_order(result, has_all=True)[:ROWS_AT_MOST]]


def _row(item: SpeedResult) -> SpeedRow:
    counts = item.instructions
    against = " (the graph before the pass)" if item.against == "original" else ""
    reason = f": {reason_text(item)}" if item.reason or item.known is not None else ""
    return SpeedRow(
        verdict="accepted" if item.known is not None else item.verdict,
        words=one_line(f"{verdict_text(item)}{reason}", 300),
        test=one_line(item.test, 200),
        candidate=one_line(item.candidate, 80),
        call=one_line(
            f"{', '.join(item.operators[:3])} on {', '.join(item.inputs[:4]) or 'no input'}, {item.phase}", 200
        ),
        ratio=ratio_text(item.ratio) if item.ratio is not None else "",
        before=f"{item.change}: {ratio_text(item.before)}" if item.before is not None and item.change else "",
        counted=f"{counts.candidate / max(counts.reference, 1):.2f}" if counts is not None else "",
        reference=f"{duration_text(item.reference_s)}{against}" if item.reference_s else "",
        interval=_interval(item.ratio) if item.ratio is not None else None,
    )


def _interval(ratio: Ratio) -> tuple[float, float, float]:
    low, middle, high = map(_place, (ratio.low, ratio.median, ratio.high))
    # A narrow interval must still be seen.
    return low, max(round(high - low, 1), 1.0), middle


def _place(value: float) -> float:
    inside = min(max(value, _LOWEST), _HIGHEST) if value == value else 1.0  # noqa: PLR0124 - a ratio may be NaN
    return round(100 * math.log(inside / _LOWEST) / math.log(_HIGHEST / _LOWEST), 1)

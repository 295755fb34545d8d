"""The tables of the page: the grid of operators by family, the power of the tests, and the speed of each timed call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.report.coverage import is_run
from ci_autotest.report.document import one_line
from ci_autotest.report.power_text import (
    mistake,
    power_sentence,
    powerless,
    score_text,
    size_limits,
    survival,
    survivors,
    unscored,
)
from ci_autotest.report.speed_text import duration_text, in_reading_order, ratio_text, reason_text, verdict_text
from ci_autotest.report.standing import STATES, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.report.standing import State
    from ci_autotest.values.coverage_values import OperatorCoverage
    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import RunResult
    from ci_autotest.values.speed import Ratio, SpeedResult

#: The letter that the page's data has for each state.
LETTERS: Final[Mapping[State, str]] = {
    "crashed": "c", "timed_out": "t", "misaligned": "m", "flaky": "f", "reference_off": "e", "rounding": "r",
    "known": "k", "leniency": "l", "involved": "i", "aligned": "a", "not_compared": "-",
}  # fmt: skip
_WORST_FIRST: Final = tuple(STATES)
_OTHER: Final = "other"
#: Rows of the table; the page names the number of the others.
_POWER_ROWS: Final = 1_000
_POWER_CHARS: Final = 400
#: Rows of the table; the page names the number of the others.
_SPEED_ROWS: Final = 500
#: Ends of the axis. It is logarithmic, so that twice and half the time lie equally far from its middle.
_LOWEST, _HIGHEST = 0.25, 4.0


def grid(result: RunResult, findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the families, each with its operators and a string for each candidate with a letter for each of them.

    Args:
        result: The run.
        findings: Its findings, or those that are shown.
    """
    worst: dict[tuple[str, str], State] = {}
    for finding in findings:
        key, state = (finding.operator, finding.candidate), state_of(finding)
        worst[key] = min(worst.get(key, state), state, key=_WORST_FIRST.index)
    families: dict[str, dict[str, OperatorCoverage | None]] = {}
    for item in result.operators:
        families.setdefault(item.family or _OTHER, {})[item.operator] = item
    listed = {item.operator for item in result.operators}
    for finding in findings:
        # If no step is to blame, a finding has the test's name as its operator, which no coverage lists.
        if finding.operator not in listed:
            families.setdefault(_OTHER, {})[finding.operator] = None
    names = [info.name for info in result.candidates]
    return [
        {
            "family": one_line(family.replace("_", " "), 60),
            "operators": [one_line(name, 120) for name in own],
            "states": ["".join(_letter(name, own[name], each, worst) for name in own) for each in names],
        }
        for family, own in sorted(families.items(), key=lambda item: (item[0] == _OTHER, item[0]))
    ]


def _letter(
    operator: str, coverage: OperatorCoverage | None, candidate: str, worst: Mapping[tuple[str, str], State]
) -> str:
    if (state := worst.get((operator, candidate))) is not None:
        return LETTERS[state]
    found = coverage.candidates.get(candidate) if coverage is not None else None
    if found is None or not found.cases or not is_run(found):
        return LETTERS["not_compared"]
    return LETTERS["aligned" if found.aligned else "involved"]


class _PowerTable(NamedTuple):
    """What the page shows.

    Attributes:
        sentence: The score in words.
        powerless: Each powerless test, with why.
        rows: Test, score, mistake and reason of each survivor.
        more: Number of survivors that have no row.
        unscored: Each test without a score, with why.
        limits: Each test with a free dimension of which no case is beyond 256, with its greatest size and why.
    """

    sentence: str
    powerless: list[tuple[str, str]]
    rows: list[tuple[str, str, str, str]]
    more: int
    unscored: list[tuple[str, str]]
    limits: list[tuple[str, str]]


def power_table(result: RunResult) -> _PowerTable | None:
    """Return the table, ``None`` if power was not measured."""
    if result.power is None:
        return None
    found = list(survivors(result.power))
    tests = result.power.tests
    return _PowerTable(
        power_sentence(result.power),
        [(one_line(test.test), one_line(powerless(each), _POWER_CHARS)) for test in tests for each in test.powerless],
        [
            (
                one_line(test),
                score_text(score),
                one_line(mistake(each), _POWER_CHARS),
                one_line(survival(each), _POWER_CHARS),
            )
            for test, score, each in found[:_POWER_ROWS]
        ],
        max(0, len(found) - _POWER_ROWS),
        [(one_line(test.test), one_line(unscored(test), _POWER_CHARS)) for test in tests if test.unscored is not None][
            :_POWER_ROWS
        ],
        [(one_line(test.test), one_line(each, _POWER_CHARS)) for test in tests for each in size_limits(test)][
            :_POWER_ROWS
        ],
    )


class _SpeedRow(NamedTuple):
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


def speed_rows(result: RunResult) -> list[_SpeedRow]:
    """Return the rows, what is wrong or slower first."""
    return [_speed_row(item) for item in in_reading_order(result, has_all=True)[:_SPEED_ROWS]]


def _speed_row(item: SpeedResult) -> _SpeedRow:
    counts = item.instructions
    against = " (the graph before the pass)" if item.against == "original" else ""
    reason = f": {reason_text(item)}" if item.reason or item.known is not None else ""
    return _SpeedRow(
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

"""Power on the page: the score, the powerless tests, and a row for each mutant that no case shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.report.document import one_line
from ci_autotest.report.power_part import survivors
from ci_autotest.report.power_text import (
    mistake,
    power_sentence,
    powerless,
    score_text,
    size_limits,
    survival,
    unscored,
)

if TYPE_CHECKING:
    from ci_autotest.values.result import RunResult

#: Rows of the table; the page names the number of the others.
ROWS_AT_MOST: Final = 1_000
_CHARS: Final = 400


class PowerTable(NamedTuple):
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


def power_table(result: RunResult) -> PowerTable | None:
    """Return the table, ``None`` if power was not measured."""
    if result.power is None:
        return None
    found = list(survivors(result.power))
    tests = result.power.tests
    return PowerTable(
        power_sentence(result.power),
        [(one_line(test.test), one_line(powerless(each), _CHARS)) for test in tests for each in test.powerless],
        [
            (one_line(test), score_text(score), one_line(mistake(each), _CHARS), one_line(survival(each), _CHARS))
            for test, score, each in found[:ROWS_AT_MOST]
        ],
        max(0, len(found) - ROWS_AT_MOST),
        [(one_line(test.test), one_line(unscored(test), _CHARS)) for test in tests if test.unscored is not None][
            :ROWS_AT_MOST
        ],
        [(one_line(test.test), one_line(each, _CHARS)) for test in tests for each in size_limits(test)][:ROWS_AT_MOST],
    )

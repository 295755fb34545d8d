"""The table of planted faults, as ``make bench`` prints it: each share reaches its goal. Times are no business of a test."""

from __future__ import annotations

import pytest

from benchmarks import quality

#: Each takes two minutes. CI walks one, and test_planted_faults finds all of the faults without confirming them.
PARTS = 4


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.matrix if part else pytest.mark.heavy) for part in range(PARTS)]
)
def test_measure__planted_faults__reach_the_goals(part):
    table = quality.measure(part, PARTS)
    assert table.missed == [], "\n".join(table.details)

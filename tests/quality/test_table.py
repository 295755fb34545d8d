"""The table of planted faults, as ``make bench`` prints it: each share reaches its goal. Times are no business of a test."""

from __future__ import annotations

import pytest

from benchmarks import quality

#: So that two processes share it: it takes minutes.
PARTS = 2


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(PARTS))
def test_measure__planted_faults__reach_the_goals(part):
    table = quality.measure(part, PARTS)
    assert table.missed == [], "\n".join(table.details)

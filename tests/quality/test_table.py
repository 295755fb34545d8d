"""The table of planted faults, as ``make bench`` prints it: each share reaches its goal. Times are no business of a test."""

from __future__ import annotations

import pytest

from benchmarks import quality


@pytest.mark.heavy
def test_measure__planted_faults__reach_the_goals():
    table = quality.measure()
    assert table.missed == [], "\n".join(table.details)

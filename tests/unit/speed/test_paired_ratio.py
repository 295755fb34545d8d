"""The ratio of paired times: an interval that holds for any noise, and what it says. Seeded times, no clock."""

from __future__ import annotations

import math
import random

import pytest

from ci_autotest.speed.paired_ratio import ERROR, FEWEST, paired_ratio, rank, speed_verdict
from ci_autotest.values.speed import Ratio


def pairs(factor: float, seed: int, *, count: int = 41, spread: float = 0.01, stalls: float = 0.0):
    """Return times of a call of 100 us with noise on both sides; a share of the calls waits ten times as long."""
    drawn = random.Random(seed)  # noqa: S311 - no secret

    def time_s() -> float:
        return 1e-4 * math.exp(drawn.gauss(0, spread)) * (10 if drawn.random() < stalls else 1)

    return [(factor * time_s(), time_s()) for _ in range(count)]


@pytest.mark.parametrize("count", [FEWEST, 12, 15, 41, 201])
def test_rank__its_interval__misses_as_seldom_as_said_and_is_the_narrowest(count: int):
    def missed(outside: int) -> float:
        return 2 * sum(math.comb(count, k) for k in range(outside + 1)) / 2**count

    assert missed(rank(count)) <= ERROR < missed(rank(count) + 1)


def test_paired_ratio__fewer_pairs_than_an_interval_needs__is_none():
    assert (paired_ratio(pairs(1.0, 0, count=FEWEST - 1)), speed_verdict(None, 1e-4)) == (None, "cannot_tell")


def test_paired_ratio__equal_times__are_one():
    assert paired_ratio([(2e-4, 2e-4)] * FEWEST) == Ratio(low=1.0, median=1.0, high=1.0, pairs=FEWEST)


#: Noise of a quiet machine, of a loaded one, and of one on which a third of the calls wait.
NOISES = [(0.01, 0.0), (0.1, 0.05), (0.3, 0.3)]


@pytest.mark.parametrize(("spread", "stalls"), NOISES)
def test_speed_verdict__two_thousand_equal_codes__are_hardly_ever_slower_or_faster(spread: float, stalls: float):
    # Before it is repeated; with an error of 0.001, two or three of 2,000 may be.
    found = [speed_verdict(paired_ratio(pairs(1.0, seed, spread=spread, stalls=stalls)), 1e-4) for seed in range(2000)]
    assert found.count("slower") + found.count("faster") <= 5


def test_speed_verdict__a_tenth_slower_on_a_quiet_machine__is_always_found():
    found = {speed_verdict(paired_ratio(pairs(1.1, seed)), 1e-4) for seed in range(200)}
    assert found == {"slower"}


def test_speed_verdict__twice_as_slow_on_a_loaded_machine__is_always_found():
    # The best of a few calls waits seldom: one pair in twenty has a side all of whose calls did.
    found = {speed_verdict(paired_ratio(pairs(2.0, seed, spread=0.1, stalls=0.05)), 1e-4) for seed in range(200)}
    assert found == {"slower"}


@pytest.mark.parametrize(
    ("low", "high", "reference_s", "verdict"),
    [
        pytest.param(1.05, 1.2, 1e-4, "slower", id="slower"),
        pytest.param(0.5, 0.9, 1e-4, "faster", id="faster"),
        pytest.param(0.95, 1.05, 1e-4, "same", id="same"),
        pytest.param(1.02, 1.08, 1e-4, "same", id="slightly slower"),
        pytest.param(0.8, 1.3, 1e-4, "cannot_tell", id="wide"),
        pytest.param(1.02, 1.3, 1e-4, "cannot_tell", id="slower, but perhaps slightly"),
        pytest.param(1.5, 1.6, 1e-6, "cannot_tell", id="half a microsecond"),
        pytest.param(0.3, 0.4, 1e-6, "cannot_tell", id="half a microsecond less"),
    ],
)
def test_speed_verdict__an_interval__says(low: float, high: float, reference_s: float, verdict: str):
    ratio = Ratio(low=low, median=(low * high) ** 0.5, high=high, pairs=41)
    assert speed_verdict(ratio, reference_s) == verdict

"""When a timed call counts as too slow, and how it is held against a baseline."""

from __future__ import annotations

import pytest

from ci_autotest.values.speed import Ratio, SpeedResult, against_baseline, is_too_slow


def ratio(low: float, high: float) -> Ratio:
    return Ratio(low=low, median=(low + high) / 2, high=high, pairs=41)


def result(**changes) -> SpeedResult:
    fields = {
        "test": "a.py::t", "candidate": "k", "case": 0, "phase": "forward", "verdict": "slower", "factor": 1.1,
        "inputs": ("float32[512, 512]",), "ratio": ratio(1.4, 1.6),
    }  # fmt: skip
    return SpeedResult(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        pytest.param({}, True, id="slower"),
        pytest.param({"factor": 1.5}, False, id="slower, but perhaps less than the factor"),
        pytest.param({"verdict": "cannot_tell"}, False, id="cannot tell"),
        pytest.param({"verdict": "faster"}, False, id="faster"),
        pytest.param({"verdict": "not_timed", "ratio": None}, False, id="not timed"),
        pytest.param({"change": "same"}, False, id="as slow as in the baseline"),
        pytest.param(
            {"verdict": "faster", "change": "slower"}, True, id="faster than the reference, slower than before"
        ),
    ],
)
def test_is_too_slow__a_result__counts(changes, counts: bool):
    assert is_too_slow(result(**changes)) is counts


@pytest.mark.parametrize(
    ("before", "change"),
    [
        pytest.param(ratio(1.0, 1.1), "slower", id="became slower"),
        pytest.param(ratio(1.2, 1.3), "same", id="slower by less than the factor"),
        pytest.param(ratio(1.5, 1.7), "same", id="intervals overlap"),
        pytest.param(ratio(2.0, 2.1), "faster", id="became faster"),
    ],
)
def test_against_baseline__the_same_call__has_its_ratio_and_change(before: Ratio, change: str):
    (found,) = against_baseline([result()], [result(ratio=before)])
    assert (found.before, found.change) == (before, change)


@pytest.mark.parametrize(
    "other",
    [
        {"inputs": ("float32[64, 64]",)}, {"phase": "backward"}, {"candidate": "other"}, {"case": 2},
        {"against": "original"}, {"operators": ("torch.exp",)}, {"ratio": None, "verdict": "not_timed"},
    ],
    ids=str,
)  # fmt: skip
def test_against_baseline__another_call__is_not_compared(other):
    (found,) = against_baseline([result()], [result(**other)])
    assert (found.before, found.change) == (None, None)

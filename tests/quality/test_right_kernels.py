"""No right kernel is accused, whatever it computes otherwise: fused, summed in another order, by another formula."""

from __future__ import annotations

import pytest

from ci_autotest.values.finding import TOLERATED_BLAMES
from tests.engine import run_test, substitute
from tests.quality.large_inputs import RIGHT, WRONG
from tests.quality.right_kernels import ASIDE, TUNED
from tests.tables import crossed

CASES = 20
SCALES = {"1e3": 1e3, "1e5": 1e5}


def named(rows):
    return pytest.mark.parametrize("right", rows, ids=[right.name for right in rows])


def accusations(right, body=None, cases=CASES):
    """Return what a kernel is accused of; it has to be compared in most of its cases."""
    verdicts = run_test(body or right.body, substitute(**{right.operator: right.kernel}), cases)
    assert len(verdicts) >= cases - 3
    bad = [item for item in verdicts if item.outcome != "aligned" and item.blame not in TOLERATED_BLAMES]
    return [(item.kind, item.blame, item.operator, item.oracle, item.misalignment) for item in bad]


@named(TUNED)
def test_run_test__right_kernel__is_accused_of_nothing(right):
    assert accusations(right) == []


@pytest.mark.heavy
@named(TUNED + ASIDE)  # those that were kept aside while the rules were tuned, too
def test_run_test__right_kernel_in_many_cases__is_accused_of_nothing(right):
    assert accusations(right, cases=5 * CASES) == []


@pytest.mark.parametrize(("right", "scale"), crossed({right.name: right for right in RIGHT}, SCALES))
def test_run_test__right_kernel_at_large_inputs__is_accused_of_nothing(right, scale):
    assert accusations(right, right.body(scale)) == []


@pytest.mark.parametrize(("right", "scale"), crossed({right.name: right for right in WRONG}, SCALES))
def test_run_test__wrong_kernel_at_large_inputs__is_accused(right, scale):
    assert len(accusations(right, right.body(scale))) >= CASES - 4


def test_right_kernels__families__are_large_enough():
    assert len(TUNED) + len(ASIDE) >= 30
    assert abs(len(TUNED) - len(ASIDE)) <= 2

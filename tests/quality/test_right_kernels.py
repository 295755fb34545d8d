"""No right kernel is accused, whatever it computes otherwise: fused, summed in another order, by another formula."""

from __future__ import annotations

import pytest

from ci_autotest.result import TOLERATED_BLAMES
from tests.engine import run_test, substitute
from tests.quality.right_kernels import ASIDE, TUNED

CASES = 20


def named(rows):
    return pytest.mark.parametrize("right", rows, ids=[right.name for right in rows])


def accusations(right, cases=CASES):
    """Return what a right kernel is accused of; it has to be compared in most of its cases."""
    verdicts = run_test(right.body, substitute(**{right.operator: right.kernel}), cases)
    assert len(verdicts) >= cases - 3
    bad = [item for item in verdicts if item.outcome != "aligned" and item.blame not in TOLERATED_BLAMES]
    return [(item.kind, item.blame, item.operator, item.oracle, item.misalignment) for item in bad]


@named(TUNED)
def test_run_test__right_kernel__is_accused_of_nothing(right):
    assert accusations(right) == []


@pytest.mark.heavy
@named(ASIDE)
def test_run_test__right_kernel_that_was_kept_aside__is_accused_of_nothing(right):
    assert accusations(right) == []


@pytest.mark.heavy
@named(TUNED + ASIDE)
def test_run_test__right_kernel_in_many_cases__is_accused_of_nothing(right):
    assert accusations(right, 5 * CASES) == []


def test_right_kernels__families__are_large_enough():
    assert len(TUNED) + len(ASIDE) >= 30
    assert abs(len(TUNED) - len(ASIDE)) <= 2

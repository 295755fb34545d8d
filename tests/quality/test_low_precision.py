"""At ``strictness: measured`` honest kernels of low precision pass without a number, and downgrades are found."""

from __future__ import annotations

import pytest

from ci_autotest.alignment.tolerance_rules import Rules
from ci_autotest.values.finding import TOLERATED_BLAMES
from tests.engine import run_test, substitute
from tests.quality.low_precision import DOWNGRADED, HONEST

MEASURED = Rules(strictness="measured")
CASES = 12


def named(kernels):
    return pytest.mark.parametrize("kernel", kernels, ids=[kernel.name for kernel in kernels])


def accusations(kernel, rules=MEASURED):
    verdicts = run_test(kernel.body, substitute(**{kernel.operator: kernel.function}), CASES, rules)
    assert len(verdicts) >= CASES - 3
    assert any(item.outcome in {"aligned", "misaligned"} for item in verdicts)
    bad = [item for item in verdicts if item.outcome != "aligned" and item.blame not in TOLERATED_BLAMES]
    return [(item.kind, item.operator, item.oracle) for item in bad]


@named(HONEST)
def test_run_test__honest_kernel_measured__is_accused_of_nothing(kernel):
    assert accusations(kernel) == []


@named(DOWNGRADED)
def test_run_test__downgraded_kernel_measured__is_found(kernel):
    found = accusations(kernel)
    assert {kind for kind, _, _ in found} <= {"value", "gradient"}
    assert found


def test_kernels__families__are_large_enough():
    assert (len(HONEST), len(DOWNGRADED)) == (50, 52)

"""The result of a run: what a baseline says of it, and the cases that its findings explain."""

from __future__ import annotations

import pytest

from ci_autotest.commands.run_result import held_against
from ci_autotest.values.speed import SpeedResult
from tests import report_samples as samples

WRONG = SpeedResult(
    test=samples.TEST, candidate="kernels", case=0, phase="forward", verdict="misaligned", operator=samples.OPERATOR,
    kind="value",
)  # fmt: skip


@pytest.mark.parametrize(
    ("baseline", "is_new"),
    [
        ({}, True),
        ({"speed": (WRONG,)}, False),
        ({"findings": (samples.finding(),)}, False),
        ({"findings": (samples.finding(kind="gradient"),)}, True),
        ({"findings": (samples.finding(outcome="flaky"),)}, True),
    ],
    ids=["empty", "wrong at larger sizes", "a finding", "of another kind", "flaky"],
)
def test_held_against__wrong_at_larger_sizes__is_new_unless_the_baseline_has_it(baseline, is_new: bool):
    found = held_against(samples.run(speed=(WRONG,)), samples.run(**baseline))
    assert [item.new for item in found.speed] == [is_new]


def test_held_against__timed_call__is_neither_new_nor_old():
    timed = SpeedResult(test=samples.TEST, candidate="kernels", case=0, phase="forward", verdict="same")
    assert held_against(samples.run(speed=(timed,)), samples.run()).speed == (timed,)

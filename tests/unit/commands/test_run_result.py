"""The result of a run: what a baseline says of it, and the cases that its findings explain."""

from __future__ import annotations

import msgspec
import pytest

from ci_autotest.commands.run_result import _counts, held_against
from ci_autotest.commands.run_statistics import Ledger
from ci_autotest.values.result import CaseCounts, worst
from ci_autotest.values.speed import SpeedResult
from tests import report_samples as samples
from tests.verdict_samples import FIRST, OFF, done

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


@pytest.mark.parametrize(
    ("blames", "expected"),
    [
        (("reference", "reference"), {"reference_off": 5}),
        (("candidate", "candidate"), {"misaligned": 5}),
        # Whatever the smallest program shows, which may be another one in each shard.
        (("reference", "candidate"), {"reference_off": 5}),
        (("candidate", "reference"), {"misaligned": 5}),
    ],
)
def test_counts__blame_of_the_reference__is_no_misaligned_case(blames: tuple[str, str], expected: dict[str, int]):
    of_case, of_finding = blames
    held = Ledger([(FIRST, range(5))], ("here",))
    held.part(FIRST.id, done(range(5), msgspec.structs.replace(OFF, blame=of_case)))
    finding = samples.finding(operator=OFF.operator, kind=OFF.kind, blame=of_finding)
    counts = _counts(held.pairs[FIRST.id, "here"], "here", held.tests[FIRST.id], [finding], set())
    assert counts == CaseCounts(**expected)
    assert worst(counts) == next(iter(expected))

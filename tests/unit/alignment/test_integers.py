"""Integers are exact: never held against each other in float64, never excused by what float64 cannot tell apart."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import constant, random_tensor, torch
from ci_autotest.alignment.elements import difference, mismatches
from ci_autotest.values.amounts import amount_of
from ci_autotest.values.tolerance import Tolerance
from tests.engine import RULES, Rules, record, run_test, substitute, tried

GREAT = 2**60
LEAST, MOST = -(2**63), 2**63 - 1
EXACT = Tolerance(0.0, 0.0)


def whole(*numbers, dtype=real.int64):
    return real.tensor(numbers, dtype=dtype)


@pytest.mark.parametrize(
    ("candidate", "reference", "greatest", "index"),
    [
        (whole(GREAT + 1, 0), whole(GREAT, 0), 1, (0,)),
        (whole(0, GREAT + 257), whole(3, GREAT), 257, (1,)),
        (whole(LEAST), whole(MOST), 2**64 - 1, (0,)),
        (whole(7, dtype=real.int32), whole(-(2**31), dtype=real.int32), 2**31 + 7, (0,)),
        (whole(True, False, dtype=real.bool), whole(True, True, dtype=real.bool), 1, (1,)),
        (whole(3, dtype=real.uint8), whole(5, dtype=real.uint8), 2, (0,)),
    ],
    ids=["one at 2^60", "257 at 2^60", "ends of int64", "int32", "bool", "uint8"],
)
def test_difference__integers__is_exact(candidate, reference, greatest, index):
    found = difference(candidate, reference, EXACT)
    assert found is not None
    assert (found.greatest_absolute, found.greatest_index, found.mismatched) == (greatest, index, 1 + (greatest == 257))
    assert type(found.greatest_absolute) is int


@pytest.mark.parametrize(
    ("tolerance", "expected"),
    [
        (Tolerance(0.0, 1.0), [False, True]),
        (Tolerance(0.0, 2.0), [False, False]),
        (Tolerance(1e-6, 0.0, "ulp"), [True, True]),
    ],
    ids=["one", "two", "strict"],
)
def test_mismatches__integers_with_a_tolerance__is_taken_exactly(tolerance, expected):
    assert mismatches(whole(GREAT + 1, GREAT + 2), whole(GREAT, GREAT), tolerance).tolist() == expected


def added_at_2_to_the_60():
    return torch.add(random_tensor(dims=(5,), dtype=int, low=-9, high=9), constant(GREAT))


@pytest.mark.parametrize("strictness", ["tolerance", "ulp", "bitwise"])
def test_run_test__one_of_five_integers_is_off_by_one__is_the_candidates_fault(strictness):
    one = real.tensor([0, 0, 0, 1, 0])
    off = substitute(add=lambda x, y: real.add(x, y) + (one if x.numel() == 5 else x.numel()))
    verdicts = run_test(added_at_2_to_the_60, off, 5, Rules(strictness=strictness))
    assert {(item.outcome, item.kind, item.blame) for item in verdicts} == {("misaligned", "value", "candidate")}
    assert verdicts[0].misalignment.difference.greatest_absolute == 1


def test_tried__integers_of_numbers__are_asked_of_float64_and_compared_exactly():
    def body():
        return torch.floor(random_tensor(dims=(4,)) * 3).long()

    verdict = tried(body, substitute(floor=lambda x: real.floor(x) + 257), RULES)
    assert (verdict.kind, verdict.blame) == ("value", "candidate")
    assert record(body).trace.values[-2].dtype is real.int64


@pytest.mark.parametrize(
    ("number", "said"), [(257, "257"), (2**60 + 1, "1,152,921,504,606,846,977"), (512.25, "5.1e+02")]
)
def test_amount_of__integer__has_all_its_digits(number, said):
    assert amount_of(number, ".2g") == said

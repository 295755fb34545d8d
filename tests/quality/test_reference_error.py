"""``strictness: measured`` allows what the reference's own error allows, and nothing where that is no rounding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.blame.reference_error import allowed_by
from ci_autotest.alignment.tolerance_rules import Called, Rules, ToleranceRow
from ci_autotest.values.tolerance import Tolerance, tolerance_for
from tests.engine import is_sure, record, substitute, tried

MEASURED = Rules(strictness="measured")
LIMIT = tolerance_for("float32", strictness="measured")
EXACT = real.linspace(1, 2, 64, dtype=real.float64) + 1e-9


def test_allowed_by__reference_off_by_a_rounding__allows_twice_that_and_one_rounding():
    found = allowed_by(EXACT.float(), EXACT, LIMIT)
    error = float((EXACT.float().double() - EXACT).abs().max())
    assert found is not None
    assert (found.error, found.tolerance) == (error, Tolerance(2.0**-24, 2 * error))


def test_allowed_by__greater_factor__allows_for_more_roundings_and_for_a_reference_that_is_lucky():
    exact = EXACT.float().double()  # the reference has no error at all
    twice, more = (allowed_by(exact.float(), exact, replace(LIMIT, factor=factor)) for factor in (2.0, 16.0))
    assert twice is not None
    assert more is not None
    assert twice.tolerance == Tolerance(2.0**-24, 0.0)
    greatest = float(exact.max())
    assert more.tolerance == Tolerance(8 * 2.0**-24, 16 * 2.0**-24 * greatest / 4, factor=16.0)
    assert not more.misaligned(exact.float() * (1 + 2.0**-22), exact.float()).any()
    assert more.misaligned(exact.float().bfloat16().float(), exact.float()).any()
    assert more.misaligned(real.zeros(64), exact.float()).all()
    assert more.text.endswith("16 times that and 8 roundings are allowed")


@pytest.mark.parametrize(
    ("reference", "exact"),
    [
        (real.zeros(8), real.linspace(1, 2, 8, dtype=real.float64)),
        (real.ones(8).bfloat16(), real.linspace(1, 2, 8, dtype=real.float64)),
        (real.ones(2), real.ones(3, dtype=real.float64)),
        (real.ones(2, dtype=real.float64), real.ones(2, dtype=real.float64)),
        (real.ones(2, dtype=real.int64), real.ones(2, dtype=real.int64)),
    ],
    ids=["other numbers", "other numbers in half", "another shape", "float64", "integers"],
)
def test_allowed_by__difference_that_is_no_rounding__measures_nothing(reference, exact):
    assert allowed_by(reference, exact, LIMIT) is None


def product():
    return torch.mm(random_tensor(2, dim0=4, dim1=16), random_tensor(2, dim0=16, dim1=3))


def off_by(factor):
    return substitute(mm=lambda a, b: (a @ b) * factor)


def test_tried__error_within_the_default_tolerance_beyond_the_references_own__is_found_at_measured_only():
    kernel = off_by(1 + 2.0**-20)
    verdict = tried(product, kernel, MEASURED)
    assert (tried(product, kernel).outcome, verdict.outcome, verdict.blame) == ("aligned", "misaligned", "candidate")
    assert verdict.misalignment is not None
    assert "the reference itself is off from float64 by up to" in verdict.misalignment.detail
    difference = verdict.misalignment.difference
    assert difference is not None
    assert difference.atol < 1e-6


def test_tried__other_order_of_a_sum__is_aligned_at_measured():
    kernel = substitute(mm=lambda a, b: (a.unsqueeze(-1) * b).sum(1))
    assert tried(product, kernel, MEASURED).outcome == "aligned"


def test_is_sure__equal_bits__are_sure_and_others_are_measured():
    assert is_sure(record(product), substitute(mm=real.matmul), MEASURED)
    assert not is_sure(record(product), off_by(1 + 2.0**-20), MEASURED)


def dropped():
    return torch.nn.functional.dropout(random_tensor(2, dim0=4, dim1=16), 0.5)


def test_tried__random_operator__is_held_against_the_default_tolerance():
    assert (
        tried(dropped, substitute(relu=real.relu, dropout=real.nn.functional.dropout), MEASURED).outcome != "misaligned"
    )


DECIDED = {
    "float32": ("float32", MEASURED, ("measured", 2.0)),
    "float64 has nothing wider": ("float64", MEASURED, ("tolerance", 2.0)),
    "integers": ("int64", MEASURED, ("tolerance", 2.0)),
    "the test's own bounds": ("float32", Rules(1e-3, 1e-3, strictness="measured"), ("tolerance", 2.0)),
    "a row's bounds": (
        "float32", Rules(strictness="measured", rows=(ToleranceRow("torch.mm", 1e-3, 1e-3),)), ("tolerance", 2.0),
    ),
    "a row's factor": (
        "float32", Rules(strictness="measured", rows=(ToleranceRow("torch.mm", None, None, factor=4.0),)),
        ("measured", 4.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "rules", "expected"), DECIDED.values(), ids=DECIDED)
def test_tolerance__measured__holds_where_nobody_gives_numbers(dtype, rules, expected):
    found = rules.tolerance((Called("torch.mm"),), dtype)
    assert (found.strictness, found.factor) == expected

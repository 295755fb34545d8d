"""Tolerances per dtype, and rules: which holds for which operator."""

from __future__ import annotations

import pytest

from ci_autotest import random_tensor
from ci_autotest.alignment.tolerance_rules import Called, Rules, ToleranceRow
from ci_autotest.errors import ToleranceError
from ci_autotest.values.tolerance import Tolerance, tolerance_for
from tests.engine import record

SOFTMAX = "torch.nn.functional.softmax"


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "bool"])
def test_tolerance_for__integers__are_exact(dtype):
    assert tolerance_for(dtype) == Tolerance(0.0, 0.0)


def test_tolerance_for__both_given__win():
    assert tolerance_for("float32", 0.1, 0.2, "ulp") == Tolerance(0.1, 0.2, "ulp")


def test_tolerance_for__one_given__the_other_is_the_default_of_the_dtype():
    assert tolerance_for("float32", rtol=0.1) == Tolerance(0.1, 1e-5)
    assert tolerance_for("float32", atol=0.2) == Tolerance(1.3e-6, 0.2)
    assert tolerance_for("int64", rtol=0.1) == Tolerance(0.1, 0.0)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({"rtol": -1.0, "atol": 0.0}, "rtol is -1.0: a tolerance is 0 or more."),
        ({"rtol": 0.0, "atol": float("nan")}, "atol is nan: a tolerance is 0 or more."),
    ],
    ids=["negative", "NaN"],
)
def test_tolerance_for__what_bounds_nothing__is_refused(bounds, said):
    with pytest.raises(ToleranceError) as caught:
        tolerance_for("float32", **bounds)
    assert str(caught.value) == said


def row(operator: str, rtol: float, **more) -> ToleranceRow:
    return ToleranceRow(operator, rtol, rtol / 10, **more)


@pytest.mark.parametrize(
    ("rules", "operators", "dtype", "rtol"),
    [
        pytest.param(Rules(), (SOFTMAX,), "float32", 1.3e-6, id="default"),
        pytest.param(Rules(rows=(row(SOFTMAX, 0.5),)), (SOFTMAX,), "float32", 0.5, id="a row"),
        pytest.param(Rules(rows=(row("torch.softmax", 0.5),)), (SOFTMAX,), "float32", 0.5, id="another spelling"),
        pytest.param(Rules(rows=(row("*soft*", 0.5),)), (SOFTMAX,), "float32", 0.5, id="a pattern"),
        pytest.param(Rules(rows=(row("torch.exp", 0.5),)), (SOFTMAX,), "float32", 1.3e-6, id="another operator"),
        pytest.param(Rules(rows=(row(SOFTMAX, 0.5, dtype="float16"),)), (SOFTMAX,), "float32", 1.3e-6, id="another dtype"),
        pytest.param(Rules(rows=(row(SOFTMAX, 0.5, dtype="float16"),)), (SOFTMAX,), "float16", 0.5, id="its dtype"),
        pytest.param(Rules(rows=(row(SOFTMAX, 0.5), row("*", 0.9))), (SOFTMAX,), "float32", 0.5, id="first match"),
        pytest.param(Rules(rows=(row(SOFTMAX, 1e-9),)), (SOFTMAX,), "float32", 1e-9, id="narrower than the default"),
        pytest.param(Rules(rows=(row(SOFTMAX, 1e-9),)), (SOFTMAX, "torch.exp"), "float32", 1.3e-6, id="of two, the loosest"),
        pytest.param(Rules(rows=(row(SOFTMAX, 0.5),)), (SOFTMAX, "torch.exp"), "float32", 0.5, id="of two, one looser"),
        pytest.param(Rules(rtol=0.2, atol=0.1, rows=(row(SOFTMAX, 0.5),)), (), "float32", 0.2, id="the test's own"),
        pytest.param(Rules(atol=0.1, rows=(row(SOFTMAX, 0.5),)), (SOFTMAX,), "float32", 0.5, id="rows by operator"),
    ],
)  # fmt: skip
def test_tolerance__rules__decide(rules, operators, dtype, rtol):
    called = tuple(map(Called, operators))
    assert rules.tolerance(called, dtype).rtol == rtol
    assert rules.tolerance(called, dtype) is rules.tolerance(called, dtype)


def test_operators__rows_that_cannot_matter__are_not_looked_for():
    steps = record(lambda: random_tensor().softmax(0)).program.steps
    assert Rules().operators(steps) == ()
    assert Rules(0.1, 0.1, rows=(row("*", 1.0),)).operators(steps) == ()
    assert Rules(rows=(row("*", 1.0),)).operators(steps) == (Called(SOFTMAX),)

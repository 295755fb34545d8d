from __future__ import annotations

import pytest

from ci_autotest.call_capture.layout_text import bounds_of, number_text


@pytest.mark.parametrize(
    ("low", "high", "dtype", "bounds"),
    [
        (-2.5851, 2.1149, "float32", (-2.59, 2.12)),
        (0.0, 0.99991, "float32", (0.0, 1.0)),
        (1.2345e-5, 7.0, "float32", (1.23e-5, 7.0)),
        (0, 96, "int64", (0, 97)),
        (3, 3, "int64", (3, 4)),
        (1.0, 1.0, "float32", (0.5, 1.5)),
        (0.0, 0.0, "float32", (-0.5, 0.5)),
        (-3.4e38, 1e-310, "float64", (-3.4e38, 1e-310)),
    ],
)
def test_bounds_of__observed__contains_it_and_keeps_signs(low, high, dtype, bounds):
    assert bounds_of(low, high, dtype) == bounds


@pytest.mark.parametrize(
    ("value", "text"), [(1e30, "1e30"), (-0.5, "-0.5"), (3, "3"), (float("-inf"), 'float("-inf")')]
)
def test_number_text__number__is_what_ruff_leaves(value, text):
    assert number_text(value) == text

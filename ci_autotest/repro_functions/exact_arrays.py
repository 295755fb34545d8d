"""How the repro of a framework without torch compares arrays of which every bit counts but a NaN's."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_alike(found: Any, expected: Any) -> None:
    """Raise an AssertionError if two arrays differ at all, also in the sign of a zero."""
    np.testing.assert_array_equal(found, expected)
    if found.dtype.kind in "fc" and expected.dtype.kind in "fc":
        pairs = zip((found.real, found.imag), (expected.real, expected.imag))
        assert all(np.array_equal(signs(left), signs(right)) for left, right in pairs), "the signs of zeros differ"


def signs(array: Any) -> Any:
    """Return which numbers are negative; NaN is not."""
    return np.signbit(np.where(np.isnan(array), 0, array))

"""Numbers of a generated test: ranges rounded outward to three digits, and numbers as Python writes them."""

from __future__ import annotations

import math

from ci_autotest.values.dtypes import INTEGERS


def number_text(value: float) -> str:
    """Return a number as Python writes it."""
    return repr(value).replace("e+", "e") if math.isfinite(value) else f'float("{value}")'


def bounds_of(low: float, high: float, dtype: str) -> tuple[float, float]:
    """Return the range ``[low, high)`` from which elements are drawn that were seen from ``low`` to ``high``.

    Integers are exact. Floats are rounded outward to three digits, which keeps their signs and never crosses 1. A
    tensor of equal floats gets half of its element, or a half, on both sides.
    """
    if dtype in INTEGERS:
        return int(low), int(high) + 1
    if low == high:
        half = abs(low) / 2 or 0.5
        low, high = low - half, high + half
    return _rounded(low, math.floor), _rounded(high, math.ceil)


def _rounded(value: float, towards: object) -> float:
    if value == 0 or not callable(towards):
        return 0.0
    digits = 2 - math.floor(math.log10(abs(value)))
    # A power of ten outside of float64's range would divide by zero.
    if abs(digits) > 300:  # noqa: PLR2004 - float64 has powers of ten up to 308
        return value
    scaled = value * 10.0**digits
    return float(f"{towards(round(scaled, 6)) / 10.0**digits:.3g}")

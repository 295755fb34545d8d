"""Values of the profiles within the bounds that a test gives: zeros, ties, the bounds, large and special values.

A bound that is left out is open: large values and infinities go that way. Nothing leaves ``[low, high)``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ci_autotest.values.dtypes import FLOAT8, HALF, INTEGERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Distinct values of the ties in a range that is too narrow for integers.
_TIES: Final = 4
#: Width from which on a range has integers enough.
_WIDE: Final = 2.0
#: Distance to an upper bound, as a share of the width: it stays below the bound in the dtype.
_BELOW: Final = {"half": 2.0**-5, "float": 2.0**-20}


class Bounds(NamedTuple):
    """The range ``[low, high)`` of a tensor's elements, and whether the test left a bound out."""

    low: float
    high: float
    is_open_below: bool
    is_open_above: bool

    def has(self, value: float) -> bool:
        """Whether a value is in the range."""
        return (self.is_open_below or value >= self.low) and (self.is_open_above or value < self.high)


def bounded_values(profile: str, bounds: Bounds, dtype: str, array: NDArray[Any], large: float) -> bool:
    """Apply a profile's values to elements that have bounds, in place; return whether that was done.

    Args:
        profile: ``zeros_and_ties``, ``large`` or ``special``.
        bounds: The range.
        dtype: Name without framework; neither bool nor complex.
        array: The elements, drawn in the range.
        large: Factor of the large values.
    """
    flat = array.reshape(-1)
    if profile == "zeros_and_ties":
        _tie(bounds, dtype, flat)
        return True
    if profile == "large":
        _stretch(bounds, dtype, flat, large)
        return True
    specials = [] if dtype in INTEGERS else _specials(bounds, np.finfo(array.dtype).smallest_subnormal * 3)
    for at, value in enumerate(specials):
        # Every third element at most, and the kinds in turn where there are few.
        flat[(3 * at) % flat.size] = value
    return bool(specials)


def _tie(bounds: Bounds, dtype: str, flat: NDArray[Any]) -> None:
    """Round to few values; every second element is zero, or the lower bound where zero is not allowed."""
    width = bounds.high - bounds.low
    floor = math.ceil(bounds.low) if dtype in INTEGERS or width >= _WIDE else bounds.low
    step = 1.0 if dtype in INTEGERS or width >= _WIDE else width / _TIES
    flat[:] = floor + np.floor((flat - floor) / step).clip(0) * step
    flat[1::2] = 0 if bounds.has(0) else bounds.low
    flat[0] = bounds.low


def _stretch(bounds: Bounds, dtype: str, flat: NDArray[Any], large: float) -> None:
    """Move elements away from a bound that is given, or to both bounds in turn if none is open."""
    if dtype not in INTEGERS and bounds.is_open_above:
        flat[:] = bounds.low + (flat - bounds.low) * large
    elif dtype not in INTEGERS and bounds.is_open_below:
        flat[:] = bounds.high - (bounds.high - flat) * large
    else:
        share = _BELOW["half" if dtype in HALF | FLOAT8 else "float"]
        flat[0::2] = bounds.high - 1 if dtype in INTEGERS else bounds.high - (bounds.high - bounds.low) * share
        flat[1::2] = bounds.low


def _specials(bounds: Bounds, subnormal: float) -> list[float]:
    found = [-0.0, subnormal] if bounds.has(0) and bounds.has(subnormal) else []
    found += [math.inf] if bounds.is_open_above else []
    return [*found, -math.inf] if bounds.is_open_below else found

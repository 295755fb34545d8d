"""Tensor data: Philox words become the elements of an array, for each dtype.

Ordinary floating point data are uniform in ``[-1, 1)``, integers in ``[-10, 11)``. They are signed, because OneFlow's
range before 2023, ``[0, 1)``, left negative inputs untested. Source of the ranges: OneFlow's AutoTest 0.9.0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from ci_autotest.record.draw.streams import signed_floats
from ci_autotest.values.dtypes import COMPLEX, FLOAT8, FLOATING, HALF, INTEGERS, ITEM_SIZE, PARTS, UNSIGNED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ci_autotest.record.draw.streams import Streams

_SINGLE: Final = frozenset(name for name in FLOATING if ITEM_SIZE[name] <= 4)  # noqa: PLR2004 - bytes
#: Half precisions and float8 are drawn in float32, and torch rounds them.
WIDE_DTYPE: Final = dict.fromkeys(HALF | FLOAT8, "float32")


def default_range(dtype: str) -> tuple[float, float]:
    """Return the range ``[low, high)`` of ordinary data of a dtype."""
    if dtype in INTEGERS:
        return (0, 11) if dtype in UNSIGNED else (-10, 11)
    return (-10.0, 10.0) if dtype in COMPLEX else (-1.0, 1.0)


def elements(streams: Streams, site: str, dtype: str, shape: tuple[int, ...], bounds: tuple[float, float]) -> NDArray:  # type: ignore[type-arg]
    """Return drawn elements: ``shape``, in ``dtype`` (float32 for the half precisions and float8).

    Args:
        streams: Source of the random words.
        site: Site of the tensor.
        dtype: Name without framework.
        shape: Sizes in elements.
        bounds: ``[low, high)`` in the unit of the elements.
    """
    count = math.prod(shape)
    low, high = bounds
    if dtype in _SINGLE:
        return _float32(streams, site, count, low, high).reshape(shape)
    if dtype in FLOATING:
        return _float64(streams, site, count, low, high).reshape(shape)
    if dtype == "bool":
        return (streams.data(site, count) >> np.uint64(63)).astype(np.bool_).reshape(shape)
    if dtype in INTEGERS:
        drawn = np.floor(_float64(streams, site, count, 0.0, 1.0) * (high - low)) + low
        return drawn.astype(dtype).reshape(shape)
    pairs = _float64(streams, site, 2 * count, low, high).astype(PARTS[dtype])
    return pairs.view(dtype).reshape(shape)


def _float32(streams: Streams, site: str, count: int, low: float, high: float) -> NDArray[np.float32]:
    unit = signed_floats(streams.data(site, (count + 1) >> 1))[:count]
    if low != -1.0 or high != 1.0:
        unit *= np.float32((high - low) / 2)
        unit += np.float32((high + low) / 2)
    return unit


def _float64(streams: Streams, site: str, count: int, low: float, high: float) -> NDArray[np.float64]:
    unit = (streams.data(site, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return unit * (high - low) + low

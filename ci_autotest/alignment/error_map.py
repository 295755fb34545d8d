"""The map of errors: how far each element is from the reference, in units of its tolerance, as levels of a byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ci_autotest.values.error_pattern import (
    CELLS_AT_MOST,
    HIGHEST,
    LEVELS_PER_OCTAVE,
    NOT_FINITE,
    OUTSIDE,
    ErrorMap,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ci_autotest.values.tolerance import Tolerance

    Values = NDArray[np.float64]

#: The bucket of a NaN or an infinity on one side only.
_FARTHEST: Final = 64


def error_map(
    candidate: Values, reference: Values, wrong: NDArray[np.bool_], tolerance: Tolerance, ulps: Values | None
) -> ErrorMap:
    """Return the map; a large tensor's elements share cells, which have the worst of them.

    Args:
        candidate: In float64.
        reference: In float64, of the same shape.
        wrong: Which elements are outside the tolerance.
        tolerance: The unit of the levels; without one, the unit is 1.
        ulps: Distance in units in the last place; ``None`` if the dtype has none.
    """
    is_absolute = not (tolerance.atol or tolerance.rtol)
    levels = _levels(candidate, reference, wrong, tolerance)
    block = _block(levels.shape)
    pooled = levels
    for axis, size in enumerate(block):
        if size > 1:
            pooled = np.maximum.reduceat(pooled, np.arange(0, levels.shape[axis], size), axis)
    return ErrorMap(
        cells=tuple(map(int, pooled.shape)),
        block=block,
        levels=np.ascontiguousarray(pooled).tobytes(),
        counts=_counted(levels),
        ulps=() if ulps is None else _counted(_buckets(ulps)),
        is_absolute=is_absolute,
    )


def _levels(candidate: Values, reference: Values, wrong: NDArray[np.bool_], tolerance: Tolerance) -> NDArray[np.uint8]:
    distance = np.abs(candidate - reference)
    allowed = tolerance.atol + tolerance.rtol * np.abs(reference)
    octaves = np.log2(distance / np.where(allowed > 0, allowed, 1.0))
    same = (candidate == reference) | (np.isnan(candidate) & np.isnan(reference))
    finite = np.where(np.isfinite(octaves), np.floor(octaves * LEVELS_PER_OCTAVE), -OUTSIDE) + OUTSIDE
    # Rounding of the quotient must not contradict the comparison: it alone decides which side of the limit it is.
    levels = np.where(wrong, np.clip(finite, OUTSIDE, HIGHEST), np.clip(finite, 1, OUTSIDE - 1))
    levels = np.where(np.isfinite(distance) | ~wrong, levels, NOT_FINITE)
    return np.where(same & ~wrong, 0, levels).astype(np.uint8)


def _buckets(ulps: Values) -> NDArray[np.uint8]:
    octaves = np.where(ulps > 0, np.floor(np.log2(np.maximum(ulps, 1))) + 1, 0)
    return np.where(np.isfinite(ulps), np.minimum(octaves, _FARTHEST - 1), _FARTHEST).astype(np.uint8)


def _counted(values: NDArray[np.uint8]) -> tuple[tuple[int, int], ...]:
    found, counts = np.unique(values, return_counts=True)
    return tuple((int(value), int(count)) for value, count in zip(found, counts, strict=True))


def _block(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many elements a cell has along each axis: the longest axis is halved until the cells are few."""
    block = [1] * len(shape)

    def cells() -> list[int]:
        return [-(-size // each) for size, each in zip(shape, block, strict=True)]

    while int(np.prod(cells(), dtype=np.float64)) > CELLS_AT_MOST:
        along = cells()
        block[along.index(max(along))] *= 2
    return tuple(block)

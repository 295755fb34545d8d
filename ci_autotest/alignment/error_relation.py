"""What wrong values are: the reference's times a factor, moved by a place, of a smaller dtype, or a constant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ci_autotest.alignment.elements import equal_or_nan
from ci_autotest.values.error_pattern import Constant, Moved, Offset, Reordered, Rounded, Scaled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ci_autotest.values.error_pattern import Relation
    from ci_autotest.values.tolerance import Tolerance

    Values = NDArray[np.float64]

#: Wrong elements below which a rule may hold by chance.
_FEWEST: Final = 4
#: Places by which values may be moved.
_MOVED: Final = (1, -1, 2, -2)
_MATRIX: Final = 2
#: Bits of float32's significand that a smaller dtype lacks.
_BFLOAT16: Final = 16
_TFLOAT32: Final = 13


def relation(candidate: Values, reference: Values, wrong: NDArray[np.bool_], tolerance: Tolerance) -> Relation | None:
    """Return what the wrong values are, or ``None`` if no rule holds for all of them.

    Args:
        candidate: In float64.
        reference: In float64, of the same shape.
        wrong: Which elements are wrong; at least one is.
        tolerance: How near a rule must come.
    """
    ours, theirs = candidate[wrong], reference[wrong]
    # If the reference has few different values, a factor, an offset and a constant explain the same elements.
    if len(ours) < _FEWEST or len(np.unique(theirs)) < _FEWEST:
        return None
    rules: tuple[Iterator[tuple[Relation, Values]], ...] = (
        _constants(ours), _factors(ours, theirs), _offsets(ours, theirs),
    )  # fmt: skip
    for found, expected in (each for rule in rules for each in rule):
        if _holds(ours, expected, tolerance):
            return found
    for found, whole in _rearranged(reference):
        if _holds(ours, whole[wrong], tolerance):
            return found
    return _rounded(ours, theirs)


def _holds(ours: Values, expected: Values, tolerance: Tolerance) -> bool:
    near = np.abs(ours - expected) <= tolerance.atol + max(tolerance.rtol, 1e-6) * np.abs(expected)
    return bool(((np.isfinite(expected) & near) | equal_or_nan(ours, expected)).all())


def _constants(ours: Values) -> Iterator[tuple[Relation, Values]]:
    first = float(ours[0])
    if np.isnan(first):
        yield Constant(value="nan"), np.full_like(ours, np.nan)
    elif np.isinf(first):
        yield Constant(value="inf" if first > 0 else "-inf"), np.full_like(ours, first)
    else:
        yield Constant(value=first), np.full_like(ours, first)


def _factors(ours: Values, theirs: Values) -> Iterator[tuple[Relation, Values]]:
    finite = np.isfinite(ours) & np.isfinite(theirs) & (theirs != 0)
    if finite.sum() >= _FEWEST:
        # The largest element gives the factor with the least rounding.
        at = int(np.argmax(np.where(finite, np.abs(theirs), 0)))
        factor = _neat(float(ours[at] / theirs[at]))
        if factor:
            yield Scaled(factor=factor), theirs * factor


def _offsets(ours: Values, theirs: Values) -> Iterator[tuple[Relation, Values]]:
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if finite.sum() >= _FEWEST:
        amount = _neat(float(np.median(ours[finite] - theirs[finite])))
        if amount:
            yield Offset(amount=amount), theirs + amount


def _neat(number: float) -> float:
    """Return a number rounded to four digits if that hardly changes it: 2 instead of 2.0000001."""
    rounded = float(f"{number:.4g}")
    return rounded if abs(rounded - number) <= 1e-5 * abs(number) else number


def _rearranged(reference: Values) -> Iterator[tuple[Relation, Values]]:
    for axis in range(reference.ndim):
        if reference.shape[axis] > 1:
            yield from ((Moved(axis=axis, by=by), np.roll(reference, -by, axis)) for by in _MOVED)
            yield Reordered(axis=axis), np.flip(reference, axis)
    if reference.ndim >= _MATRIX and reference.shape[-1] == reference.shape[-2]:
        yield Reordered(axis=None), reference.swapaxes(-1, -2)


def _rounded(ours: Values, theirs: Values) -> Relation | None:
    """Return the smaller dtype that holds all wrong values and not all of the reference's, if there is one."""
    # Every number of bfloat16 is also one of tfloat32, so the smaller dtype is tried first.
    if _ends_in_zeros(ours, _BFLOAT16) and not _ends_in_zeros(theirs, _BFLOAT16):
        return Rounded(dtype="bfloat16")
    if _is_half(ours) and not _is_half(theirs):
        return Rounded(dtype="float16")
    if _ends_in_zeros(ours, _TFLOAT32) and not _ends_in_zeros(theirs, _TFLOAT32):
        return Rounded(dtype="tfloat32")
    return None


def _ends_in_zeros(values: Values, bits: int) -> bool:
    """Whether all values are numbers of float32 whose last bits are zero."""
    finite = values[np.isfinite(values)]
    single = finite.astype(np.float32)
    lacks = single.view(np.uint32) & ((1 << bits) - 1)
    return bool((single.astype(np.float64) == finite).all() and not lacks.any())


def _is_half(values: Values) -> bool:
    finite = values[np.isfinite(values)]
    return bool((finite.astype(np.float16).astype(np.float64) == finite).all())

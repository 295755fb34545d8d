"""What the wrong elements of a tensor may have in common: the region that they fill, and what their values are.

A region consists of parts of axes, runs, diagonals, triangles or borders. A value is the reference's times a factor,
moved by a place, of a smaller dtype, or a constant. Both are only proposed here. ``error_pattern`` decides whether a
region explains the wrong elements better than a list of them would: by the length of its description, in bits.
"""

from __future__ import annotations

from math import gcd, log2
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ci_autotest.alignment.elements import equal_or_nan
from ci_autotest.values.error_pattern import (
    Border,
    Box,
    Constant,
    Diagonal,
    Every,
    Everything,
    Indices,
    Moved,
    Offset,
    Reordered,
    Rounded,
    Run,
    Scaled,
    Span,
    Triangle,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ci_autotest.values.error_pattern import Region, Relation
    from ci_autotest.values.tolerance import Tolerance

    Values = NDArray[np.float64]

#: Single indices that a description may list.
_LISTED: Final = 4
#: Bits that say which kind of region it is: rarer kinds cost more.
_COMMON_BITS: Final = 3.0
_RARE_BITS: Final = 5.0
#: An arithmetic sequence needs this many members.
_MEMBERS: Final = 3
#: Wrong elements below which a rule may hold by chance.
_FEWEST: Final = 4
#: Places by which values may be moved.
_MOVED: Final = (1, -1, 2, -2)
_MATRIX: Final = 2
#: Bits of float32's significand that a smaller dtype lacks.
_BFLOAT16: Final = 16
_TFLOAT32: Final = 13


class Proposal(NamedTuple):
    """A region, its elements, and the length of its description.

    Attributes:
        region: The typed value.
        mask: Elements of the region: bool, of the tensor's shape.
        bits: Length of the description.
    """

    region: Region
    mask: NDArray[np.bool_]
    bits: float


def regions(wrong: NDArray[np.bool_]) -> Iterator[Proposal]:
    """Yield regions that hold all wrong elements.

    Args:
        wrong: Which elements are wrong; at least one is.
    """
    yield Proposal(Everything(), np.ones(wrong.shape, bool), 0.0)
    yield from _boxes(wrong)
    yield from _in_order(wrong)
    if wrong.ndim >= _MATRIX and min(wrong.shape[-2:]) >= _MATRIX:
        yield from _of_matrices(wrong)
    for axes in range(1, min(wrong.ndim, 2) + 1):
        yield from _borders(wrong, axes)


def _boxes(wrong: NDArray[np.bool_]) -> Iterator[Proposal]:
    """Yield the box of all restricted axes, and that of each restricted axis alone."""
    found = [_part(axis, wrong) for axis in range(wrong.ndim)]
    parts = [part for part in found if part is not None]
    yield from (_box(wrong.shape, [part]) for part in parts)
    if len(parts) > 1:
        yield _box(wrong.shape, parts)


def _part(axis: int, wrong: NDArray[np.bool_]) -> Span | Every | Indices | None:
    """Return the indices along an axis that have a wrong element; ``None`` if all have, or they follow no rule."""
    size = wrong.shape[axis]
    indices = np.flatnonzero(wrong.any(axis=tuple(other for other in range(wrong.ndim) if other != axis)))
    if len(indices) == size:
        return None
    first, last = int(indices[0]), int(indices[-1])
    if last - first + 1 == len(indices):
        return Span(axis=axis, start=first, stop=last + 1, size=size)
    step = _step(indices)
    if step > 1 and len(indices) >= _MEMBERS and len(range(first, last + 1, step)) == len(indices):
        return Every(axis=axis, start=first, step=step, size=size)
    if len(indices) <= _LISTED:
        return Indices(axis=axis, indices=tuple(map(int, indices)), size=size)
    return None


def _step(indices: NDArray[np.intp]) -> int:
    return gcd(*map(int, np.diff(indices))) if len(indices) > 1 else 0


def _box(shape: tuple[int, ...], parts: Sequence[Span | Every | Indices]) -> Proposal:
    mask = np.ones(shape, bool)
    for part in parts:
        chosen = np.zeros(part.size, bool)
        chosen[_members(part)] = True
        axis = part.axis or 0
        mask &= chosen.reshape([-1 if other == axis else 1 for other in range(len(shape))])
    bits = _COMMON_BITS + sum(log2(len(shape) + 1) + _part_bits(part) for part in parts)
    return Proposal(Box(parts=tuple(parts)), mask, bits)


def _members(part: Span | Every | Indices) -> Any:
    match part:
        case Span():
            return slice(part.start, part.stop)
        case Every():
            return slice(part.start, None, part.step)
        case Indices():
            return list(part.indices)


def _part_bits(part: Span | Every | Indices) -> float:
    """Return the bits that name a part: one number if it touches an end of the axis, else two or more."""
    number = log2(part.size + 1)
    match part:
        case Span():
            return 1 + number * (1 if part.start == 0 or part.stop == part.size else 2)
        case Every():
            return 2 + log2(part.step + 1) * 2
        case Indices():
            return 2 + number * len(part.indices)


def _in_order(wrong: NDArray[np.bool_]) -> Iterator[Proposal]:
    """Yield what the wrong elements are in row-major order: a run, or every n-th element."""
    if wrong.ndim == 1:
        return  # A box says the same.
    flat, size = np.flatnonzero(wrong), wrong.size
    first, last = int(flat[0]), int(flat[-1])
    touches = first == 0 or last == size - 1
    # A run from the first to the last element is `Everything`.
    if not (first == 0 and last == size - 1):
        mask = np.zeros(size, bool)
        mask[first : last + 1] = True
        bits = _RARE_BITS + log2(size + 1) * (1 if touches else 2)
        yield Proposal(Run(start=first, stop=last + 1, size=size), mask.reshape(wrong.shape), bits)
    step = _step(flat)
    # Steps that fit into a row, or hold whole rows, stay in the same columns, which a box says better.
    row = wrong.shape[-1]
    if step > 1 and step % row and row % step and len(flat) >= _MEMBERS:
        mask = np.zeros(size, bool)
        mask[first % step :: step] = True
        every = Every(axis=None, start=first % step, step=step, size=size)
        yield Proposal(every, mask.reshape(wrong.shape), _RARE_BITS + 2 * log2(step + 1))


def _of_matrices(wrong: NDArray[np.bool_]) -> Iterator[Proposal]:
    """Yield the diagonals and triangles of the last two axes that hold all wrong elements."""
    rows, columns = (int(size) for size in wrong.shape[-2:])
    row, column = np.nonzero(wrong.reshape(-1, rows, columns).any(axis=0))
    grid = np.arange(columns) - np.arange(rows)[:, None]
    bits = _RARE_BITS + log2(rows + columns)
    low, high = int((column - row).min()), int((column - row).max())
    if low == high:
        yield _repeated(Diagonal(offset=low), grid == low, wrong, bits)
    total = column + row
    # A single element also lies on a diagonal, which describes it already.
    if total.min() == total.max() and len(total) > 1:
        anti = np.arange(columns) + np.arange(rows)[:, None]
        yield _repeated(Diagonal(offset=int(total[0]), anti=True), anti == total[0], wrong, bits)
    yield _repeated(Triangle(offset=low, upper=True), grid >= low, wrong, bits)
    yield _repeated(Triangle(offset=high, upper=False), grid <= high, wrong, bits)


def _repeated(region: Region, mask: NDArray[np.bool_], wrong: NDArray[np.bool_], bits: float) -> Proposal:
    return Proposal(region, np.broadcast_to(mask, wrong.shape), bits)


def _borders(wrong: NDArray[np.bool_], axes: int) -> Iterator[Proposal]:
    """Yield the border of the last axes that holds all wrong elements, if it leaves something inside."""
    distance = np.full(wrong.shape, max(wrong.shape))
    for axis in range(wrong.ndim - axes, wrong.ndim):
        size = wrong.shape[axis]
        away = np.minimum(np.arange(size), np.arange(size)[::-1])
        distance = np.minimum(distance, away.reshape([-1 if other == axis else 1 for other in range(wrong.ndim)]))
    width = int(distance[wrong].max()) + 1
    mask = distance < width
    if not mask.all():
        yield Proposal(Border(width=width, axes=axes), mask, _RARE_BITS + 1 + 2 * log2(width + 1))


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

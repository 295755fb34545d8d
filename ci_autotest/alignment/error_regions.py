"""Regions of a tensor that its wrong elements may fill: parts of axes, runs, diagonals, triangles and borders.

A region is only proposed here. ``error_pattern`` decides whether it explains the wrong elements better than a list of
them would: by the length of its description, in bits.
"""

from __future__ import annotations

from math import gcd, log2
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ci_autotest.values.error_pattern import Border, Box, Diagonal, Every, Everything, Indices, Run, Span, Triangle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ci_autotest.values.error_pattern import Region

#: Single indices that a description may list.
_LISTED: Final = 4
#: Bits that say which kind of region it is: rarer kinds cost more.
_COMMON_BITS: Final = 3.0
_RARE_BITS: Final = 5.0
#: An arithmetic sequence needs this many members.
_MEMBERS: Final = 3
_MATRIX: Final = 2


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

"""The pattern of a difference: which elements are wrong, by how much, and what they have in common.

It is computed in the worker on the case as it was found, because a shrunk program no longer shows it.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

#: Cells of a map; the elements of a larger tensor share them.
CELLS_AT_MOST: Final = 4096
#: The level of the first error outside the tolerance. A level is a quarter of an octave: 4 levels are twice the error.
OUTSIDE: Final = 96
#: The highest level of a finite error.
HIGHEST: Final = 190
#: The level of an element that is finite on one side only.
NOT_FINITE: Final = 255
LEVELS_PER_OCTAVE: Final = 4


class _Part(msgspec.Struct, frozen=True):
    """Base of every value here; ``verdict`` has one of its own and imports this module."""


class Span(_Part, frozen=True, kw_only=True, tag="span"):
    """Consecutive indices along an axis: ``start`` to ``stop``, exclusive."""

    axis: int
    start: int
    stop: int
    size: int


class Every(_Part, frozen=True, kw_only=True, tag="every"):
    """Every ``step``-th index along an axis, from ``start``; without an axis, of all elements in row-major order."""

    axis: int | None
    start: int
    step: int
    size: int


class Indices(_Part, frozen=True, kw_only=True, tag="indices"):
    """A few single indices along an axis."""

    axis: int
    indices: tuple[int, ...]
    size: int


class Everything(_Part, frozen=True, kw_only=True, tag="everything"):
    """All elements."""


class Box(_Part, frozen=True, kw_only=True, tag="box"):
    """The elements whose indices satisfy all parts, one for each axis that is restricted."""

    parts: tuple[Span | Every | Indices, ...]


class Run(_Part, frozen=True, kw_only=True, tag="run"):
    """Consecutive elements in row-major order: ``start`` to ``stop``, exclusive, of ``size``."""

    start: int
    stop: int
    size: int


class Diagonal(_Part, frozen=True, kw_only=True, tag="diagonal"):
    """A diagonal of the last two axes: column minus row is ``offset``, or for an antidiagonal column plus row."""

    offset: int
    anti: bool = False


class Triangle(_Part, frozen=True, kw_only=True, tag="triangle"):
    """A triangle of the last two axes: column minus row is at least ``offset``, or at most for the lower one."""

    offset: int
    upper: bool


class Border(_Part, frozen=True, kw_only=True, tag="border"):
    """The elements within ``width`` of an edge of the last one or two axes."""

    width: int
    axes: int


Property: TypeAlias = Literal[
    "zero", "nan", "infinite", "negative", "positive", "subnormal", "at_least", "at_most", "magnitude_at_least",
    "magnitude_at_most", "fractional", "odd",
]  # fmt: skip


class Condition(_Part, frozen=True, kw_only=True, tag="condition"):
    """The elements for which an input, or the reference's result, has a property.

    Attributes:
        input: Name of the input; empty for the reference's result.
        property: What holds there.
        bound: For the four last ones of magnitude and order, the bound itself.
        axis: If given, one element along this axis of the input has it.
    """

    input: str
    property: Property
    bound: float | None = None
    axis: int | None = None


Region: TypeAlias = Everything | Box | Every | Run | Diagonal | Triangle | Border | Condition


class Scaled(_Part, frozen=True, kw_only=True, tag="scaled"):
    """The candidate's value is the reference's times ``factor``."""

    factor: float


class Offset(_Part, frozen=True, kw_only=True, tag="offset"):
    """The candidate's value is the reference's plus ``amount``."""

    amount: float


class Constant(_Part, frozen=True, kw_only=True, tag="constant"):
    """The candidate's value is always the same; ``nan``, ``inf`` and ``-inf`` are words."""

    value: float | Literal["nan", "inf", "-inf"]


class Moved(_Part, frozen=True, kw_only=True, tag="moved"):
    """The candidate has the value that the reference has ``by`` places further along an axis."""

    axis: int
    by: int


class Reordered(_Part, frozen=True, kw_only=True, tag="reordered"):
    """The candidate's values are the reference's, reversed along ``axis``; without an axis, transposed."""

    axis: int | None


class Rounded(_Part, frozen=True, kw_only=True, tag="rounded"):
    """The candidate's values are all numbers of a smaller dtype."""

    dtype: Literal["bfloat16", "float16", "tfloat32"]


Relation: TypeAlias = Scaled | Offset | Constant | Moved | Reordered | Rounded


class ErrorMap(_Part, frozen=True, kw_only=True):
    """Errors of a tensor in units of its tolerance, as levels: 0 is equal, ``OUTSIDE`` the first outside it.

    Attributes:
        cells: Number of cells along each axis; at most 4,096 in all.
        block: Elements that a cell has along each axis; the last cell may have fewer.
        levels: The highest level of each cell, a byte each, in row-major order.
        counts: Elements by level, as pairs; exact whatever the size of the tensor.
        ulps: Elements by distance in units in the last place, as pairs: bucket ``b`` has distances below ``2**b``;
            empty if the dtype has none.
        is_absolute: Whether the tolerance is zero, so that levels count absolute differences instead.
    """

    cells: tuple[int, ...]
    block: tuple[int, ...]
    levels: bytes
    counts: tuple[tuple[int, int], ...]
    ulps: tuple[tuple[int, int], ...] = ()
    is_absolute: bool = False


class ErrorPattern(_Part, frozen=True, kw_only=True):
    """Which elements of a tensor are wrong, and what they have in common.

    Attributes:
        shape: Of the tensor, in the case that tells most.
        mismatched: Number of elements outside the tolerance.
        region: The smallest description of where they are; null if no description is better than a list.
        covered: Number of elements in the region.
        strays: Number of wrong elements outside of the region.
        relation: What the wrong values are; null if nothing is known of them.
        map: Where the errors are, and how large.
        case: The case that tells most, if it is another than the finding's.
    """

    shape: tuple[int, ...]
    mismatched: int
    region: Region | None = None
    covered: int = 0
    strays: int = 0
    relation: Relation | None = None
    map: ErrorMap
    case: int | None = None

    @property
    def weight(self) -> tuple[bool, bool, int]:
        """How much it tells: first whether there is a place, then whether the values are known, then wrong elements."""
        has_place = self.region is not None and not isinstance(self.region, Everything)
        return has_place, self.relation is not None, self.mismatched

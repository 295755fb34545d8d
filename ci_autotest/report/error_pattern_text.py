"""A pattern in words: "the last 3 of each row of 35", "only where x is NaN", "everything, by a factor of 2"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.values.error_pattern import (
    Border,
    Box,
    Condition,
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
    from collections.abc import Mapping

    from ci_autotest.values.error_pattern import ErrorPattern, Property, Region, Relation

_MATRIX: Final = 2
_BY_TWOS: Final = 2
#: English says 11th, 12th and 13th, and also 111th, whatever the last digit is.
_TEENS: Final = range(11, 14)
_ENDINGS: Final = {1: "st", 2: "nd", 3: "rd"}
#: What follows the name of an input.
_PROPERTIES: Final[Mapping[Property, str]] = {
    "zero": "is exactly 0", "nan": "is NaN", "infinite": "is infinite", "negative": "is negative",
    "positive": "is positive", "subnormal": "is subnormal (smaller than 2**-126)",
    "fractional": "is not a whole number",
    "odd": "is odd", "at_least": "is {} or more", "at_most": "is {} or less",
    "magnitude_at_least": "is {} or more in magnitude", "magnitude_at_most": "is {} or less in magnitude",
}  # fmt: skip
_SPOILED: Final[Mapping[Property, str]] = {"zero": "a 0", "nan": "a NaN", "infinite": "an infinity"}


def pattern_sentence(pattern: ErrorPattern | None) -> str:
    """Return a pattern in words; empty if nothing is known of the wrong elements."""
    if pattern is None:
        return ""
    where = region_words(pattern.region, pattern.shape) if pattern.region is not None else ""
    how = relation_words(pattern.relation, pattern.shape) if pattern.relation is not None else ""
    if isinstance(pattern.region, Everything):
        where = where if how else ""  # That all elements differ says nothing by itself.
    elif where:
        inside = pattern.mismatched - pattern.strays
        where = where if pattern.strays else f"only {where}"
        if pattern.covered > inside:
            where = f"{where} ({inside:,} of these {pattern.covered:,} elements)"
        if pattern.strays:
            where = f"{where}, and {_counted(pattern.strays, 'other')}"
    said = ", ".join(filter(None, (where, how)))
    return f"in case {pattern.case}: {said}" if said and pattern.case is not None else said


def region_words(region: Region, shape: tuple[int, ...]) -> str:
    """Return where the wrong elements are.

    Args:
        region: Any.
        shape: Of the tensor, which decides whether an axis is called rows, columns or by its number.
    """
    match region:
        case Everything():
            return "everything"
        case Box():
            return ", in ".join(_part_words(part, len(shape)) for part in reversed(region.parts))
        case Every():
            return f"every {_ordinal(region.step)} element, from element {region.start:,} on"
        case Run():
            return _run_words(region)
        case Diagonal():
            return _diagonal_words(region)
        case Triangle():
            return _triangle_words(region)
        case Border():
            return f"within {_counted(region.width, 'element')} of an edge of the last {_axes(region.axes)}"
        case Condition():
            return _condition_words(region, len(shape))


def relation_words(relation: Relation, shape: tuple[int, ...]) -> str:
    """Return what the wrong values are."""
    match relation:
        case Scaled(factor=-1.0):
            return "with the opposite sign"
        case Scaled():
            return f"by a factor of {relation.factor:.6g}"
        case Offset():
            return f"by adding {relation.amount:.6g}"
        case Constant():
            return f"the candidate has {_number(relation.value)} there"
        case Moved():
            away = f"{_counted(abs(relation.by), 'place')} too {'early' if relation.by > 0 else 'late'}"
            return f"the values are {away} along {_axis(relation.axis, len(shape))}"
        case Reordered(axis=None):
            return "the last two axes are swapped"
        case Reordered():
            return f"the values are reversed along {_axis(relation.axis or 0, len(shape))}"
        case Rounded():
            return f"the candidate's values are numbers of {relation.dtype}"


def _part_words(part: Span | Every | Indices, dims: int) -> str:
    axis = part.axis or 0
    match part:
        case Span():
            return _span_words(part, dims)
        case Every():
            start = f", from {part.start:,} on" if part.start else ""
            return f"every {_ordinal(part.step)} {_one(axis, dims)}{start}"
        case Indices():
            return f"{_many(axis, dims)} {_and([f'{index:,}' for index in part.indices])}"


def _span_words(span: Span, dims: int) -> str:
    count = span.stop - span.start
    is_last = dims > 1 and span.axis == dims - 1
    if count == 1 and 0 < span.start < span.size - 1:
        return f"{_one(span.axis, dims)} {span.start:,} of {span.size:,}"
    if is_last and (span.start == 0 or span.stop == span.size) and count * 2 <= span.size:
        end = "first" if span.start == 0 else "last"
        return f"the {end}{'' if count == 1 else f' {count:,}'} of each row of {span.size:,}"
    many = _many(span.axis, dims)
    if span.stop == span.size:
        return f"{many} from {span.start:,} on"
    if span.start == 0:
        return f"the first {count:,} {many}" if count > 1 else f"the first {_one(span.axis, dims)}"
    return f"{many} {span.start:,} to {span.stop - 1:,}"


def _run_words(run: Run) -> str:
    if run.stop == run.size:
        return f"elements from {run.start:,} on, of {run.size:,} in row-major order"
    if run.start == 0:
        return f"the first {run.stop:,} of {run.size:,} elements in row-major order"
    return f"elements {run.start:,} to {run.stop - 1:,} of {run.size:,} in row-major order"


def _diagonal_words(diagonal: Diagonal) -> str:
    if diagonal.anti:
        return f"on the antidiagonal (row + column = {diagonal.offset})"
    return "on the diagonal" if not diagonal.offset else f"on a diagonal (column - row = {diagonal.offset})"


def _triangle_words(triangle: Triangle) -> str:
    side = "above" if triangle.upper else "below"
    match triangle.offset * (1 if triangle.upper else -1):
        case 0:
            return f"on and {side} the diagonal"
        case 1:
            return f"{side} the diagonal"
        case _:
            sign = ">=" if triangle.upper else "<="
            return f"in the {'upper' if triangle.upper else 'lower'} triangle (column - row {sign} {triangle.offset})"


def _condition_words(condition: Condition, dims: int) -> str:
    name = condition.input or "the reference"
    if condition.axis is not None:
        line = "rows" if condition.axis == dims - 1 else f"lines along {_axis(condition.axis, dims)}"
        return f"in {line} of {name} that have {_SPOILED.get(condition.property, 'such an element')}"
    bound = "" if condition.bound is None else f"{condition.bound:.6g}"
    return f"where {name} {_PROPERTIES[condition.property].format(bound)}"


def _number(value: float | str) -> str:
    return (
        {"nan": "NaN", "inf": "infinity", "-inf": "-infinity"}.get(value, value)
        if isinstance(value, str)
        else f"{value:.6g}"
    )


def _one(axis: int, dims: int) -> str:
    """Return what one index along an axis is called."""
    if dims == 1:
        return "element"
    if axis == dims - 1:
        return "column"
    return "row" if axis == dims - _MATRIX else f"index of axis {axis}"


def _many(axis: int, dims: int) -> str:
    one = _one(axis, dims)
    return one.replace("index", "indices", 1) if one.startswith("index") else f"{one}s"


def _axis(axis: int, dims: int) -> str:
    return "the rows" if dims > 1 and axis == dims - 1 else f"axis {axis}"


def _axes(count: int) -> str:
    return "axis" if count == 1 else f"{count} axes"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _ordinal(number: int) -> str:
    if number == _BY_TWOS:
        return "second"
    ending = "th" if number % 100 in _TEENS else _ENDINGS.get(number % 10, "th")
    return f"{number:,}{ending}"

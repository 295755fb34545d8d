"""The greatest error of aligned cases: what a tolerance can rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.values.verdict import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The cases of a test whose error is measured if they are aligned: the first ones, and then one in so many.
_FIRST, _EVERY = 64, 16


class AlignedError(Struct, frozen=True, kw_only=True):
    """The greatest error of the aligned cases of a test on a candidate, for one operator and dtype.

    Attributes:
        operator: Operator whose results or gradients were compared.
        dtype: Their dtype.
        cases: Number of cases that were measured: the first 64 of a test, then one in 16.
        absolute: Greatest absolute difference of finite elements, in the unit of the elements.
        relative: Greatest difference relative to a reference that is not 0.
        ulp: Greatest difference in units in the last place; null for dtypes without them.
        used: Greatest part of the dtype's default tolerance that an element used up; null if that tolerance is 0.
    """

    operator: str
    dtype: str
    cases: int
    absolute: float
    relative: float
    ulp: int | None
    used: float | None


def is_measured(case: int) -> bool:
    """Whether the error of a case is measured if the case is aligned."""
    return case < _FIRST or case % _EVERY == 0


def joined_errors(errors: Iterable[AlignedError]) -> tuple[AlignedError, ...]:
    """Return one entry for each operator and dtype, in alphabetical order, whatever the order of ``errors``."""
    found: dict[tuple[str, str], AlignedError] = {}
    for item in errors:
        key = item.operator, item.dtype
        found[key] = item if key not in found else _joined(found[key], item)
    return tuple(found[key] for key in sorted(found))


def _joined(one: AlignedError, other: AlignedError) -> AlignedError:
    return AlignedError(
        operator=one.operator, dtype=one.dtype, cases=one.cases + other.cases,
        absolute=max(one.absolute, other.absolute), relative=max(one.relative, other.relative),
        ulp=None if one.ulp is None or other.ulp is None else max(one.ulp, other.ulp),
        used=None if one.used is None or other.used is None else max(one.used, other.used),
    )  # fmt: skip

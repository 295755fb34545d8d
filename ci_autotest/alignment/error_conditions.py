"""Conditions on inputs that the wrong elements may meet: exactly zero, NaN, negative, from a bound on."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Final

import numpy as np

from ci_autotest.alignment.error_regions import Proposal
from ci_autotest.values.error_pattern import Condition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ci_autotest.values.error_pattern import Property

    Values = NDArray[np.float64]

#: The smallest normal number of float32, below which a device may flush to zero.
_SMALLEST_NORMAL: Final = 2.0**-126
#: Bits of a condition, without the choice of the input.
_BITS: Final = 5.0
#: A description with the reference's result says less about the cause than one with an input.
_RESULT_BITS: Final = 3.0

_PROPERTIES: Final[Mapping[Property, Callable[[Values], NDArray[np.bool_]]]] = {
    "zero": lambda values: values == 0,
    "nan": np.isnan,
    "infinite": np.isinf,
    "negative": lambda values: values < 0,
    "positive": lambda values: values > 0,
    "subnormal": lambda values: (values != 0) & (np.abs(values) < _SMALLEST_NORMAL),
    "fractional": lambda values: np.isfinite(values) & (values != np.floor(values)),
    "odd": lambda values: np.isfinite(values) & (np.mod(values, 2) == 1),
}
#: Properties of a single element that may spoil a whole row.
_SPOILING: Final[frozenset[Property]] = frozenset({"zero", "nan", "infinite"})
_BOUNDS: Final[Mapping[Property, tuple[Callable[[Values], Values], int]]] = {
    "at_least": (lambda values: values, 1),
    "at_most": (lambda values: values, -1),
    "magnitude_at_least": (np.abs, 1),
    "magnitude_at_most": (np.abs, -1),
}


def conditions(wrong: NDArray[np.bool_], inputs: Mapping[str, Values], result: Values) -> Iterator[Proposal]:
    """Yield conditions that all wrong elements meet.

    Args:
        wrong: Which elements are wrong; at least one is.
        inputs: Inputs of the step by name, in float64. Those that cannot be laid over the result are left out.
        result: The reference's result, of the same shape as ``wrong``.
    """
    # The reference's result is one more choice beside the inputs.
    choice = log2(len(inputs) + 1)
    for name, values in inputs.items():
        laid = _laid_over(values, wrong.shape)
        if laid is not None:
            yield from _met(wrong, laid, name, choice)
        yield from _spoiled(wrong, values, name, choice)
    yield from _met(wrong, result, "", choice + _RESULT_BITS)


def _laid_over(values: Values, shape: tuple[int, ...]) -> Values | None:
    """Return an input broadcast to the result's shape, or ``None``; one number for all says nothing about elements."""
    if values.size <= 1 or values.ndim > len(shape):
        return None
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        return None


def _met(wrong: NDArray[np.bool_], values: Values, name: str, bits: float) -> Iterator[Proposal]:
    chosen = values[wrong]
    for named, holds in _PROPERTIES.items():
        if holds(chosen).all():
            yield Proposal(Condition(input=name, property=named), holds(values), _BITS + bits)
    # NaN is neither above nor below any bound.
    if np.isnan(chosen).any():
        return
    for named, (measure, sign) in _BOUNDS.items():
        measured = measure(values) * sign
        bound = float(measured[wrong].min())
        condition = Condition(input=name, property=named, bound=bound * sign if np.isfinite(bound) else None)
        if condition.bound is not None:
            yield Proposal(condition, measured >= bound, _BITS + bits + log2(wrong.size + 1))


def _spoiled(wrong: NDArray[np.bool_], values: Values, name: str, bits: float) -> Iterator[Proposal]:
    """Yield the rows in which one element of an input has a property, for each axis that a step may reduce."""
    for axis in range(values.ndim):
        for named in sorted(_SPOILING):
            mask = _rows(_PROPERTIES[named](values), axis, wrong.shape)
            # Rows that fill the whole tensor say no more than `Everything`, which costs no bits.
            if mask is not None and mask.any() and not mask.all() and mask[wrong].all():
                yield Proposal(Condition(input=name, property=named, axis=axis), mask, _BITS + bits + 1)


def _rows(holds: NDArray[np.bool_], axis: int, shape: Sequence[int]) -> NDArray[np.bool_] | None:
    """Return the elements of the result whose row of the input has the property; ``None`` if the shapes do not fit."""
    kept: NDArray[np.bool_] = np.any(holds, axis=axis, keepdims=True)
    if len(shape) == holds.ndim - 1:
        rows: NDArray[np.bool_] = np.any(holds, axis=axis)
        return rows if np.shape(rows) == tuple(shape) else None
    fits = kept.ndim == len(shape) and all(
        left == right or at == axis for at, (left, right) in enumerate(zip(holds.shape, shape, strict=True))
    )
    return np.broadcast_to(kept, tuple(shape)) if fits else None

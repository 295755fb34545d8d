"""The pattern of a difference: the shortest true description of which elements are wrong, and the map of their errors.

A region is named only if naming it, and then saying which of its elements are wrong, takes fewer bits than saying which
of all elements are (minimum description length). So noise has no pattern, and a short list of elements has none either.

The search has the tensors of a verdict as NumPy's, in float64, with the step's inputs.
"""

from __future__ import annotations

from itertools import chain
from math import lgamma, log, log2
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from ci_autotest.alignment.elements import equal_or_nan, mismatches, ulp_distance, wide
from ci_autotest.alignment.error_proposals import Proposal, regions, relation
from ci_autotest.alignment.single_step import COPY
from ci_autotest.program.codegen import names
from ci_autotest.program.ir import PLACEHOLDER, step_refs
from ci_autotest.values.error_pattern import (
    CELLS_AT_MOST,
    HIGHEST,
    LEVELS_PER_OCTAVE,
    NOT_FINITE,
    OUTSIDE,
    Condition,
    ErrorMap,
    ErrorPattern,
    Everything,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Program, Step
    from ci_autotest.values.error_pattern import Property, Region
    from ci_autotest.values.tolerance import Tolerance

    Values = NDArray[np.float64]

#: Bits that a description must save: by chance, one in a thousand random masks has one that saves as many.
_SAVED_BITS: Final = 10.0
#: The share of a region's elements that must be wrong for the region to be named.
_COVERED: Final = 0.6
#: The share of the right elements that must be outside of a region for it to be named.
_LEFT_OUT: Final = 0.5
#: Wrong elements that a region may leave out: a count, and a share of all that are wrong.
_STRAYS: Final = 2
_STRAY_SHARE: Final = 0.02
#: Indices along an axis with fewer wrong elements than this share of the fullest one hold strays.
_SPARSE: Final = 0.05
#: A bound between these multiples of ``atol`` says only where a wrong value is small enough to pass.
_NEAR_ATOL: Final = (0.9, 1.5)
#: The share of all elements that must be wrong to say "everything".
_ALL: Final = 0.95
#: The bucket of a NaN or an infinity on one side only.
_FARTHEST: Final = 64
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
#: Elements of the largest tensor whose pattern is looked for, so that it costs less than a second.
_MOST_ELEMENTS: Final = 1 << 20
#: Inputs that a condition may name.
_MOST_INPUTS: Final = 8


class DifferingTensor(NamedTuple):
    """A tensor that differs, as NumPy sees it.

    Attributes:
        candidate: In float64; of complex numbers, the magnitude.
        reference: The same of the reference.
        wrong: Which elements are outside the tolerance.
        inputs: What the step was given, by name, in float64.
        tolerance: What is allowed.
        ulps: Distance in units in the last place; ``None`` if the dtype has none.
    """

    candidate: NDArray[np.float64]
    reference: NDArray[np.float64]
    wrong: NDArray[np.bool_]
    inputs: Mapping[str, NDArray[np.float64]]
    tolerance: Tolerance
    ulps: NDArray[np.float64] | None = None


@np.errstate(all="ignore")
def error_pattern(sample: DifferingTensor) -> ErrorPattern:
    """Return the pattern of a tensor of which at least one element is wrong."""
    candidate, reference, wrong, tolerance = sample.candidate, sample.reference, sample.wrong, sample.tolerance
    region, covered, strays = _named_region(sample)
    return ErrorPattern(
        shape=wrong.shape,
        mismatched=int(wrong.sum()),
        region=region,
        covered=covered,
        strays=strays,
        relation=relation(candidate, reference, wrong, tolerance),
        map=error_map(candidate, reference, wrong, tolerance, sample.ulps),
    )


def _named_region(sample: DifferingTensor) -> tuple[Region | None, int, int]:
    """Return the region with the shortest description, its number of elements, and how many wrong ones are elsewhere.

    The region is ``None`` if no description is short enough.
    """
    wrong, count = sample.wrong, int(sample.wrong.sum())
    if wrong.size <= 1 or not wrong.ndim:
        return None, 0, 0
    if count >= _ALL * wrong.size:
        return Everything(), wrong.size, 0
    limit = _choice_bits(wrong.size, count) - _SAVED_BITS
    found: tuple[Region | None, int, int] = (None, 0, 0)
    bounded = conditions(wrong, sample.inputs, sample.reference, sample.tolerance.atol)
    proposals = chain(regions(wrong), bounded, *(regions(main) for main in _without_strays(wrong)))
    for proposal in proposals:
        size = int(np.count_nonzero(proposal.mask))
        strays = int(np.count_nonzero(wrong & ~proposal.mask))
        inside = count - strays
        bits = proposal.bits + _choice_bits(size, inside)
        if strays:
            bits += _choice_bits(wrong.size - size, strays)
        is_told = wrong.size - size - strays >= _LEFT_OUT * (wrong.size - count)
        if bits < limit and is_told and inside >= _COVERED * size:
            limit, found = bits, (proposal.region, size, strays)
    return found


def _without_strays(wrong: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    """Yield the wrong elements without those at indices of an axis that have hardly any, if these are few."""
    count = int(wrong.sum())
    most = max(_STRAYS, int(_STRAY_SHARE * count))
    for axis in range(wrong.ndim):
        by_index = wrong.sum(axis=tuple(other for other in range(wrong.ndim) if other != axis), keepdims=True)
        main = wrong & (by_index >= _SPARSE * by_index.max())
        if 0 < count - int(main.sum()) <= most:
            yield main


def _choice_bits(size: int, count: int) -> float:
    """Return the bits that say which ``count`` of ``size`` elements: their number, then which of the combinations."""
    combinations = (lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1)) / log(2)
    return log2(size + 1) + combinations


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
    finite = np.where(np.isfinite(octaves), np.floor(octaves * LEVELS_PER_OCTAVE), -OUTSIDE) + OUTSIDE
    # Rounding of the quotient must not contradict the comparison: it alone decides which side of the limit it is.
    levels = np.where(wrong, np.clip(finite, OUTSIDE, HIGHEST), np.clip(finite, 1, OUTSIDE - 1))
    levels = np.where(np.isfinite(distance) | ~wrong, levels, NOT_FINITE)
    return np.where(equal_or_nan(candidate, reference) & ~wrong, 0, levels).astype(np.uint8)


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


def conditions(
    wrong: NDArray[np.bool_], inputs: Mapping[str, Values], result: Values, atol: float = 0.0
) -> Iterator[Proposal]:
    """Yield conditions that all wrong elements meet.

    Args:
        wrong: Which elements are wrong; at least one is.
        inputs: Inputs of the step by name, in float64. Those that cannot be laid over the result are left out.
        result: The reference's result, of the same shape as ``wrong``.
        atol: Of the tolerance. A bound that is about as large says nothing of the candidate.
    """
    # The reference's result is one more choice beside the inputs.
    choice = log2(len(inputs) + 1)
    for name, values in inputs.items():
        laid = _laid_over(values, wrong.shape)
        if laid is not None:
            yield from _met(wrong, laid, (name, choice), atol)
        yield from _spoiled(wrong, values, name, choice)
    yield from _met(wrong, result, ("", choice + _RESULT_BITS), atol)


def _laid_over(values: Values, shape: tuple[int, ...]) -> Values | None:
    """Return an input broadcast to the result's shape, or ``None``; one number for all says nothing about elements."""
    if values.size <= 1 or values.ndim > len(shape):
        return None
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        return None


def _met(wrong: NDArray[np.bool_], values: Values, of: tuple[str, float], atol: float) -> Iterator[Proposal]:
    name, bits = of
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
        low, high = (factor * atol for factor in _NEAR_ATOL)
        if condition.bound is not None and not (atol and low <= abs(condition.bound) <= high):
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


def pattern_of(
    sides: tuple[torch.Tensor, torch.Tensor], inputs: dict[str, torch.Tensor], tolerance: Tolerance
) -> ErrorPattern | None:
    """Return the pattern of two tensors that differ; ``None`` if none of their elements does, or they are too large.

    Args:
        sides: The candidate's tensor and the reference's, of one shape.
        inputs: What the step was given on the reference, by name.
        tolerance: What is allowed.
    """
    candidate, reference = sides
    if candidate.shape != reference.shape or not 0 < reference.numel() <= _MOST_ELEMENTS:
        return None
    wrong = mismatches(candidate, reference, tolerance).numpy()
    if not wrong.any():
        return None
    ulps = ulp_distance(candidate, reference)
    sample = DifferingTensor(
        candidate=_plain(candidate), reference=_plain(reference), wrong=wrong,
        inputs={name: _plain(value) for name, value in inputs.items()},
        tolerance=tolerance, ulps=None if ulps is None else ulps.numpy(),
    )  # fmt: skip
    return error_pattern(sample)


def inputs_of(program: Program, index: int, reference: Trace, *, has_backward: bool) -> dict[str, torch.Tensor]:
    """Return the tensors that a step was given on the reference; for a gradient, the program's own inputs."""
    steps, named = program.steps, names(program)
    given = [ref.index for ref in step_refs(steps[index])]
    if has_backward:
        given = [i for i, step in enumerate(steps) if step.op == PLACEHOLDER]
    values = ((_name(i, steps, named), _before(i, reference)) for i in dict.fromkeys(given))
    found = [(name, value) for name, value in values if isinstance(value, torch.Tensor) and _is_readable(value)]
    return dict(found[:_MOST_INPUTS])


def _name(index: int, steps: Sequence[Step], named: Sequence[str]) -> str:
    """Return the name of a value; of the copy that an isolated step writes to, the name of what was copied."""
    step = steps[index]
    refs = step_refs(step)
    return named[refs[0].index if step.name == COPY and refs else index]


def _before(index: int, trace: Trace) -> Any:
    """Return a value as it was at its step, because a later one may have written to it."""
    seen = trace.observations[index] if index < len(trace.observations) else None
    return trace.values[index] if seen is None else seen.data


def _is_readable(value: object) -> bool:
    """Whether NumPy can have the elements of a value; others are no reason for a pattern, and none for an error."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not value.is_quantized
        and value.device.type != "meta"
        and 0 < value.numel() <= _MOST_ELEMENTS
    )


def _plain(tensor: torch.Tensor) -> NDArray[np.float64]:
    """Return the elements in float64; of complex numbers the magnitude, which is enough to look for a pattern."""
    found = wide(tensor)
    return (found.abs() if found.is_complex() else found).numpy()

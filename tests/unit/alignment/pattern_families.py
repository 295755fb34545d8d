"""Families of planted patterns: each draws sizes and places, and knows the description that is right.

Those here, and the noise, were looked at while the search for patterns was written: 300 of 300 right, none of 300 named.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ci_autotest.alignment.error_pattern import DifferingTensor
from ci_autotest.values.error_pattern import (
    Box,
    Condition,
    Constant,
    Diagonal,
    Every,
    Everything,
    Run,
    Scaled,
    Span,
    Triangle,
)
from ci_autotest.values.tolerance import Tolerance

TOLERANCE = Tolerance(1.3e-6, 1e-5)


class Planted(NamedTuple):
    """A planted pattern: the sample, and the region and relation that are right; ``None`` takes any."""

    sample: DifferingTensor
    region: object = None
    relation: object = None


def planted(rng, reference, mask, inputs=None, region=None, agree=0.0):
    """Return a sample whose elements of ``mask`` are off by random amounts; a share of them agrees by chance."""
    wrong = mask & (rng.random(mask.shape) >= agree)
    noise = rng.normal(size=mask.shape) + np.sign(rng.normal(size=mask.shape))
    candidate = np.where(wrong, reference + noise, reference)
    return Planted(DifferingTensor(candidate, reference, wrong, inputs or {}, TOLERANCE), region)


def whole(reference, candidate, relation):
    """Return a sample that is wrong wherever the candidate differs, with the relation that is right."""
    wrong = ~np.isclose(candidate, reference, rtol=TOLERANCE.rtol, atol=TOLERANCE.atol, equal_nan=True)
    return Planted(DifferingTensor(candidate, reference, wrong, {}, TOLERANCE), None, relation)


def matrix(rng, low=8, high=70):
    shape = tuple(int(size) for size in rng.integers(low, high, 2))
    return rng.normal(size=shape), shape


def where(shape, axis, indices):
    mask = np.zeros(shape, bool)
    np.moveaxis(mask, axis, 0)[indices] = True
    return mask


def row_tail(rng):
    reference, shape = matrix(rng)
    start = shape[1] - int(rng.integers(1, 5))
    region = Box(parts=(Span(axis=1, start=start, stop=shape[1], size=shape[1]),))
    return planted(rng, reference, where(shape, 1, slice(start, None)), region=region, agree=0.1)


def every_element(rng):
    size, step = int(rng.integers(200, 2000)), int(rng.choice([7, 16, 32]))
    start = int(rng.integers(step))
    mask = np.zeros(size, bool)
    mask[start::step] = True
    every = Every(axis=0, start=start, step=step, size=size)
    same = Every(axis=None, start=start, step=step, size=size)
    return planted(rng, rng.normal(size=size), mask)._replace(region=(Box(parts=(every,)), same))


def rows_from(rng):
    shape = (int(rng.integers(1025, 1100)), int(rng.integers(2, 6)))
    region = Box(parts=(Span(axis=0, start=1024, stop=shape[0], size=shape[0]),))
    return planted(rng, rng.normal(size=shape), where(shape, 0, slice(1024, None)), region=region)


def input_zero(rng):
    reference, shape = matrix(rng)
    values = np.where(rng.random(shape) < 0.1, 0.0, rng.normal(size=shape))
    return planted(rng, reference, values == 0, {"x": values}, Condition(input="x", property="zero"))


def diagonal(rng):
    size = int(rng.integers(8, 60))
    return planted(
        rng,
        rng.normal(size=(3, size, size)),
        np.broadcast_to(np.eye(size, dtype=bool), (3, size, size)),
        region=Diagonal(offset=0),
    )


def nan_inputs(rng):
    reference, shape = matrix(rng)
    values = np.where(rng.random(shape) < 0.08, np.nan, rng.normal(size=shape))
    found = planted(
        rng, np.where(np.isnan(values), np.nan, reference), np.isnan(values), {"a": rng.normal(size=shape), "x": values}
    )
    candidate = np.where(np.isnan(values), 0.0, found.sample.reference)
    return Planted(found.sample._replace(candidate=candidate), Condition(input="x", property="nan"))


def doubled(rng):
    reference, _ = matrix(rng)
    factor = float(rng.choice([2.0, 0.5, 3.0]))
    return whole(reference, reference * factor * (1 + 1e-7 * rng.normal(size=reference.shape)), Scaled(factor=factor))


def one_column(rng):
    reference, shape = matrix(rng)
    column = int(rng.integers(1, shape[1] - 1))
    region = Box(parts=(Span(axis=1, start=column, stop=column + 1, size=shape[1]),))
    return planted(rng, reference, where(shape, 1, column), region=region, agree=0.1)


def block(rng):
    reference, shape = matrix(rng, 20, 60)
    rows, columns = int(rng.integers(2, 10)), int(rng.integers(2, 10))
    mask = np.zeros(shape, bool)
    mask[rows : rows + 6, columns : columns + 8] = True
    parts = (
        Span(axis=0, start=rows, stop=rows + 6, size=shape[0]),
        Span(axis=1, start=columns, stop=columns + 8, size=shape[1]),
    )
    return planted(rng, reference, mask, region=Box(parts=parts))


def first_rows(rng):
    reference, shape = matrix(rng)
    stop = int(rng.integers(1, 5))
    region = Box(parts=(Span(axis=0, start=0, stop=stop, size=shape[0]),))
    return planted(rng, reference, where(shape, 0, slice(stop)), region=region)


def nothing_written(rng):
    reference, _ = matrix(rng)
    return whole(reference, np.zeros_like(reference), Constant(value=0.0))


def upper_triangle(rng):
    size, offset = int(rng.integers(8, 50)), int(rng.integers(0, 2))
    mask = np.triu(np.ones((size, size), bool), offset)
    return planted(rng, rng.normal(size=(size, size)), mask, region=Triangle(offset=offset, upper=True))


def negative_input(rng):
    reference, shape = matrix(rng)
    values = rng.normal(size=shape)
    return planted(rng, reference, values < 0, {"x": values}, Condition(input="x", property="negative"), agree=0.05)


def grid_tail(rng):
    shape = (int(rng.integers(30, 40)), 37)
    mask = np.arange(shape[0] * 37).reshape(shape) >= 1024
    return planted(rng, rng.normal(size=shape), mask, region=Run(start=1024, stop=shape[0] * 37, size=shape[0] * 37))


def sign_flipped(rng):
    reference, _ = matrix(rng)
    return whole(reference, -reference, Scaled(factor=-1.0))


SEEN = (
    row_tail, every_element, rows_from, input_zero, diagonal, nan_inputs, doubled, one_column, block, first_rows,
    nothing_written, upper_triangle, negative_input, grid_tail, sign_flipped,
)  # fmt: skip


def is_right(found, wanted):
    """Whether a pattern says what was planted; a relation may leave some elements as they were, such as a diagonal."""
    if wanted.relation is not None:
        return found.relation == wanted.relation and isinstance(found.region, Everything | None)
    right = wanted.region if isinstance(wanted.region, tuple) else (wanted.region,)
    return found.region in right


def noise(rng):
    """Return a sample whose wrong elements follow no rule."""
    reference, shape = matrix(rng, 4, 50)
    mask = rng.random(shape) < rng.choice([0.02, 0.1, 0.3, 0.6, 0.85])
    mask.flat[int(rng.integers(mask.size))] = True
    values = rng.normal(size=shape)
    return planted(rng, reference, mask, {"x": values, "row": rng.normal(size=shape[1])})

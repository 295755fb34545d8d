"""Families that were kept aside while the search for patterns was written, and scored once, at the end: 289 of 300."""

from __future__ import annotations

import numpy as np

from ci_autotest.values.error_pattern import (
    Border,
    Box,
    Condition,
    Diagonal,
    Every,
    Indices,
    Moved,
    Offset,
    Reordered,
    Rounded,
    Span,
    Triangle,
)
from tests.unit.alignment.pattern_families import matrix, planted, where, whole


def every_column(rng):
    reference, shape = matrix(rng, 20, 90)
    step = int(rng.choice([3, 4, 8]))
    start = int(rng.integers(step))
    region = Box(parts=(Every(axis=1, start=start, step=step, size=shape[1]),))
    return planted(rng, reference, where(shape, 1, slice(start, None, step)), region=region)


def image_border(rng):
    shape = (2, 3, *(int(size) for size in rng.integers(7, 20, 2)))
    width = int(rng.integers(1, 3))
    mask = np.ones(shape, bool)
    mask[..., width:-width, width:-width] = False
    return planted(rng, rng.normal(size=shape), mask, region=Border(width=width, axes=2), agree=0.05)


def large_inputs(rng):
    reference, shape = matrix(rng)
    values = rng.normal(size=shape) * 60
    bound = float(values[values >= 88.7].min())
    region = (Condition(input="x", property="at_least", bound=bound),)
    return planted(rng, reference, values >= 88.7, {"x": values})._replace(region=region)


def plus_constant(rng):
    reference, _ = matrix(rng)
    amount = float(rng.choice([1.0, -0.5, 1e-3]))
    return whole(reference, reference + amount, Offset(amount=amount))


def last_channels(rng):
    channels = int(rng.integers(6, 20))
    shape, last = (2, channels, 5, 7), int(rng.integers(1, 4))
    region = Box(parts=(Span(axis=1, start=channels - last, stop=channels, size=channels),))
    return planted(rng, rng.normal(size=shape), where(shape, 1, slice(channels - last, None)), region=region, agree=0.1)


def superdiagonal(rng):
    size, offset = int(rng.integers(10, 50)), int(rng.choice([1, -1, 2]))
    return planted(
        rng, rng.normal(size=(size, size)), np.eye(size, k=offset, dtype=bool), region=Diagonal(offset=offset)
    )


def lower_triangle(rng):
    size = int(rng.integers(8, 50))
    mask = np.broadcast_to(np.tril(np.ones((size, size), bool), -1), (2, size, size))
    return planted(rng, rng.normal(size=mask.shape), mask, region=Triangle(offset=-1, upper=False))


def infinite_rows(rng):
    reference, shape = matrix(rng)
    values = rng.normal(size=shape)
    rows = rng.choice(shape[0], max(2, shape[0] // 6), replace=False)
    values[rows, rng.integers(shape[1], size=len(rows))] = -np.inf
    mask = np.broadcast_to(np.isinf(values).any(axis=1, keepdims=True), shape)
    return planted(rng, reference, mask, {"x": values}, Condition(input="x", property="infinite", axis=1))


def off_by_one(rng):
    reference, _ = matrix(rng)
    axis, by = int(rng.integers(2)), int(rng.choice([1, -1]))
    return whole(reference, np.roll(reference, -by, axis), Moved(axis=axis, by=by))


def transposed(rng):
    size = int(rng.integers(5, 40))
    reference = rng.normal(size=(2, size, size))
    return whole(reference, reference.swapaxes(1, 2), Reordered(axis=None))


def odd_rows(rng):
    reference, shape = matrix(rng, 10, 50)
    region = Box(parts=(Every(axis=0, start=1, step=2, size=shape[0]),))
    return planted(rng, reference, where(shape, 0, slice(1, None, 2)), region=region, agree=0.1)


def half_precision(rng):
    reference = rng.normal(size=(int(rng.integers(8, 40)), 33)).astype(np.float32)
    bits = reference.view(np.uint32)
    candidate = ((bits + 0x8000) & np.uint32(0xFFFF0000)).view(np.float32)
    return whole(reference.astype(np.float64), candidate.astype(np.float64), Rounded(dtype="bfloat16"))


def tail_of_one_batch(rng):
    batch, size = int(rng.integers(4, 9)), int(rng.integers(20, 40))
    at, last = int(rng.integers(1, batch - 1)), int(rng.integers(2, 6))
    mask = np.zeros((batch, 9, size), bool)
    mask[at, :, size - last :] = True
    parts = (Span(axis=0, start=at, stop=at + 1, size=batch), Span(axis=2, start=size - last, stop=size, size=size))
    return planted(rng, rng.normal(size=mask.shape), mask, region=Box(parts=parts))


def two_channels(rng):
    reference, shape = matrix(rng, 12, 40)
    first = int(rng.integers(1, 5))
    second = first + int(rng.integers(3, 6))
    region = Box(parts=(Indices(axis=1, indices=(first, second), size=shape[1]),))
    return planted(rng, reference, where(shape, 1, [first, second]), region=region)


def subnormal_input(rng):
    reference, shape = matrix(rng)
    values = np.where(rng.random(shape) < 0.1, 1e-40 * rng.normal(size=shape), rng.normal(size=shape))
    return planted(rng, reference, np.abs(values) < 1e-38, {"x": values}, Condition(input="x", property="subnormal"))


KEPT_ASIDE = (
    every_column, image_border, large_inputs, plus_constant, last_channels, superdiagonal, lower_triangle,
    infinite_rows, off_by_one, transposed, odd_rows, half_precision, tail_of_one_batch, two_channels, subnormal_input,
)  # fmt: skip

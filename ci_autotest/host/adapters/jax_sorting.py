"""Sorting, searching and counting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ci_autotest.host.adapters.jax_promotion import is_array
from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from jax import Array


def sort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> tuple[Array, Array]:
    """Sort stably."""
    if not input.ndim:
        return input, jnp.zeros((), jnp.int64)
    # Stable whatever is asked for: otherwise torch allows any order of ties, this one too.
    index = jnp.argsort(input, axis=dim, stable=True, descending=descending)
    return jnp.take_along_axis(input, index, axis=dim), index


def argsort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Array:
    """Return the indices that sort an array stably."""
    return sort(input, dim, descending)[1]


def msort(input: Any) -> Array:
    """Sort along the first dimension."""
    return jnp.sort(input, axis=0)


def topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    """Return the largest elements and their indices."""
    if not largest or not input.ndim:
        message = "counterpart of largest=False or a 0-dim tensor: jax.lax.top_k takes the largest along a dimension"
        raise LackingError(message)
    values, index = jax.lax.top_k(input, k, axis=dim)
    return values, index.astype(jnp.int64)


def unique(
    input: Any,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Array | tuple[Array, ...]:
    """Return the unique elements, sorted."""
    found: Array | tuple[Array, ...] = jnp.unique(
        input, return_inverse=return_inverse, return_counts=return_counts, axis=dim
    )
    return found


def searchsorted(
    sorted_sequence: Any,
    input: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Array:
    """Return the indices at which values would be inserted."""
    if sorted_sequence.ndim != 1:
        message = "counterpart of a batch of sequences: jax.numpy.searchsorted takes one only"
        raise LackingError(message)
    from_side = side or ("right" if right else "left")
    places = jnp.searchsorted(sorted_sequence, input, from_side, sorter)
    # torch documents int64 for the indices, whatever the framework chooses.
    return places.astype(jnp.int32 if out_int32 else jnp.int64)


def bucketize(input: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Array:
    """Return the bucket of each value."""
    return searchsorted(boundaries, input, out_int32, right)


def bincount(input: Any, weights: Any = None, minlength: int = 0) -> Array:
    """Count each integer, or sum the weights of each."""
    found = jnp.bincount(input, weights, minlength=minlength)
    return found.astype(jnp.int64) if weights is None else found


def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    """Count the elements in each of several equal bins."""
    # Two zeros stand for the least and the greatest element of the data.
    bounds = None if min == max == 0 else (min, max)
    counts, _ = jnp.histogram(input, bins, bounds)
    return counts.astype(input.dtype)


def isin(elements: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Array:
    """Whether each element is one of the others."""
    one = elements if is_array(elements) else jnp.asarray(elements)
    return jnp.isin(one, test_elements, assume_unique=assume_unique, invert=invert)

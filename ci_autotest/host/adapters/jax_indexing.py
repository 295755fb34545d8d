"""Indexing, sorting, searching and counting.

``take`` and ``take_along_axis`` read elements, and the scatters behind ``x.at[...]`` replace them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ci_autotest.host.adapters.jax_promotion import is_array
from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array


def _rows(input: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """Return an index that selects whole slices along a dimension."""
    return (*(slice(None),) * (dim % input.ndim), index)


def _grid(index: Any, dim: int) -> tuple[Any, ...]:
    """Return an index that uses ``index`` along a dimension, and each element's own position along the others."""
    places = list(jnp.indices(index.shape, sparse=True))
    places[dim % index.ndim] = index
    return tuple(places)


def _has_dimensions(input: Any, name: str) -> None:
    if not input.ndim:
        message = f"counterpart of {name} of a 0-dim tensor: jax.numpy needs a dimension to index"
        raise LackingError(message)


def getitem(input: Any, index: Any) -> Array:
    """Return an array indexed by integers, slices, masks and arrays."""
    found: Array = input[index]
    return found


def index_select(input: Any, dim: int, index: Any) -> Array:
    """Select slices."""
    _has_dimensions(input, "index_select")
    # torch keeps the dimension for a single 0-dim index, with size 1.
    return jnp.take(input, jnp.atleast_1d(index), axis=dim)


def index_add(input: Any, dim: int, index: Any, source: Any, alpha: Any = 1) -> Array:
    """Add slices to those at an index."""
    _has_dimensions(input, "index_add")
    given = source if alpha == 1 else source * jnp.asarray(alpha, source.dtype)
    return input.at[_rows(input, dim, index)].add(given)


def index_copy(input: Any, dim: int, index: Any, source: Any) -> Array:
    """Replace slices."""
    _has_dimensions(input, "index_copy")
    return input.at[_rows(input, dim, index)].set(source)


def index_fill(input: Any, dim: int, index: Any, value: Any) -> Array:
    """Fill slices with a number."""
    _has_dimensions(input, "index_fill")
    return input.at[_rows(input, dim, index)].set(jnp.asarray(value, input.dtype))


def index_put(input: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Array:
    """Replace elements, or add to them."""
    if any(index is None for index in indices):
        message = "counterpart of indices with None: x.at[...] takes arrays only here"
        raise LackingError(message)
    places = input.at[tuple(indices)]
    return places.add(values) if accumulate else places.set(values)


def gather(input: Any, dim: int, index: Any, sparse_grad: bool = False) -> Array:
    """Select elements along a dimension. The index may be shorter than the input in the other dimensions."""
    _has_dimensions(input, "gather")
    at = dim % input.ndim
    # JAX would broadcast the other dimensions where torch reads only the beginning of the input.
    cut = tuple(slice(None) if i == at else slice(size) for i, size in enumerate(index.shape))
    return jnp.take_along_axis(input[cut], index, axis=at)


def scatter(input: Any, dim: int, index: Any, src: Any = None, value: Any = None, reduce: str | None = None) -> Array:
    """Replace elements along a dimension."""
    _has_dimensions(input, "scatter")
    if reduce is not None:
        message = f"counterpart of reduce={reduce!r}; torch.scatter_add and torch.scatter_reduce have one"
        raise LackingError(message)
    given = src if value is None else value
    return input.at[_grid(index, dim)].set(_of_size(given, index) if is_array(given) else given)


def _of_size(source: Any, index: Any) -> Any:
    # torch reads only as many elements of the source as the index has.
    return source[tuple(slice(size) for size in index.shape)] if source.ndim else source


def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Array:
    """Add elements along a dimension."""
    _has_dimensions(input, "scatter_add")
    return input.at[_grid(index, dim)].add(_of_size(src, index))


def scatter_reduce(input: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Array:
    """Reduce elements along a dimension. JAX's scatters add, multiply, and take the maximum or minimum."""
    _has_dimensions(input, "scatter_reduce")
    if not include_self or reduce == "mean":
        message = (
            f"counterpart of reduce={reduce!r}, include_self={include_self}: x.at[...] has no mean, and always "
            "includes the element that it replaces"
        )
        raise LackingError(message)
    places, given = input.at[_grid(index, dim)], _of_size(src, index)
    calls = {"sum": places.add, "prod": places.multiply, "amax": places.max, "amin": places.min}
    return calls[reduce](given)


def select_scatter(input: Any, src: Any, dim: int, index: int) -> Array:
    """Replace one slice."""
    return input.at[_rows(input, dim, index)].set(src)


def masked_scatter(input: Any, mask: Any, source: Any) -> Array:
    """Replace elements where a mask is true, in order."""
    if mask.shape != input.shape:
        message = "counterpart of a mask with another shape than the array: jax.numpy.place needs the same"
        raise LackingError(message)
    return jnp.place(input, mask, source, inplace=False)


def masked_select(input: Any, mask: Any) -> Array:
    """Select elements by a mask."""
    x, chosen = jnp.broadcast_arrays(input, mask)
    return x[chosen]


def select(input: Any, dim: int, index: int) -> Array:
    """Select one slice."""
    return jax.lax.index_in_dim(input, index, axis=dim, keepdims=False)


def narrow(input: Any, dim: int, start: int, length: int) -> Array:
    """Select consecutive slices."""
    # A negative start plus the length may be 0, which would be the beginning and not the end.
    begin = start % input.shape[dim] if start < 0 else start
    return jax.lax.slice_in_dim(input, begin, begin + length, axis=dim)


def embedding(weight: Any, input: Any = None, indices: Any = None) -> Array:
    """Look up rows of a table. ``torch.embedding`` calls its input ``indices``."""
    return jnp.take(weight, input if indices is None else indices, axis=0)


# Sorting, searching and counting.


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

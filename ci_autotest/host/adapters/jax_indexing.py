"""Indexing: elements taken with ``take`` and ``take_along_axis``, put with the scatters behind ``x.at[...]``."""

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
    """Return the index of whole slices along a dimension."""
    return (*(slice(None),) * (dim % input.ndim), index)


def _grid(index: Any, dim: int) -> tuple[Any, ...]:
    """Return the index of each element of ``index`` with its own place in the other dimensions."""
    places = list(jnp.indices(index.shape, sparse=True))
    places[dim % index.ndim] = index
    return tuple(places)


def _has_dimensions(input: Any, name: str) -> None:
    if not input.ndim:
        message = f"counterpart of {name} of a 0-dim tensor: jax.numpy indexes dimensions"
        raise LackingError(message)


def getitem(input: Any, index: Any) -> Array:
    """Index with integers, slices, masks and arrays."""
    found: Array = input[index]
    return found


def index_select(input: Any, dim: int, index: Any) -> Array:
    """Take slices."""
    _has_dimensions(input, "index_select")
    return jnp.take(input, jnp.atleast_1d(index), axis=dim)


def index_add(input: Any, dim: int, index: Any, source: Any, alpha: Any = 1) -> Array:
    """Add slices to slices."""
    _has_dimensions(input, "index_add")
    given = source if alpha == 1 else source * jnp.asarray(alpha, source.dtype)
    return input.at[_rows(input, dim, index)].add(given)


def index_copy(input: Any, dim: int, index: Any, source: Any) -> Array:
    """Put slices."""
    _has_dimensions(input, "index_copy")
    return input.at[_rows(input, dim, index)].set(source)


def index_fill(input: Any, dim: int, index: Any, value: Any) -> Array:
    """Put a number into slices."""
    _has_dimensions(input, "index_fill")
    return input.at[_rows(input, dim, index)].set(jnp.asarray(value, input.dtype))


def index_put(input: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Array:
    """Put or add elements."""
    if any(index is None for index in indices):
        message = "counterpart of indices with None: jax.numpy has no full slice among arrays here"
        raise LackingError(message)
    places = input.at[tuple(indices)]
    return places.add(values) if accumulate else places.set(values)


def gather(input: Any, dim: int, index: Any, sparse_grad: bool = False) -> Array:
    """Take elements along a dimension; the other dimensions may be shorter than the input's."""
    _has_dimensions(input, "gather")
    at = dim % input.ndim
    cut = tuple(slice(None) if i == at else slice(size) for i, size in enumerate(index.shape))
    return jnp.take_along_axis(input[cut], index, axis=at)


def scatter(input: Any, dim: int, index: Any, src: Any = None, value: Any = None, reduce: str | None = None) -> Array:
    """Put elements along a dimension."""
    _has_dimensions(input, "scatter")
    if reduce is not None:
        message = f"counterpart of reduce={reduce!r}: torch.scatter_add and torch.scatter_reduce have a counterpart"
        raise LackingError(message)
    given = src if value is None else value
    return input.at[_grid(index, dim)].set(_of_size(given, index) if is_array(given) else given)


def _of_size(source: Any, index: Any) -> Any:
    return source[tuple(slice(size) for size in index.shape)] if source.ndim else source


def scatter_add(input: Any, dim: int, index: Any, src: Any) -> Array:
    """Add elements along a dimension."""
    _has_dimensions(input, "scatter_add")
    return input.at[_grid(index, dim)].add(_of_size(src, index))


def scatter_reduce(input: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Array:
    """Reduce elements along a dimension: JAX's scatters add, multiply, and take the maximum or minimum."""
    _has_dimensions(input, "scatter_reduce")
    if not include_self or reduce == "mean":
        message = (
            f"counterpart of reduce={reduce!r}, include_self={include_self}: x.at[...] has no mean, and always takes "
            "the element that is there"
        )
        raise LackingError(message)
    places, given = input.at[_grid(index, dim)], _of_size(src, index)
    calls = {"sum": places.add, "prod": places.multiply, "amax": places.max, "amin": places.min}
    return calls[reduce](given)


def select_scatter(input: Any, src: Any, dim: int, index: int) -> Array:
    """Put one slice."""
    return input.at[_rows(input, dim, index)].set(src)


def masked_scatter(input: Any, mask: Any, source: Any) -> Array:
    """Put elements in order where a mask is true."""
    if mask.shape != input.shape:
        message = "counterpart of a mask of another shape: jax.numpy.place wants the array's own"
        raise LackingError(message)
    return jnp.place(input, mask, source, inplace=False)


def masked_select(input: Any, mask: Any) -> Array:
    """Take what a mask chooses."""
    x, chosen = jnp.broadcast_arrays(input, mask)
    return x[chosen]


def select(input: Any, dim: int, index: int) -> Array:
    """Take one slice."""
    return jax.lax.index_in_dim(input, index, axis=dim, keepdims=False)


def narrow(input: Any, dim: int, start: int, length: int) -> Array:
    """Take neighbouring slices."""
    begin = start % input.shape[dim] if start < 0 else start
    return jax.lax.slice_in_dim(input, begin, begin + length, axis=dim)


def embedding(weight: Any, input: Any = None, indices: Any = None) -> Array:
    """Take rows of a table; torch.embedding calls its indices so."""
    return jnp.take(weight, input if indices is None else indices, axis=0)

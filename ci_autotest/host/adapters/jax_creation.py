"""Creation with PyTorch's default dtypes, float32 for floats and int64 for integers; shape, casts and copies."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ci_autotest.host.adapters.jax_promotion import promoted, result_type
from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array


def _default(dtype: Any, *numbers: Any) -> Any:
    if dtype is not None:
        return dtype
    # Before integers, because in Python `True` is the integer 1.
    if all(isinstance(number, bool) for number in numbers):
        return jnp.bool_
    return jnp.int64 if all(isinstance(number, int) for number in numbers) else jnp.float32


def zeros(size: Sequence[int], dtype: Any = None, device: Any = None) -> Array:
    """Return zeros."""
    return jnp.zeros(tuple(size), dtype or jnp.float32)


def ones(size: Sequence[int], dtype: Any = None, device: Any = None) -> Array:
    """Return ones."""
    return jnp.ones(tuple(size), dtype or jnp.float32)


def full(size: Sequence[int], fill_value: Any, dtype: Any = None, device: Any = None) -> Array:
    """Return an array filled with one number."""
    return jnp.full(tuple(size), fill_value, _default(dtype, fill_value))


def new_zeros(input: Any, size: Sequence[int], dtype: Any = None, device: Any = None) -> Array:
    """Return zeros with a tensor's dtype."""
    return jnp.zeros(tuple(size), dtype or input.dtype)


def new_ones(input: Any, size: Sequence[int], dtype: Any = None, device: Any = None) -> Array:
    """Return ones with a tensor's dtype."""
    return jnp.ones(tuple(size), dtype or input.dtype)


def zeros_like(input: Any, dtype: Any = None, device: Any = None) -> Array:
    """Return zeros with a tensor's shape."""
    return jnp.zeros_like(input, dtype=dtype)


def ones_like(input: Any, dtype: Any = None, device: Any = None) -> Array:
    """Return ones with a tensor's shape."""
    return jnp.ones_like(input, dtype=dtype)


def full_like(input: Any, fill_value: Any, dtype: Any = None, device: Any = None) -> Array:
    """Return an array with a tensor's shape, filled with one number."""
    return jnp.full_like(input, fill_value, dtype=dtype)


def arange(start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None, device: Any = None) -> Array:
    """Return a range."""
    first, last = (0, start) if end is None else (start, end)
    return jnp.arange(first, last, step, dtype=_default(dtype, first, last, step))


def linspace(start: Any, end: Any, steps: int, dtype: Any = None, device: Any = None) -> Array:
    """Return evenly spaced numbers."""
    return jnp.linspace(start, end, steps, dtype=dtype or jnp.float32)


def logspace(start: Any, end: Any, steps: int, base: float = 10.0, dtype: Any = None, device: Any = None) -> Array:
    """Return numbers spaced evenly on a logarithmic scale."""
    return jnp.logspace(start, end, steps, base=base, dtype=dtype or jnp.float32)


def eye(n: int, m: int | None = None, dtype: Any = None, device: Any = None) -> Array:
    """Return ones on the diagonal."""
    return jnp.eye(n, m, dtype=dtype or jnp.float32)


def tril_indices(row: int, col: int, offset: int = 0, dtype: Any = None, device: Any = None) -> Array:
    """Return the indices of a lower triangle."""
    # JAX takes the offset before the number of columns, as numpy does.
    return jnp.stack(jnp.tril_indices(row, offset, col)).astype(dtype or jnp.int64)


def triu_indices(row: int, col: int, offset: int = 0, dtype: Any = None, device: Any = None) -> Array:
    """Return the indices of an upper triangle."""
    return jnp.stack(jnp.triu_indices(row, offset, col)).astype(dtype or jnp.int64)


def one_hot(input: Any, num_classes: int = -1) -> Array:
    """Return the one-hot encoding of classes."""
    # With -1 the shape depends on the data, so that the call is not compiled.
    count = int(jnp.max(input)) + 1 if num_classes == -1 else num_classes
    return jax.nn.one_hot(input, count, dtype=jnp.int64)


def fftfreq(n: int, d: float = 1.0, dtype: Any = None, device: Any = None) -> Array:
    """Return the sample frequencies of a discrete Fourier transform."""
    return jnp.fft.fftfreq(n, d, dtype=dtype or jnp.float32)


# Shape: joining, permuting, reshaping, splitting and padding; casts and copies.


_PAD_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def cat(tensors: Sequence[Any], dim: int = 0) -> Array:
    """Concatenate along a dimension. PyTorch ignores tensors of shape (0,)."""
    dtype = result_type(*tensors)
    # If all of them are empty, the result is as well.
    kept = [tensor for tensor in tensors if tensor.shape != (0,)] or list(tensors)
    return jnp.concatenate([tensor.astype(dtype) for tensor in kept], axis=dim)


def stack(tensors: Sequence[Any], dim: int = 0) -> Array:
    """Stack along a new dimension."""
    return jnp.stack(promoted(*tensors), axis=dim)


def hstack(tensors: Sequence[Any]) -> Array:
    """Concatenate along the second dimension."""
    return jnp.hstack(promoted(*tensors))


def vstack(tensors: Sequence[Any]) -> Array:
    """Concatenate along the first dimension."""
    return jnp.vstack(promoted(*tensors))


def transpose(input: Any, dim0: int, dim1: int) -> Array:
    """Swap two dimensions."""
    return jnp.swapaxes(input, dim0, dim1) if input.ndim else input


def movedim(input: Any, source: Any, destination: Any) -> Array:
    """Move dimensions."""
    return jnp.moveaxis(input, source, destination) if input.ndim else input


def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Array:
    """Flatten consecutive dimensions into one."""
    if not input.ndim:
        return jnp.reshape(input, (1,))
    return jax.lax.collapse(input, start_dim % input.ndim, end_dim % input.ndim + 1)


def unflatten(input: Any, dim: int, sizes: Sequence[int]) -> Array:
    """Split one dimension into several."""
    at = dim % input.ndim
    # The product has the -1 as a factor, so that its negative is that of the other sizes.
    known = -math.prod(sizes)
    given = [input.shape[at] // known if size == -1 else size for size in sizes]
    return jnp.reshape(input, (*input.shape[:at], *given, *input.shape[at + 1 :]))


def squeeze(input: Any, dim: int | Sequence[int] | None = None) -> Array:
    """Remove dimensions of size 1. Named dimensions of another size stay."""
    if dim is None or not input.ndim:
        return jnp.squeeze(input)
    # JAX refuses to remove a dimension of another size, which torch leaves alone.
    dims = {axis % input.ndim for axis in ((dim,) if isinstance(dim, int) else dim)}
    return jnp.squeeze(input, tuple(axis for axis in dims if input.shape[axis] == 1))


def expand(input: Any, size: Sequence[int], implicit: bool = False) -> Array:
    """Broadcast to a shape, where -1 keeps a dimension."""
    before = len(size) - input.ndim
    shape = [input.shape[i - before] if wanted == -1 else wanted for i, wanted in enumerate(size)]
    return jnp.broadcast_to(input, shape)


def split(input: Any, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    """Split into parts of one size, or of the given sizes."""
    size = input.shape[dim]
    if isinstance(split_size_or_sections, int):
        places = list(range(split_size_or_sections, size, split_size_or_sections)) if size else []
    else:
        places = list(itertools.accumulate(split_size_or_sections))[:-1]
    return tuple(jnp.split(input, places, axis=dim))


def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Array, ...]:
    """Split into at most that many parts of one size."""
    return split(input, max(-(-input.shape[dim] // chunks), 1), dim) if input.shape[dim] else _empty(input, chunks, dim)


def _empty(input: Any, chunks: int, dim: int) -> tuple[Array, ...]:
    # Of an empty dimension torch returns as many parts as were asked for.
    return tuple(jnp.split(input, [0] * (chunks - 1), axis=dim))


def meshgrid(tensors: Sequence[Any], indexing: str = "ij") -> tuple[Array, ...]:
    """Return the coordinates of a grid."""
    return tuple(jnp.meshgrid(*tensors, indexing=indexing))


def flip(input: Any, dims: int | Sequence[int]) -> Array:
    """Reverse dimensions."""
    return jnp.flip(input, dims if isinstance(dims, int) else tuple(dims))


def pad(input: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Array:
    """Pad or crop the last dimensions. PyTorch lists the last dimension first."""
    pairs = [(0, 0)] * (input.ndim - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    if mode == "constant":
        filling = jnp.asarray(value or 0, input.dtype)
        return jax.lax.pad(input, filling, [(before, after, 0) for before, after in pairs])
    if min(map(min, pairs)) < 0:
        message = f"counterpart of pad={list(pad)}: jax.numpy.pad does not crop"
        raise LackingError(message)
    return jnp.pad(input, pairs, mode=_PAD_MODES[mode])


def to(
    input: Any, dtype: Any = None, device: Any = None, other: Any = None, non_blocking: bool = False, copy: bool = False
) -> Array:
    """Cast. The adapter has one device."""
    wanted = other.dtype if other is not None else dtype
    return input.astype(wanted) if wanted is not None else input


def item(input: Any) -> Any:
    """Return the only element of an array as a number."""
    return input.item()

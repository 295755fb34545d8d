"""Creation: PyTorch's default dtypes, float32 for floats and int64 for integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

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

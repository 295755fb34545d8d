"""Reductions and scans: PyTorch's dimensions, which a 0-dim array has too, and its dtypes of sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp

from ci_autotest.host.adapters.jax_promotion import floating, is_integral
from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Array

Axis: TypeAlias = "int | Sequence[int] | None"


def _axis_of(input: Any, dim: Axis) -> Any:
    """Return the axes that ``dim`` names: none and an empty tuple mean all; a 0-dim array has none to name."""
    if dim is None or input.ndim == 0 or (not isinstance(dim, int) and not len(dim)):
        return None
    return dim if isinstance(dim, int) else tuple(dim)


def _along(function: Callable[[Any], Array], input: Any) -> Array:
    """Call a function that wants at least one dimension."""
    return function(input) if input.ndim else jnp.reshape(function(jnp.reshape(input, (1,))), ())


def _total(input: Any, dtype: Any) -> Any:
    """Return the dtype of a sum or product: int64 for integers, unless it is given."""
    return jnp.int64 if dtype is None and is_integral(input) else dtype


def sum(input: Any, dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Sum over dimensions."""
    return jnp.sum(input, _axis_of(input, dim), dtype=_total(input, dtype), keepdims=keepdim)


def nansum(input: Any, dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Sum what is a number."""
    return jnp.nansum(input, _axis_of(input, dim), dtype=_total(input, dtype), keepdims=keepdim)


def mean(input: Any, dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Average over dimensions."""
    return jnp.mean(input, _axis_of(input, dim), dtype=dtype, keepdims=keepdim)


def prod(input: Any, dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Multiply over a dimension."""
    return jnp.prod(input, _axis_of(input, dim), dtype=_total(input, dtype), keepdims=keepdim)


def var(input: Any, dim: Axis = None, correction: Any = 1, keepdim: bool = False, unbiased: bool = True) -> Array:
    """Return the variance."""
    given = correction if unbiased else 0
    return jnp.var(input, _axis_of(input, dim), correction=given, keepdims=keepdim)


def std(input: Any, dim: Axis = None, correction: Any = 1, keepdim: bool = False, unbiased: bool = True) -> Array:
    """Return the standard deviation."""
    given = correction if unbiased else 0
    return jnp.std(input, _axis_of(input, dim), correction=given, keepdims=keepdim)


def var_mean(
    input: Any, dim: Axis = None, correction: Any = 1, keepdim: bool = False, unbiased: bool = True
) -> tuple[Array, Array]:
    """Return the variance and the mean."""
    return var(input, dim, correction, keepdim, unbiased), mean(input, dim, keepdim)


def max(input: Any, dim: int | None = None, keepdim: bool = False, other: Any = None) -> Array | tuple[Array, Array]:
    """Return the maximum, or along a dimension the maxima and where they are: there the gradient goes."""
    return _extreme(input, (dim, keepdim, other), jnp.max, jnp.argmax)


def min(input: Any, dim: int | None = None, keepdim: bool = False, other: Any = None) -> Array | tuple[Array, Array]:
    """Return the minimum, or along a dimension the minima and where they are: there the gradient goes."""
    return _extreme(input, (dim, keepdim, other), jnp.min, jnp.argmin)


def _extreme(input: Any, how: tuple[Any, bool, Any], whole: Any, place: Any) -> Any:
    dim, keepdim, other = how
    if other is not None:
        message = "counterpart of torch.max and torch.min with two tensors: torch.maximum and torch.minimum have theirs"
        raise LackingError(message)
    if dim is None:
        return whole(input)
    if input.ndim == 0:
        return input, jnp.zeros((), jnp.int64)
    index = place(input, axis=dim, keepdims=True)
    values = jnp.take_along_axis(input, index, axis=dim)
    return (values, index) if keepdim else (jnp.squeeze(values, dim), jnp.squeeze(index, dim))


def amax(input: Any, dim: Axis = None, keepdim: bool = False) -> Array:
    """Return the maximum; ties share the gradient."""
    return jnp.max(input, _axis_of(input, dim), keepdims=keepdim)


def amin(input: Any, dim: Axis = None, keepdim: bool = False) -> Array:
    """Return the minimum; ties share the gradient."""
    return jnp.min(input, _axis_of(input, dim), keepdims=keepdim)


def aminmax(input: Any, dim: int | None = None, keepdim: bool = False) -> tuple[Array, Array]:
    """Return minimum and maximum."""
    return amin(input, dim, keepdim), amax(input, dim, keepdim)


def argmax(input: Any, dim: int | None = None, keepdim: bool = False) -> Array:
    """Return where the maximum is, the first of ties."""
    return jnp.argmax(input, _axis_of(input, dim), keepdims=keepdim)


def argmin(input: Any, dim: int | None = None, keepdim: bool = False) -> Array:
    """Return where the minimum is, the first of ties."""
    return jnp.argmin(input, _axis_of(input, dim), keepdims=keepdim)


def quantile(input: Any, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear") -> Array:
    """Return quantiles."""
    fraction = jnp.asarray(q, input.dtype)
    return jnp.quantile(input, fraction, _axis_of(input, dim), method=interpolation, keepdims=keepdim)


def vector_norm(input: Any, ord: Any = 2, dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Return the norm of vectors."""
    if input.ndim == 0:
        message = "counterpart of a 0-dim tensor: jax.numpy.linalg.vector_norm wants dimensions"
        raise LackingError(message)
    x = input if dtype is None else input.astype(dtype)
    return jnp.linalg.vector_norm(x, axis=_axis_of(x, dim), keepdims=keepdim, ord=ord)


def norm(input: Any, p: Any = "fro", dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Return the norm of vectors; ``fro`` is the 2-norm of what the dimensions hold."""
    if p == "nuc":
        message = "counterpart of p='nuc': torch.linalg.matrix_norm has its counterpart"
        raise LackingError(message)
    return vector_norm(input, 2 if p == "fro" else p, dim, keepdim, dtype)


def logsumexp(input: Any, dim: Axis, keepdim: bool = False) -> Array:
    """Return the logarithm of the sum of exponentials."""
    x = floating(input)
    return jsp.logsumexp(x, axis=_axis_of(x, dim), keepdims=keepdim)


def all(input: Any, dim: Axis = None, keepdim: bool = False) -> Array:
    """Whether all are true; of uint8 the answer is uint8."""
    return _truth(jnp.all, input, dim, keepdim)


def any(input: Any, dim: Axis = None, keepdim: bool = False) -> Array:
    """Whether one is true; of uint8 the answer is uint8."""
    return _truth(jnp.any, input, dim, keepdim)


def _truth(function: Any, input: Any, dim: Axis, keepdim: bool) -> Array:
    found: Array = function(input, _axis_of(input, dim), keepdims=keepdim)
    return found.astype(jnp.uint8) if input.dtype == jnp.uint8 else found


def count_nonzero(input: Any, dim: Axis = None) -> Array:
    """Count what is not zero."""
    return jnp.count_nonzero(input, _axis_of(input, dim))


def cumsum(input: Any, dim: int, dtype: Any = None) -> Array:
    """Return running sums."""
    return _along(lambda x: jnp.cumsum(x, dim, dtype=_total(input, dtype)), input)


def cumprod(input: Any, dim: int, dtype: Any = None) -> Array:
    """Return running products."""
    return _along(lambda x: jnp.cumprod(x, dim, dtype=_total(input, dtype)), input)


def logcumsumexp(input: Any, dim: int) -> Array:
    """Return running logarithms of sums of exponentials."""
    return _along(lambda x: jax.lax.cumlogsumexp(x, axis=dim % x.ndim), floating(input))


def softmax(input: Any, dim: int | None = None, dtype: Any = None, _stacklevel: int = 3) -> Array:
    """Return the softmax."""
    return _softened(jax.nn.softmax, input, dim, dtype)


def log_softmax(input: Any, dim: int | None = None, dtype: Any = None, _stacklevel: int = 3) -> Array:
    """Return the logarithm of the softmax."""
    return _softened(jax.nn.log_softmax, input, dim, dtype)


def _softened(function: Any, input: Any, dim: int | None, dtype: Any) -> Array:
    if dim is None:
        message = "counterpart of dim=None: jax.nn has no dimension that follows from the rank"
        raise LackingError(message)
    x = input if dtype is None else input.astype(dtype)
    return _along(lambda value: function(value, axis=dim), x)

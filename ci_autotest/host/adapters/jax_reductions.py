"""Reductions and scans. In PyTorch a 0-dim array has dimension 0, and the sum of integers is int64."""

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
    """Return JAX's axes for ``dim``; ``None`` for all of them, as ``()`` means in PyTorch, and for a 0-dim array."""
    if dim is None or input.ndim == 0 or (not isinstance(dim, int) and not len(dim)):
        return None
    return dim if isinstance(dim, int) else tuple(dim)


def _along(function: Callable[[Any], Array], input: Any) -> Array:
    """Call a function that needs at least one dimension."""
    return function(input) if input.ndim else jnp.reshape(function(jnp.reshape(input, (1,))), ())


def _total(input: Any, dtype: Any) -> Any:
    """Return the dtype of a sum or product: as given, else int64 for integers."""
    return jnp.int64 if dtype is None and is_integral(input) else dtype


def sum(input: Any, dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Sum over dimensions."""
    return jnp.sum(input, _axis_of(input, dim), dtype=_total(input, dtype), keepdims=keepdim)


def nansum(input: Any, dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Sum the elements that are not NaN."""
    return jnp.nansum(input, _axis_of(input, dim), dtype=_total(input, dtype), keepdims=keepdim)


def mean(input: Any, dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Average over dimensions."""
    return jnp.mean(input, _axis_of(input, dim), dtype=dtype, keepdims=keepdim)


def prod(input: Any, dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Multiply over a dimension."""
    return jnp.prod(input, _axis_of(input, dim), dtype=_total(input, dtype), keepdims=keepdim)


def var(input: Any, dim: Axis = None, correction: Any = 1, keepdim: bool = False, unbiased: bool = True) -> Array:
    """Return the variance."""
    # `unbiased=False` is torch's older spelling of `correction=0`.
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
    """Return the maximum, or along a dimension the maxima and their indices, which also receive the gradient."""
    return _extreme(input, (dim, keepdim, other), jnp.max, jnp.argmax)


def min(input: Any, dim: int | None = None, keepdim: bool = False, other: Any = None) -> Array | tuple[Array, Array]:
    """Return the minimum, or along a dimension the minima and their indices, which also receive the gradient."""
    return _extreme(input, (dim, keepdim, other), jnp.min, jnp.argmin)


def _extreme(input: Any, options: tuple[Any, bool, Any], whole: Any, place: Any) -> Any:
    dim, keepdim, other = options
    if other is not None:
        message = "counterpart of torch.max and torch.min with two tensors; torch.maximum and torch.minimum have one"
        raise LackingError(message)
    if dim is None:
        return whole(input)
    # torch gives a 0-dim tensor the dimension 0, which JAX refuses.
    if input.ndim == 0:
        return input, jnp.zeros((), jnp.int64)
    # By the index, because torch's gradient goes to that element, and JAX's maximum shares it among ties.
    index = place(input, axis=dim, keepdims=True)
    values = jnp.take_along_axis(input, index, axis=dim)
    return (values, index) if keepdim else (jnp.squeeze(values, dim), jnp.squeeze(index, dim))


def amax(input: Any, dim: Axis = None, keepdim: bool = False) -> Array:
    """Return the maximum. Ties share the gradient."""
    return jnp.max(input, _axis_of(input, dim), keepdims=keepdim)


def amin(input: Any, dim: Axis = None, keepdim: bool = False) -> Array:
    """Return the minimum. Ties share the gradient."""
    return jnp.min(input, _axis_of(input, dim), keepdims=keepdim)


def aminmax(input: Any, dim: int | None = None, keepdim: bool = False) -> tuple[Array, Array]:
    """Return the minimum and the maximum."""
    return amin(input, dim, keepdim), amax(input, dim, keepdim)


def argmax(input: Any, dim: int | None = None, keepdim: bool = False) -> Array:
    """Return the index of the maximum, the first of ties."""
    return jnp.argmax(input, _axis_of(input, dim), keepdims=keepdim)


def argmin(input: Any, dim: int | None = None, keepdim: bool = False) -> Array:
    """Return the index of the minimum, the first of ties."""
    return jnp.argmin(input, _axis_of(input, dim), keepdims=keepdim)


def quantile(input: Any, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear") -> Array:
    """Return quantiles."""
    # PyTorch computes in the input's dtype, also if the fraction is a Python number.
    fraction = jnp.asarray(q, input.dtype)
    return jnp.quantile(input, fraction, _axis_of(input, dim), method=interpolation, keepdims=keepdim)


def vector_norm(input: Any, ord: Any = 2, dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Return the norm of vectors."""
    if input.ndim == 0:
        message = "counterpart of a 0-dim tensor: jax.numpy.linalg.vector_norm needs a dimension"
        raise LackingError(message)
    x = input if dtype is None else input.astype(dtype)
    return jnp.linalg.vector_norm(x, axis=_axis_of(x, dim), keepdims=keepdim, ord=ord)


def norm(input: Any, p: Any = "fro", dim: Axis = None, keepdim: bool = False, dtype: Any = None) -> Array:
    """Return the norm of vectors. ``fro`` is the 2-norm over the given dimensions."""
    if p == "nuc":
        message = "counterpart of p='nuc'; torch.linalg.matrix_norm has one"
        raise LackingError(message)
    return vector_norm(input, 2 if p == "fro" else p, dim, keepdim, dtype)


def logsumexp(input: Any, dim: Axis, keepdim: bool = False) -> Array:
    """Return the logarithm of the sum of exponentials."""
    x = floating(input)
    return jsp.logsumexp(x, axis=_axis_of(x, dim), keepdims=keepdim)


def all(input: Any, dim: Axis = None, keepdim: bool = False) -> Array:
    """Whether all elements are true; of uint8 as uint8."""
    return _truth(jnp.all, input, dim, keepdim)


def any(input: Any, dim: Axis = None, keepdim: bool = False) -> Array:
    """Whether any element is true; of uint8 as uint8."""
    return _truth(jnp.any, input, dim, keepdim)


def _truth(function: Any, input: Any, dim: Axis, keepdim: bool) -> Array:
    found: Array = function(input, _axis_of(input, dim), keepdims=keepdim)
    return found.astype(jnp.uint8) if input.dtype == jnp.uint8 else found


def count_nonzero(input: Any, dim: Axis = None) -> Array:
    """Count the elements that are not zero."""
    return jnp.count_nonzero(input, _axis_of(input, dim))


def cumsum(input: Any, dim: int, dtype: Any = None) -> Array:
    """Return cumulative sums."""
    return _along(lambda x: jnp.cumsum(x, dim, dtype=_total(input, dtype)), input)


def cumprod(input: Any, dim: int, dtype: Any = None) -> Array:
    """Return cumulative products."""
    return _along(lambda x: jnp.cumprod(x, dim, dtype=_total(input, dtype)), input)


def logcumsumexp(input: Any, dim: int) -> Array:
    """Return cumulative logarithms of sums of exponentials."""
    # `jax.lax` refuses a negative axis.
    return _along(lambda x: jax.lax.cumlogsumexp(x, axis=dim % x.ndim), floating(input))


def softmax(input: Any, dim: int | None = None, dtype: Any = None, _stacklevel: int = 3) -> Array:
    """Return the softmax."""
    return _softmax(jax.nn.softmax, input, dim, dtype)


def log_softmax(input: Any, dim: int | None = None, dtype: Any = None, _stacklevel: int = 3) -> Array:
    """Return the logarithm of the softmax."""
    return _softmax(jax.nn.log_softmax, input, dim, dtype)


def _softmax(function: Any, input: Any, dim: int | None, dtype: Any) -> Array:
    if dim is None:
        message = "counterpart of dim=None: jax.nn does not choose a dimension by the rank"
        raise LackingError(message)
    x = input if dtype is None else input.astype(dtype)
    return _along(lambda value: function(value, axis=dim), x)

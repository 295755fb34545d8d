"""Arithmetic on several values, where PyTorch's type promotion alone does not give the call of JAX; and matrices.

Operators that need promotion and nothing else have no function here: their rows say ``promote``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import jax.scipy.linalg as jsl

from ci_autotest.host.adapters.jax_promotion import common_float, is_array, is_integral, promoted, result_type
from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array


def div(input: Any, other: Any, rounding_mode: str | None = None) -> Array:
    """Divide, and round down if asked; JAX has no division that rounds towards zero."""
    if rounding_mode == "floor":
        return jnp.floor_divide(*promoted(input, other))
    if rounding_mode is not None:
        message = f"counterpart of rounding_mode={rounding_mode!r}: jax.numpy has only true_divide and floor_divide"
        raise LackingError(message)
    return jnp.true_divide(common_float(input, other), common_float(other, input))


def pow(input: Any, exponent: Any) -> Array:
    """Raise to a power. An integer exponent stays a Python number, because then JAX knows the derivative everywhere."""
    if is_array(input) and type(exponent) is int and not (is_integral(input) and exponent < 0):
        return jnp.power(input, exponent)
    base, power = promoted(input, exponent)
    return jnp.power(base, power)


def clamp(input: Any, min: Any = None, max: Any = None) -> Array:
    """Limit to the range between two bounds."""
    dtype = result_type(*(value for value in (input, min, max) if value is not None))
    low, high = (None if bound is None else jnp.asarray(bound, dtype) for bound in (min, max))
    return jnp.clip(input.astype(dtype), low, high)


def where(condition: Any, input: Any, other: Any) -> Array:
    """Choose elements by a mask."""
    one, two = promoted(input, other)
    return jnp.where(condition, one, two)


def masked_fill(input: Any, mask: Any, value: Any) -> Array:
    """Replace elements where a mask is true. The number takes the array's dtype."""
    return jnp.where(mask, jnp.asarray(value, input.dtype), input)


# Matrices: factorizations and solvers whose conventions differ by more than names.


def cholesky(input: Any, upper: bool = False) -> Array:
    """Factorize a real matrix. The gradient of a complex one is not unique: its anti-Hermitian part is undefined."""
    if jnp.issubdtype(input.dtype, jnp.complexfloating):
        message = "complex Cholesky factor with PyTorch's gradient, whose anti-Hermitian part is undefined"
        raise LackingError(message)
    return jnp.linalg.cholesky(input, upper=upper)


def cholesky_solve(input: Any, input2: Any, upper: bool = False) -> Array:
    """Solve a linear system by a Cholesky factor."""
    # JAX's flag says whether the factor is the lower one.
    return jsl.cho_solve((input2, not upper), input)


def solve_triangular(
    input: Any,
    B: Any,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Array:
    """Solve a triangular system."""
    if not left:
        message = "counterpart of left=False: jax.scipy.linalg.solve_triangular solves from the left only"
        raise LackingError(message)
    return jsl.solve_triangular(input, B, lower=not upper, unit_diagonal=unitriangular)


def lu_factor(A: Any, pivot: bool = True) -> tuple[Array, Array]:
    """Factorize with pivoting. PyTorch counts the pivots from one."""
    if not pivot:
        message = "counterpart of pivot=False: jax.scipy.linalg.lu_factor always pivots"
        raise LackingError(message)
    factors, pivots = jsl.lu_factor(A)
    return factors, pivots + 1


def vander(x: Any, N: int | None = None) -> Array:
    """Return the Vandermonde matrix of a vector, with ascending powers."""
    if x.ndim != 1:
        message = "counterpart of a batch: jax.numpy.vander takes one vector only"
        raise LackingError(message)
    return jnp.vander(x, N, increasing=True)


def matrix_norm(input: Any, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False) -> Array:
    """Return the norm of matrices, over the last two dimensions."""
    if tuple(dim) != (-2, -1):
        message = f"counterpart of dim={tuple(dim)}: jax.numpy.linalg.matrix_norm takes the last two dimensions only"
        raise LackingError(message)
    return jnp.linalg.matrix_norm(input, keepdims=keepdim, ord=ord)


def trace(input: Any) -> Array:
    """Sum the diagonal. The sum of integers is int64."""
    dtype = None if jnp.issubdtype(input.dtype, jnp.inexact) else jnp.int64
    return jnp.trace(input, dtype=dtype)

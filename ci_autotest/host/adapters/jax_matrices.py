"""Matrices: factorizations and solutions whose conventions differ by more than names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import jax.scipy.linalg as jsl

from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array


def cholesky(input: Any, upper: bool = False) -> Array:
    """Factorize; a complex gradient is refused with it, for it is defined but for what is not Hermitian."""
    if jnp.issubdtype(input.dtype, jnp.complexfloating):
        message = "counterpart of a complex Cholesky factor whose gradient is PyTorch's where that is free"
        raise LackingError(message)
    return jnp.linalg.cholesky(input, upper=upper)


def cholesky_solve(input: Any, input2: Any, upper: bool = False) -> Array:
    """Solve with a Cholesky factor."""
    return jsl.cho_solve((input2, not upper), input)


def solve_triangular(
    input: Any,
    B: Any,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Array:
    """Solve with a triangular matrix."""
    if not left:
        message = "counterpart of left=False: jax.scipy.linalg.solve_triangular solves from the left"
        raise LackingError(message)
    return jsl.solve_triangular(input, B, lower=not upper, unit_diagonal=unitriangular)


def lu_factor(A: Any, pivot: bool = True) -> tuple[Array, Array]:
    """Factorize with row exchanges, which PyTorch counts from one."""
    if not pivot:
        message = "counterpart of pivot=False: jax.scipy.linalg.lu_factor exchanges rows"
        raise LackingError(message)
    factors, exchanges = jsl.lu_factor(A)
    return factors, exchanges + 1


def vander(x: Any, N: int | None = None) -> Array:
    """Return powers, ascending."""
    if x.ndim != 1:
        message = "counterpart of a batch: jax.numpy.vander takes one vector"
        raise LackingError(message)
    return jnp.vander(x, N, increasing=True)


def matrix_norm(input: Any, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False) -> Array:
    """Return the norm of matrices."""
    if tuple(dim) != (-2, -1):
        message = f"counterpart of dim={tuple(dim)}: jax.numpy.linalg.matrix_norm takes the last two"
        raise LackingError(message)
    return jnp.linalg.matrix_norm(input, keepdims=keepdim, ord=ord)


def trace(input: Any) -> Array:
    """Sum the diagonal, integers as int64."""
    dtype = None if jnp.issubdtype(input.dtype, jnp.inexact) else jnp.int64
    return jnp.trace(input, dtype=dtype)

"""Matrices: factorizations and solutions whose conventions differ by more than names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import jax.scipy.linalg as jsl

from ci_autotest.execute.refusal import NoCounterpart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jax import Array


def cholesky(input: Any, upper: bool = False) -> Array:
    """Factorize; one triangle is read, and nothing is averaged."""
    return jnp.linalg.cholesky(input, upper=upper)


def cholesky_solve(input: Any, L: Any, upper: bool = False) -> Array:  # noqa: N803 - torch's name
    """Solve with a Cholesky factor."""
    return jsl.cho_solve((L, not upper), input)


def solve_triangular(
    input: Any, B: Any, upper: bool, left: bool = True, unitriangular: bool = False  # noqa: N803 - torch's name
) -> Array:
    """Solve with a triangular matrix."""
    if not left:
        message = "left=False: jax.scipy.linalg.solve_triangular solves from the left"
        raise NoCounterpart(message)
    return jsl.solve_triangular(input, B, lower=not upper, unit_diagonal=unitriangular)


def lu_factor(A: Any, pivot: bool = True) -> tuple[Array, Array]:  # noqa: N803 - torch's name
    """Factorize with row exchanges, which PyTorch counts from one."""
    if not pivot:
        message = "pivot=False: jax.scipy.linalg.lu_factor exchanges rows"
        raise NoCounterpart(message)
    factors, exchanges = jsl.lu_factor(A)
    return factors, exchanges + 1


def lstsq(input: Any, B: Any, rcond: float | None = None) -> tuple[Array, ...]:  # noqa: N803 - torch's name
    """Solve in the least-squares sense."""
    if input.ndim != 2:  # noqa: PLR2004 - a matrix
        message = "a batch: jax.numpy.linalg.lstsq takes one matrix"
        raise NoCounterpart(message)
    return jnp.linalg.lstsq(input, B, rcond=rcond)


def vander(x: Any, N: int | None = None) -> Array:  # noqa: N803 - torch's name
    """Return powers, ascending."""
    if x.ndim != 1:
        message = "a batch: jax.numpy.vander takes one vector"
        raise NoCounterpart(message)
    return jnp.vander(x, N, increasing=True)


def matrix_norm(A: Any, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False) -> Array:  # noqa: N803
    """Return the norm of matrices."""
    if tuple(dim) != (-2, -1):
        message = f"dim={tuple(dim)}: jax.numpy.linalg.matrix_norm takes the last two"
        raise NoCounterpart(message)
    return jnp.linalg.matrix_norm(A, keepdims=keepdim, ord=ord)


def trace(input: Any) -> Array:
    """Sum the diagonal, integers as int64."""
    dtype = None if jnp.issubdtype(input.dtype, jnp.inexact) else jnp.int64
    return jnp.trace(input, dtype=dtype)

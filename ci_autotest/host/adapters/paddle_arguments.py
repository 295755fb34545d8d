"""Adapters of single arguments and results between PyTorch and Paddle."""

from __future__ import annotations

from typing import Any

import paddle

from ci_autotest.host.frameworks.protocol import LackingError


def transpose(weight: Any) -> Any:
    """Return a matrix of shape ``(out, in)`` as ``(in, out)``."""
    return paddle.transpose(weight, [1, 0])


def row(bias: Any) -> Any:
    """Return a vector of shape ``(out,)`` as ``(1, out)``."""
    return bias if bias is None else paddle.unsqueeze(bias, 0)


def to_int32(value: Any) -> Any:
    """Return an integer tensor as int32."""
    return paddle.cast(value, "int32")


def to_int64(value: Any) -> Any:
    """Return a tensor of whole numbers as int64."""
    return paddle.cast(value, "int64")


def flat(weight: Any) -> Any:
    """Return a weight over several dimensions as a vector."""
    return weight if weight is None else paddle.reshape(weight, [-1])


def widened(value: Any) -> Any:
    """Return whole numbers as int64, others as they are."""
    return paddle.cast(value, "int64") if paddle.is_integer(value) else value


def wide_indices(found: Any) -> Any:
    """Return what pooling gives, indices as int64: Paddle documents int32 (``max_unpool2d``)."""
    return (found[0], paddle.cast(found[1], "int64")) if isinstance(found, tuple | list) else found


def vector(value: Any) -> Any:
    """Return a tensor of one dimension; others have no counterpart."""
    return _of_rank(value, 1)


def batch_1d(value: Any) -> Any:
    """Return a batch of lines; one alone has no counterpart."""
    return _of_rank(value, 3)


def batch_2d(value: Any) -> Any:
    """Return a batch of planes; one alone has no counterpart."""
    return _of_rank(value, 4)


def batch_3d(value: Any) -> Any:
    """Return a batch of volumes; one alone has no counterpart."""
    return _of_rank(value, 5)


def _of_rank(value: Any, ndim: int) -> Any:
    if value.ndim != ndim:
        message = f"form for an input of {value.ndim} dimensions: it documents {ndim}"
        raise LackingError(message)
    return value


def slope(value: float) -> float:
    """Return an upper bound of slopes; above 1 it has no counterpart."""
    if value > 1:
        message = f"slope above 1, here {value}"
        raise LackingError(message)
    return value

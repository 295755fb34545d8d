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
    """Return an integer tensor as int64."""
    return paddle.cast(value, "int64")


def lengths(value: Any) -> Any:
    """Return lengths that may be a list of numbers as a tensor of int64."""
    return value if isinstance(value, paddle.Tensor) else paddle.to_tensor(list(value), dtype="int64")


def flat(weight: Any) -> Any:
    """Return a weight with several dimensions as a vector."""
    return weight if weight is None else paddle.reshape(weight, [-1])


def widened(value: Any) -> Any:
    """Return an integer tensor as int64, and others unchanged."""
    return paddle.cast(value, "int64") if paddle.is_integer(value) else value


def wide_indices(found: Any) -> Any:
    """Return a result of pooling with its indices as int64; Paddle documents int32 (``max_unpool2d``)."""
    return (found[0], paddle.cast(found[1], "int64")) if isinstance(found, tuple | list) else found


def vector(value: Any) -> Any:
    """Return a tensor unchanged, if it has one dimension."""
    return _of_rank(value, 1)


def batch_1d(value: Any) -> Any:
    """Return an input unchanged, if it is a batch with one spatial dimension."""
    return _of_rank(value, 3)


def batch_2d(value: Any) -> Any:
    """Return an input unchanged, if it is a batch with two spatial dimensions."""
    return _of_rank(value, 4)


def batch_3d(value: Any) -> Any:
    """Return an input unchanged, if it is a batch with three spatial dimensions."""
    return _of_rank(value, 5)


def _of_rank(value: Any, ndim: int) -> Any:
    if value.ndim != ndim:
        message = f"form for an input of {value.ndim} dimensions; its documentation says {ndim}"
        raise LackingError(message)
    return value


def slope(value: float) -> float:
    """Return an upper bound of slopes, if it is at most 1."""
    if value > 1:
        message = f"support for a slope above 1, here {value}"
        raise LackingError(message)
    return value

"""Functions of several tensors that PyTorch promotes to one dtype and Paddle does not: they are cast before the call.

Paddle's functions take tensors only. Where an operand may be a number, Python's operator is called instead. Adapters of
single arguments and results are here, too.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import paddle

from ci_autotest.host.adapters.paddle_promotion import cast_together
from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _together(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of two values that casts them to one dtype first."""

    def call(input: Any, other: Any) -> Any:
        return function(*cast_together((input, other)))

    return call


mul = _together(operator.mul)
floor_divide = _together(operator.floordiv)
remainder = _together(operator.mod)
eq = _together(operator.eq)
ne = _together(operator.ne)
lt = _together(operator.lt)
le = _together(operator.le)
gt = _together(operator.gt)
ge = _together(operator.ge)
bitwise_and = _together(operator.and_)
bitwise_or = _together(operator.or_)
bitwise_xor = _together(operator.xor)
bitwise_left_shift = _together(operator.lshift)
bitwise_right_shift = _together(operator.rshift)
# PyTorch takes only tensors here, too, so Paddle's own functions are enough.
logical_and = _together(paddle.logical_and)
logical_or = _together(paddle.logical_or)
logical_xor = _together(paddle.logical_xor)
maximum = _together(paddle.maximum)
minimum = _together(paddle.minimum)
fmax = _together(paddle.fmax)
fmin = _together(paddle.fmin)
hypot = _together(paddle.hypot)
atan2 = _together(paddle.atan2)
logaddexp = _together(paddle.logaddexp)
gammainc = _together(paddle.gammainc)
gammaincc = _together(paddle.gammaincc)


def pow(input: Any, exponent: Any) -> Any:
    """Raise to a power; either operand may be a number."""
    return operator.pow(*cast_together((input, exponent)))


def add(input: Any, other: Any, alpha: Any = 1) -> Any:
    """Add ``alpha`` times ``other``."""
    input, other = cast_together((input, other))
    if paddle.is_tensor(input) and paddle.is_tensor(other):
        return paddle.add(input, other, alpha=alpha)
    return input + other if alpha == 1 else input + other * alpha


def sub(input: Any, other: Any, alpha: Any = 1) -> Any:
    """Subtract ``alpha`` times ``other``."""
    input, other = cast_together((input, other))
    if paddle.is_tensor(input) and paddle.is_tensor(other):
        return paddle.subtract(input, other, alpha=alpha)
    return input - other if alpha == 1 else input - other * alpha


def copysign(input: Any, other: Any) -> Any:
    """Return magnitudes with other signs. PyTorch returns float32 for integers, Paddle the input's dtype."""
    input, other = cast_together((input, other))
    if not (paddle.is_floating_point(input) or paddle.is_complex(input)):
        input, other = (
            paddle.cast(input, "float32"),
            paddle.cast(other, "float32") if paddle.is_tensor(other) else other,
        )
    return paddle.copysign(input, other)


def where(condition: Any, input: Any, other: Any) -> Any:
    """Choose elements by a condition."""
    # The condition stays boolean: only the two values take part in PyTorch's promotion.
    return paddle.where(condition, *cast_together((input, other)))


def outer(input: Any, vec2: Any) -> Any:
    """Return the outer product of two vectors."""
    return paddle.outer(*cast_together((input, vec2)))


def isin(elements: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each element is one of the others."""
    elements, test_elements = cast_together((elements, test_elements))
    return paddle.isin(elements, test_elements, assume_unique=assume_unique, invert=invert)


def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Concatenate along a dimension."""
    return paddle.concat(cast_together(tensors), axis=dim)


def hstack(tensors: Sequence[Any]) -> Any:
    """Concatenate along the second dimension."""
    return paddle.hstack(cast_together(tensors))


def vstack(tensors: Sequence[Any]) -> Any:
    """Concatenate along the first dimension."""
    return paddle.vstack(cast_together(tensors))


# Adapters of single arguments and results between PyTorch and Paddle.


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

"""Functions of several tensors that PyTorch promotes to one dtype and Paddle does not: they are cast before the call.

Paddle's functions take tensors only. Where an operand may be a number, Python's operator is called instead.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import paddle

from ci_autotest.host.adapters.paddle_promotion import cast_together

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

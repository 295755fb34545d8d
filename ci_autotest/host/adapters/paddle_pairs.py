"""Functions of several tensors that PyTorch brings to one dtype and Paddle does not: they are cast before.

Paddle promotes among floating and complex dtypes only, and counts a 0-dim tensor like any other (its page on automatic
type promotion); its functions take tensors alone, and Python's operators numbers too. PyTorch's rule is that of
``torch.result_type``.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import paddle

from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CATEGORIES: Final = ("bool", "int", "float", "complex")


def cast_together(tensors: Sequence[Any]) -> list[Any]:
    """Return tensors in the one dtype that PyTorch computes in; numbers among them as they are."""
    dtypes = {str(value.dtype) for value in tensors if paddle.is_tensor(value)}
    if len(dtypes) < 2:  # noqa: PLR2004 - nothing to bring together
        return list(tensors)
    dtype = _result_dtype([value for value in tensors if paddle.is_tensor(value)])
    return [paddle.cast(value, dtype) if paddle.is_tensor(value) else value for value in tensors]


def _result_dtype(tensors: Sequence[Any]) -> str:
    """Return the dtype of tensors taken together: 0-dim ones count where their category is the higher one.

    Raises:
        LackingError: It is PyTorch's complex32.
    """
    wide = _joined([_name(value) for value in tensors if value.ndim])
    scalar = _joined([_name(value) for value in tensors if not value.ndim])
    if not wide or not scalar:
        return wide or scalar
    if _category(scalar) <= _category(wide):
        return wide
    if wide == "float16":
        message = "complex numbers of halves"
        raise LackingError(message)
    if "float" in wide:
        return "complex128" if wide == "float64" else "complex64"
    return _joined([wide, scalar])


def _joined(names: Sequence[str]) -> str:
    found = ""
    for name in names:
        found = _pair(found, name) if found else name
    return found


def _pair(first: str, second: str) -> str:
    """Return the least dtype that both fit in by category, then by width."""
    low, high = sorted((first, second), key=_category)
    if _category(low) != _category(high):
        return "complex128" if high == "complex64" and low == "float64" else high
    if "bfloat16" in {low, high}:
        other = high if low == "bfloat16" else low
        return "float32" if other == "float16" else other
    return str(np.promote_types(low, high))


def _name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("paddle.")


def _category(name: str) -> int:
    return next(i for i, part in enumerate(_CATEGORIES) if part in name)


def _together(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of two values, called when they have one dtype."""

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
    """Raise to a power; either may be a number."""
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
    """Return the magnitudes with other signs; of whole numbers in float32, where Paddle documents the input's dtype."""
    input, other = cast_together((input, other))
    if not (paddle.is_floating_point(input) or paddle.is_complex(input)):
        input, other = (
            paddle.cast(input, "float32"),
            paddle.cast(other, "float32") if paddle.is_tensor(other) else other,
        )
    return paddle.copysign(input, other)


def where(condition: Any, input: Any, other: Any) -> Any:
    """Choose by a condition."""
    return paddle.where(condition, *cast_together((input, other)))


def outer(input: Any, vec2: Any) -> Any:
    """Return all products of two vectors."""
    return paddle.outer(*cast_together((input, vec2)))


def isin(elements: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Tell which elements are among others."""
    elements, test_elements = cast_together((elements, test_elements))
    return paddle.isin(elements, test_elements, assume_unique=assume_unique, invert=invert)


def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Join along a dimension."""
    return paddle.concat(cast_together(tensors), axis=dim)


def hstack(tensors: Sequence[Any]) -> Any:
    """Join along the columns."""
    return paddle.hstack(cast_together(tensors))


def vstack(tensors: Sequence[Any]) -> Any:
    """Join along the rows."""
    return paddle.vstack(cast_together(tensors))

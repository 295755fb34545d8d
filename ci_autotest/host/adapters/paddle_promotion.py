"""PyTorch's type promotion on Paddle's tensors, which are cast before the call.

Paddle promotes among floating and complex dtypes only, and counts a 0-dim tensor like any other (its page on automatic
type promotion). PyTorch's rule is that of ``torch.result_type``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import paddle

from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Sequence

_CATEGORIES: Final = ("bool", "int", "float", "complex")


def cast_together(tensors: Sequence[Any]) -> list[Any]:
    """Return tensors in PyTorch's common dtype, and numbers among them unchanged."""
    dtypes = {str(value.dtype) for value in tensors if paddle.is_tensor(value)}
    if len(dtypes) < 2:  # noqa: PLR2004 - nothing to cast
        return list(tensors)
    dtype = _result_dtype([value for value in tensors if paddle.is_tensor(value)])
    return [paddle.cast(value, dtype) if paddle.is_tensor(value) else value for value in tensors]


def _result_dtype(tensors: Sequence[Any]) -> str:
    """Return the common dtype of tensors. 0-dim ones count only if their category is higher.

    Raises:
        LackingError: The common dtype is PyTorch's complex32.
    """
    wide = _joined([_name(value) for value in tensors if value.ndim])
    scalar = _joined([_name(value) for value in tensors if not value.ndim])
    if not wide or not scalar:
        return wide or scalar
    if _category(scalar) <= _category(wide):
        return wide
    if wide == "float16":
        message = "complex numbers of two float16 (complex32)"
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
    """Return the smallest dtype that both fit in, by category first and then by width."""
    low, high = sorted((first, second), key=_category)
    if _category(low) != _category(high):
        return "complex128" if high == "complex64" and low == "float64" else high
    # numpy, which decides below, has no bfloat16.
    if "bfloat16" in {low, high}:
        other = high if low == "bfloat16" else low
        return "float32" if other == "float16" else other
    return str(np.promote_types(low, high))


def _name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("paddle.")


def _category(name: str) -> int:
    return next(i for i, part in enumerate(_CATEGORIES) if part in name)

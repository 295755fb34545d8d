"""Pooling: Paddle takes batches, its windows have no holes, and its indices are int32.

With ``ceil_mode`` PyTorch documents that a window which would begin in the padding behind the input is left out; Paddle
documents the quotient rounded up and nothing else. Where the two give different sizes there is no counterpart.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import paddle

from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _max_pool(function: Callable[..., Any], rank: int, *, has_indices: bool = False) -> Callable[..., Any]:
    def max_pool(
        input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> Any:  # fmt: skip
        if set(_each(dilation, rank)) != {1}:
            message = "window with holes (dilation)"
            raise LackingError(message)
        _refuse_other_form(input, (kernel_size, stride, padding), rank, ceil_mode=ceil_mode)
        wants_indices = has_indices or return_indices
        found = function(
            input, kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode, return_mask=wants_indices
        )
        return (found[0], paddle.cast(found[1], "int64")) if wants_indices else found

    return max_pool


def _avg_pool(function: Callable[..., Any], rank: int) -> Callable[..., Any]:
    def avg_pool(
        input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, **divisor: Any,
    ) -> Any:  # fmt: skip
        _refuse_other_form(input, (kernel_size, stride, padding), rank, ceil_mode=ceil_mode)
        return function(
            input, kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode, exclusive=not count_include_pad,
            **divisor,
        )  # fmt: skip

    return avg_pool


def lp_pool2d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """Return the norm of each window."""
    _refuse_other_form(input, (kernel_size, stride, 0), 2, ceil_mode=ceil_mode)
    return paddle.nn.functional.lp_pool2d(input, norm_type, kernel_size, stride=stride, ceil_mode=ceil_mode)


def _refuse_other_form(input: Any, window: tuple[Any, Any, Any], rank: int, *, ceil_mode: bool) -> None:
    if input.ndim != rank + 2:
        message = f"form of pooling for an input of {input.ndim} dimensions: it documents {rank + 2}"
        raise LackingError(message)
    if not ceil_mode:
        return
    kernels, strides, paddings = (
        _each(window[0], rank), _each(window[1] or window[0], rank), _each(window[2], rank)
    )  # fmt: skip
    for size, kernel, stride, padding in zip(input.shape[2:], kernels, strides, paddings, strict=True):
        last = math.ceil((size + 2 * padding - kernel) / stride)
        if last * stride >= size + padding:
            message = "rule to leave out a last window that begins behind the input (ceil_mode)"
            raise LackingError(message)


def _each(value: int | Sequence[int], rank: int) -> Sequence[int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


max_pool1d = _max_pool(paddle.nn.functional.max_pool1d, 1)
max_pool2d = _max_pool(paddle.nn.functional.max_pool2d, 2)
max_pool3d = _max_pool(paddle.nn.functional.max_pool3d, 3)
max_pool2d_with_indices = _max_pool(paddle.nn.functional.max_pool2d, 2, has_indices=True)
avg_pool1d = _avg_pool(paddle.nn.functional.avg_pool1d, 1)
avg_pool2d = _avg_pool(paddle.nn.functional.avg_pool2d, 2)
avg_pool3d = _avg_pool(paddle.nn.functional.avg_pool3d, 3)

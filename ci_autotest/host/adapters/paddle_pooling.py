"""Pooling. Paddle requires a batch, has no dilated windows, and returns int32 indices.

With ``ceil_mode``, PyTorch documents that a last window is left out if it would begin in the padding behind the input,
and Paddle only that the number of windows is rounded up. If the two numbers differ, there is no counterpart.
"""

from __future__ import annotations

import math
from typing import Any, Final

import paddle

from ci_autotest.host.adapters.sizes import per_dimension
from ci_autotest.host.frameworks.protocol import LackingError

_MAX: Final = {
    1: paddle.nn.functional.max_pool1d,
    2: paddle.nn.functional.max_pool2d,
    3: paddle.nn.functional.max_pool3d,
}
_AVERAGE: Final = {
    1: paddle.nn.functional.avg_pool1d,
    2: paddle.nn.functional.avg_pool2d,
    3: paddle.nn.functional.avg_pool3d,
}


def max_pool(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False, *, rank: int,
) -> Any:  # fmt: skip
    """Take the maximum in windows over ``rank`` dimensions; indices are int64, as PyTorch documents."""
    if set(per_dimension(dilation, rank)) != {1}:
        message = "dilated window of pooling"
        raise LackingError(message)
    _refuse_other_form(input, (kernel_size, stride, padding), rank, ceil_mode=ceil_mode)
    found = _MAX[rank](
        input, kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode, return_mask=return_indices
    )
    return (found[0], paddle.cast(found[1], "int64")) if return_indices else found


def avg_pool(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, *, rank: int, **divisor: Any,
) -> Any:  # fmt: skip
    """Average in windows over ``rank`` dimensions; with one dimension there is no ``divisor_override``."""
    _refuse_other_form(input, (kernel_size, stride, padding), rank, ceil_mode=ceil_mode)
    # Paddle's flag means the opposite of PyTorch's: whether the padding is left out of the average.
    return _AVERAGE[rank](
        input, kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode, exclusive=not count_include_pad,
        **divisor,
    )  # fmt: skip


def lp_pool2d(input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
    """Return the p-norm of each window."""
    _refuse_other_form(input, (kernel_size, stride, 0), 2, ceil_mode=ceil_mode)
    return paddle.nn.functional.lp_pool2d(input, norm_type, kernel_size, stride=stride, ceil_mode=ceil_mode)


def _refuse_other_form(input: Any, window: tuple[Any, Any, Any], rank: int, *, ceil_mode: bool) -> None:
    if input.ndim != rank + 2:
        message = f"form of pooling for an input of {input.ndim} dimensions; its documentation says {rank + 2}"
        raise LackingError(message)
    if not ceil_mode:
        return
    kernels, strides, paddings = (
        # Without a stride, PyTorch takes the size of the window.
        per_dimension(window[0], rank), per_dimension(window[1] or window[0], rank), per_dimension(window[2], rank)
    )  # fmt: skip
    for size, kernel, stride, padding in zip(input.shape[2:], kernels, strides, paddings, strict=True):
        # The number of the last window: PyTorch drops it if it begins behind the input.
        last = math.ceil((size + 2 * padding - kernel) / stride)
        if last * stride >= size + padding:
            message = "rule that leaves out a last window beginning behind the input (ceil_mode)"
            raise LackingError(message)

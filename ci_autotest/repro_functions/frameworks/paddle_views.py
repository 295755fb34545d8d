"""Paddle, if the layout of an input matters: `to_tensor` makes every array contiguous."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle


def tensor(array: Any, dtype: str, requires_grad: bool = False) -> Any:
    """Return a leaf in the array's layout: `to_tensor` makes it contiguous, so a view is laid over its flat storage."""
    if array.flags.c_contiguous or not array.size:
        return paddle.to_tensor(np.array(array), dtype=dtype, stop_gradient=not requires_grad)
    steps = [stride // array.itemsize for stride in array.strides]
    length = 1 + sum((size - 1) * step for size, step in zip(array.shape, steps))
    flat = np.array(np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,)))
    made = paddle.as_strided(paddle.to_tensor(flat, dtype=dtype), list(array.shape), steps).detach()
    made.stop_gradient = not requires_grad
    return made

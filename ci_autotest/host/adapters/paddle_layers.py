"""Normalization, losses, interpolation, softmax, dropout and pooling."""

from __future__ import annotations

import builtins
import math
from typing import Any, Final

import paddle

from ci_autotest.host.adapters.sizes import per_dimension
from ci_autotest.host.frameworks.protocol import LackingError


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Normalize over the batch and update the running statistics with PyTorch's momentum and unbiased variance.

    The two are documented to differ in two points. Paddle's momentum is the weight of the old value, and PyTorch's of
    the new one. Paddle divides the variance by n, and PyTorch by n - 1, so Paddle's update is scaled by n / (n - 1).
    """
    channels = input.shape[1]
    # Paddle has no default for the statistics, not even where it does not use them.
    mean = paddle.zeros([channels], dtype=input.dtype) if running_mean is None else running_mean
    var = paddle.ones([channels], dtype=input.dtype) if running_var is None else running_var
    # A copy: Paddle keeps it for the gradient, so that it must not change later.
    updated = var.detach().clone() if training else var
    result = paddle.nn.functional.batch_norm(
        input, mean, updated, weight=weight, bias=bias, training=training, momentum=1 - momentum, epsilon=eps
    )
    count = math.prod(input.shape) // builtins.max(channels, 1)
    # A single element has no unbiased variance: n - 1 is 0.
    if training and count > 1 and running_var is not None:
        if not paddle.in_dynamic_mode():
            message = "graph of a batch_norm that updates running statistics: no input of a graph can be written to"
            raise LackingError(message)
        with paddle.no_grad():
            old_part = (1 - momentum) * var
            paddle.assign(old_part + (updated - old_part) * (count / (count - 1)), output=var)
    return result


def cross_entropy(
    input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    """Return the cross entropy. Classes are along dimension 1, or 0 for a vector; float targets are probabilities.

    With soft labels, and smoothing makes labels soft, Paddle documents one weight per sample and PyTorch one per class.
    """
    is_soft = paddle.is_floating_point(target)
    if weight is not None and (is_soft or label_smoothing):
        message = "cross entropy of soft labels with a weight per class"
        raise LackingError(message)
    return paddle.nn.functional.cross_entropy(
        input, target, weight=weight, ignore_index=ignore_index, reduction=reduction,
        soft_label=is_soft, axis=builtins.min(1, input.ndim - 1),
        label_smoothing=label_smoothing,
    )  # fmt: skip


def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Any:  # fmt: skip
    """Resize; Paddle has no mode ``nearest-exact``."""
    if mode == "nearest-exact":
        message = "interpolation of mode 'nearest-exact'"
        raise LackingError(message)
    if mode == "nearest" and input.ndim == 3:  # noqa: PLR2004 - batch, channel, length
        message = "interpolation of mode 'nearest' over one dimension: its documentation says two or three"
        raise LackingError(message)
    if isinstance(size, int):
        size = [size] * (input.ndim - 2)
    return paddle.nn.functional.interpolate(
        input, size=size, scale_factor=scale_factor, mode=mode, align_corners=bool(align_corners),
        recompute_scale_factor=recompute_scale_factor, antialias=antialias,
    )  # fmt: skip


def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """Sample at the points of a grid. Paddle has no mode ``bicubic``, and aligns corners by default."""
    if mode == "bicubic":
        message = "grid_sample of mode 'bicubic'"
        raise LackingError(message)
    return paddle.nn.functional.grid_sample(
        input, grid, mode=mode, padding_mode=padding_mode, align_corners=bool(align_corners)
    )


def softmax(input: Any, dim: int | None = None, dtype: Any = None) -> Any:
    """Return the softmax along a dimension, which must be given: the two defaults differ."""
    return paddle.nn.functional.softmax(input, axis=_required(dim), dtype=dtype)


def log_softmax(input: Any, dim: int | None = None, dtype: Any = None) -> Any:
    """Return the logarithm of the softmax along a dimension, which must be given: the two defaults differ."""
    return paddle.nn.functional.log_softmax(input, axis=_required(dim), dtype=dtype)


def _required(dim: int | None) -> int:
    if dim is None:
        message = "softmax without a dimension that defaults to PyTorch's"
        raise LackingError(message)
    return dim


def dropout(input: Any, p: float = 0.5, training: bool = True) -> Any:
    """Drop nothing or everything. Otherwise the choice depends on Paddle's generator."""
    return paddle.nn.functional.dropout(input, p=_certain(p, training), training=training)


def dropout2d(input: Any, p: float = 0.5, training: bool = True) -> Any:
    """Drop no channel or every channel. Otherwise the choice depends on Paddle's generator."""
    return paddle.nn.functional.dropout2d(input, p=_certain(p, training), training=training)


def _certain(p: float, training: bool) -> float:
    if training and p not in {0, 1}:
        message = "generator that gives PyTorch's random numbers"
        raise LackingError(message)
    return p


# Pooling. Paddle requires a batch, has no dilated windows, and returns int32 indices.
#
# With ``ceil_mode``, PyTorch documents that a last window is left out if it would begin in the padding behind the
# input, and Paddle only that the number of windows is rounded up. If the two numbers differ, there is no counterpart.


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

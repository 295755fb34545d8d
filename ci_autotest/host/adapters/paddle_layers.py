"""Normalization, losses, interpolation, softmax and dropout."""

from __future__ import annotations

import builtins
import math
from typing import Any

import paddle

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

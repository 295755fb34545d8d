"""What the rows of ``paddle.yml`` need beyond a rename: PyTorch's arguments in, Paddle's public functions called.

A function here carries PyTorch's documented meaning over to Paddle's documented meaning and computes nothing of its own
that Paddle could be wrong about. What has no counterpart raises ``LackingError``: the case is unsupported. Sources:
the documentation of PyTorch 2.13 and of Paddle 3.3.1.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import paddle

from ci_autotest.execute.adapters.paddle_arguments import (
    batch_1d,
    batch_2d,
    batch_3d,
    flat,
    negated,
    row,
    slope,
    to_int32,
    to_int64,
    transpose,
    vector,
    wide_indices,
    widened,
)
from ci_autotest.execute.adapters.paddle_recurrent import (
    gru,
    gru_cell,
    lstm,
    lstm_cell,
    rnn_relu,
    rnn_relu_cell,
    rnn_tanh,
    rnn_tanh_cell,
)
from ci_autotest.execute.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "add",
    "all",
    "any",
    "batch_1d",
    "batch_2d",
    "batch_3d",
    "batch_norm",
    "cross",
    "cross_entropy",
    "div",
    "einsum",
    "flat",
    "full",
    "grid_sample",
    "gru",
    "gru_cell",
    "histc",
    "interpolate",
    "lstm",
    "lstm_cell",
    "meshgrid",
    "negated",
    "norm",
    "pinv",
    "rnn_relu",
    "rnn_relu_cell",
    "rnn_tanh",
    "rnn_tanh_cell",
    "row",
    "slope",
    "std",
    "sub",
    "sum",
    "to",
    "to_int32",
    "to_int64",
    "transpose",
    "vector",
    "wide_indices",
    "widened",
]

functional = paddle.nn.functional


# Arithmetic.


def add(input: Any, other: Any, alpha: Any = 1) -> Any:
    """Add ``alpha`` times ``other``."""
    if paddle.is_tensor(input) and paddle.is_tensor(other):
        return paddle.add(input, other, alpha=alpha)
    return input + other if alpha == 1 else input + other * alpha


def sub(input: Any, other: Any, alpha: Any = 1) -> Any:
    """Subtract ``alpha`` times ``other``."""
    if paddle.is_tensor(input) and paddle.is_tensor(other):
        return paddle.subtract(input, other, alpha=alpha)
    return input - other if alpha == 1 else input - other * alpha


def div(input: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """Divide, and round to ``floor`` or ``trunc`` where asked."""
    if paddle.is_tensor(input) and paddle.is_tensor(other):
        return paddle.divide(input, other, rounding_mode=rounding_mode)
    if rounding_mode is not None:
        message = "quotient of a tensor and a number that is rounded"
        raise LackingError(message)
    return input / other


# Reductions and counts.


def sum(input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Sum; whole numbers in int64, as PyTorch documents."""
    if dtype is None and (paddle.is_integer(input) or input.dtype == paddle.bool):
        dtype = paddle.int64
    return paddle.sum(input, axis=dim, keepdim=keepdim, dtype=dtype)


def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Return the norm of a vector over any dimensions, of a matrix for ``nuc``."""
    if p == "nuc":
        return paddle.linalg.matrix_norm(input, p, axis=[-2, -1] if dim is None else dim, keepdim=keepdim)
    order = 2.0 if p in {"fro", None} else p
    return paddle.linalg.vector_norm(input, p=order, axis=dim, keepdim=keepdim, dtype=dtype)


def all(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Tell whether all are true; of uint8 in uint8, as PyTorch documents."""
    return _of_bytes(input, paddle.all(input, axis=dim, keepdim=keepdim))


def any(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Tell whether any is true; of uint8 in uint8, as PyTorch documents."""
    return _of_bytes(input, paddle.any(input, axis=dim, keepdim=keepdim))


def _of_bytes(input: Any, result: Any) -> Any:
    return paddle.cast(result, "uint8") if input.dtype == paddle.uint8 else result


def std(input: Any, dim: Any = None, correction: int = 1, keepdim: bool = False) -> Any:
    """Return the standard deviation with the correction 0 or 1: Paddle's ``unbiased`` says which."""
    if correction not in {0, 1}:
        message = f"standard deviation with correction={correction}: it divides by n or n - 1"
        raise LackingError(message)
    return paddle.std(input, axis=dim, unbiased=bool(correction), keepdim=keepdim)


def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Count the elements of ``bins`` equal ranges, in the input's dtype."""
    return paddle.cast(paddle.histogram(input, bins=bins, min=min, max=max), input.dtype)


# Shape, creation and products.


def einsum(equation: str, operands: Sequence[Any]) -> Any:
    """Sum products over the letters of ``equation``; Paddle takes the operands by position."""
    return paddle.einsum(equation, *operands)


def meshgrid(tensors: Sequence[Any], indexing: str = "ij") -> Any:
    """Return the coordinates of a grid; Paddle takes the tensors by position."""
    return paddle.meshgrid(*tensors, indexing=indexing)


def full(size: Sequence[int], fill_value: Any, dtype: Any = None) -> Any:
    """Return a tensor of one number; without a dtype in the number's, as PyTorch documents."""
    kinds = {bool: "bool", int: "int64", float: "float32", complex: "complex64"}
    return paddle.full(size, fill_value, dtype=dtype if dtype is not None else kinds[type(fill_value)])


def to(input: Any, dtype: Any = None, copy: bool = False) -> Any:
    """Return the tensor in a dtype: itself where it has that dtype and no copy is asked."""
    if dtype is None or input.dtype == dtype:
        return paddle.clone(input) if copy else input
    return paddle.cast(input, dtype)


def pinv(input: Any, rtol: float | None = None, hermitian: bool = False) -> Any:
    """Return the pseudo-inverse with PyTorch's relative tolerance: the greater size times the dtype's epsilon."""
    if rtol is None:
        rtol = builtins.max(input.shape[-2:]) * paddle.finfo(input.dtype).eps
    return paddle.linalg.pinv(input, rcond=rtol, hermitian=hermitian)


def cross(input: Any, other: Any, dim: int = -1) -> Any:
    """Return the cross product of tensors of one shape: Paddle documents that they do not broadcast."""
    if input.shape != other.shape:
        message = "cross product of tensors that broadcast"
        raise LackingError(message)
    return paddle.cross(input, other, axis=dim)


# Normalization, losses, interpolation.


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Normalize over the batch and move the running statistics, with PyTorch's momentum and unbiased variance.

    Paddle's momentum is the share of the old value that stays, and the variance that it moves to is divided by n where
    PyTorch's is divided by n - 1 (both documented): what it added is scaled by n / (n - 1).
    """
    channels = input.shape[1]
    mean = paddle.zeros([channels], dtype=input.dtype) if running_mean is None else running_mean
    var = paddle.ones([channels], dtype=input.dtype) if running_var is None else running_var
    stays = (1 - momentum) * var.detach()
    result = functional.batch_norm(
        input, mean, var, weight=weight, bias=bias, training=training, momentum=1 - momentum, epsilon=eps
    )
    count = input.size // builtins.max(channels, 1)
    if training and running_var is not None and count > 1:
        with paddle.no_grad():
            paddle.assign(stays + (var - stays) * (count / (count - 1)), output=var)
    return result


def cross_entropy(
    input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    """Return the cross entropy of classes along dimension 1, or 0 of a vector; targets of floats are probabilities.

    Of soft labels, which smoothed ones are, Paddle documents one weight for each sample where PyTorch has one for each
    class in the sum.
    """
    is_soft = paddle.is_floating_point(target)
    if weight is not None and (is_soft or label_smoothing):
        message = "cross entropy of soft labels with a weight for each class"
        raise LackingError(message)
    return functional.cross_entropy(
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
    if mode == "nearest" and input.ndim == 3:  # noqa: PLR2004 - a batch of lines
        message = "interpolation of mode 'nearest' of lines: it documents planes and volumes"
        raise LackingError(message)
    if isinstance(size, int):
        size = [size] * (input.ndim - 2)
    return functional.interpolate(
        input, size=size, scale_factor=scale_factor, mode=mode, align_corners=bool(align_corners),
        recompute_scale_factor=recompute_scale_factor, antialias=antialias,
    )  # fmt: skip


def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """Sample at the places of a grid; Paddle has no mode ``bicubic``, and aligns corners unless told."""
    if mode == "bicubic":
        message = "grid_sample of mode 'bicubic'"
        raise LackingError(message)
    return functional.grid_sample(input, grid, mode=mode, padding_mode=padding_mode, align_corners=bool(align_corners))

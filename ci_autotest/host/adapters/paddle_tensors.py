"""Arithmetic in place, division, reductions, shape, creation and matrices."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import paddle

from ci_autotest.host.adapters.paddle_promotion import cast_together
from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Sequence


# Arithmetic.


def add_(input: Any, other: Any, alpha: Any = 1) -> Any:
    """Add ``alpha`` times ``other`` in place."""
    if paddle.is_tensor(other):
        return input.add_(other if alpha == 1 else other * alpha)
    return input.scale_(1.0, bias=other * alpha)


def sub_(input: Any, other: Any, alpha: Any = 1) -> Any:
    """Subtract ``alpha`` times ``other`` in place."""
    if paddle.is_tensor(other):
        return input.subtract_(other if alpha == 1 else other * alpha)
    return input.scale_(1.0, bias=-other * alpha)


def mul_(input: Any, other: Any) -> Any:
    """Multiply in place. Paddle's name for multiplying by a number is ``scale_``."""
    return input.multiply_(other) if paddle.is_tensor(other) else input.scale_(other)


def div(input: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """Divide, and round to ``floor`` or ``trunc`` if asked."""
    input, other = cast_together((input, other))
    if paddle.is_tensor(input) and paddle.is_tensor(other):
        return paddle.divide(input, other, rounding_mode=rounding_mode)
    if rounding_mode is not None:
        message = "rounded quotient of a tensor and a number"
        raise LackingError(message)
    return input / other


# Reductions and counts.


def sum(input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Sum. PyTorch documents int64 for the sum of integers."""
    if dtype is None and (paddle.is_integer(input) or input.dtype == paddle.bool):
        dtype = paddle.int64
    return paddle.sum(input, axis=dim, keepdim=keepdim, dtype=dtype)


def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Return the vector norm over any dimensions, or the matrix norm for ``nuc``."""
    if p == "nuc":
        return paddle.linalg.matrix_norm(input, p, axis=[-2, -1] if dim is None else dim, keepdim=keepdim)
    order = 2.0 if p in {"fro", None} else p
    return paddle.linalg.vector_norm(input, p=order, axis=dim, keepdim=keepdim, dtype=dtype)


def all(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether all elements are true; of uint8 as uint8, as PyTorch documents."""
    return _as_uint8(input, paddle.all(input, axis=dim, keepdim=keepdim))


def any(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether any element is true; of uint8 as uint8, as PyTorch documents."""
    return _as_uint8(input, paddle.any(input, axis=dim, keepdim=keepdim))


def _as_uint8(input: Any, result: Any) -> Any:
    return paddle.cast(result, "uint8") if input.dtype == paddle.uint8 else result


def std(input: Any, dim: Any = None, correction: int = 1, keepdim: bool = False, unbiased: bool | None = None) -> Any:
    """Return the standard deviation. Paddle's ``unbiased`` stands for a correction of 0 or 1."""
    if unbiased is not None:  # PyTorch takes one or the other
        correction = int(unbiased)
    if correction not in {0, 1}:
        message = f"standard deviation with correction={correction}: it divides by n or n - 1 only"
        raise LackingError(message)
    return paddle.std(input, axis=dim, unbiased=bool(correction), keepdim=keepdim)


def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Count the elements in each of ``bins`` equal ranges, in the input's dtype."""
    return paddle.cast(paddle.histogram(input, bins=bins, min=min, max=max), input.dtype)


# Shape, creation and products.


def einsum(equation: str, operands: Sequence[Any]) -> Any:
    """Compute an Einstein summation. Paddle takes the operands by position."""
    return paddle.einsum(equation, *operands)


def meshgrid(tensors: Sequence[Any], indexing: str = "ij") -> Any:
    """Return the coordinates of a grid. Paddle takes the tensors by position."""
    return paddle.meshgrid(*tensors, indexing=indexing)


def flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Flatten dimensions into one. If there is only one, return the tensor itself, as PyTorch documents."""
    if input.ndim and start_dim % input.ndim == end_dim % input.ndim:
        return input
    return paddle.flatten(input, start_axis=start_dim, stop_axis=end_dim)


def reshape(input: Any, shape: Sequence[int]) -> Any:
    """Reshape. For Paddle a 0 in the shape means the input's size in that dimension."""
    return paddle.reshape(input, _checked_shape(input, shape))


def view(input: Any, size: Any = None, dtype: Any = None) -> Any:
    """View the memory in another shape or dtype. A 0 in the shape means the same as for ``reshape``."""
    return paddle.view(input, dtype if size is None else _checked_shape(input, size))


def _checked_shape(input: Any, shape: Sequence[int]) -> Sequence[int]:
    for place, size in enumerate(shape):
        # Where the input's own size is 0 both readings agree.
        if size == 0 and (place >= input.ndim or input.shape[place] != 0):
            message = "shape with a size of 0 where the input's size is not 0"
            raise LackingError(message)
    return shape


def contiguous(input: Any) -> Any:
    """Return a contiguous tensor. ``clone`` is used because Paddle's own method returns a leaf unchanged."""
    return input if input.is_contiguous() else paddle.clone(input)


def rot90(input: Any, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    """Rotate a plane. PyTorch returns a copy even if nothing turns, and Paddle the tensor itself."""
    return paddle.rot90(input, k=k, axes=list(dims)) if k % 4 else paddle.clone(input)


def full(size: Sequence[int], fill_value: Any, dtype: Any = None, device: Any = None) -> Any:
    """Return a tensor filled with one number; by default in the number's dtype, as PyTorch documents."""
    kinds = {bool: "bool", int: "int64", float: "float32", complex: "complex64"}
    return paddle.full(size, fill_value, dtype=dtype if dtype is not None else kinds[type(fill_value)], device=device)


def tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """Return a tensor of numbers that are written in the test."""
    return paddle.to_tensor(data, dtype=dtype, place=device)


def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Any:
    """Return the elements at indices along a dimension."""
    if dim is None:
        message = "take_along_axis without an axis"
        raise LackingError(message)
    return paddle.take_along_axis(input, indices, axis=dim)


def to(
    input: Any, dtype: Any = None, device: Any = None, other: Any = None, non_blocking: bool = False, copy: bool = False
) -> Any:
    """Return the tensor in a dtype and on a device: itself, if both fit and no copy is requested."""
    wanted, place = (dtype, device) if other is None else (other.dtype, other.place)
    found = input if place is None or str(input.place) == str(place) else input.to(place)
    if wanted is None or found.dtype == wanted:
        return paddle.clone(input) if copy and found is input else found
    return paddle.cast(found, wanted)


def pinv(input: Any, rtol: float | None = None, hermitian: bool = False) -> Any:
    """Return the pseudo-inverse. PyTorch's relative tolerance is the larger size times the dtype's epsilon."""
    if rtol is None:
        rtol = builtins.max(input.shape[-2:]) * paddle.finfo(input.dtype).eps
    return paddle.linalg.pinv(input, rcond=rtol, hermitian=hermitian)


def cross(input: Any, other: Any, dim: int = -1) -> Any:
    """Return the cross product of tensors with one shape: Paddle documents no broadcasting."""
    if input.shape != other.shape:
        message = "cross product of tensors with different shapes"
        raise LackingError(message)
    return paddle.cross(input, other, axis=dim)

"""Functions that rows of ``mindspore.yml`` name as ``adapters.NAME``, for operators that it documents differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mindspore import mint, ops

from ci_autotest.host.frameworks.protocol import LackingError

if TYPE_CHECKING:
    from collections.abc import Sequence


def einsum(equation: str, operands: Sequence[Any]) -> Any:
    """Compute an Einstein summation. MindSpore takes the operands by position."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], tuple | list) else operands
    return mint.einsum(equation, *given)


def cross(input: Any, other: Any, dim: int = -1) -> Any:
    """Return the cross product of two tensors with one shape."""
    if input.shape != other.shape:
        message = "mindspore.mint.cross for tensors with different shapes"
        raise LackingError(message)
    return mint.cross(input, other, dim)


def meshgrid(tensors: Sequence[Any], indexing: str = "ij") -> Any:
    """Return the coordinates of a grid. MindSpore takes the tensors by position."""
    return mint.meshgrid(*tensors, indexing=indexing)


def squeeze(input: Any, dim: int | tuple[int, ...] | None = None) -> Any:
    """Remove dimensions of size 1: the named ones, or all of them."""
    return ops.squeeze(input) if dim is None else mint.squeeze(input, dim)

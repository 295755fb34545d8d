"""Adapters of MindSpore's table: where what it documents differs from torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mindspore import mint

if TYPE_CHECKING:
    from collections.abc import Sequence


def einsum(equation: str, operands: Sequence[Any]) -> Any:
    """Return the sum, of operands that go by position."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], tuple | list) else operands
    return mint.einsum(equation, *given)


def meshgrid(tensors: Sequence[Any], indexing: str = "ij") -> Any:
    """Return the grids, of tensors that go by position."""
    return mint.meshgrid(*tensors, indexing=indexing)

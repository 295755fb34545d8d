"""Sizes, in the forms in which PyTorch takes and returns them; shared by the adapters of all frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Sizes: TypeAlias = "int | Sequence[int]"


def per_dimension(value: Sizes, rank: int) -> tuple[int, ...]:
    """Return one number for each of ``rank`` spatial dimensions: PyTorch lets one number stand for all of them."""
    if isinstance(value, int):
        return (value,) * rank
    return tuple(value) * rank if len(value) == 1 else tuple(value)


def size(input: Any, dim: int | None = None) -> tuple[int, ...] | int:
    """Return the size of one dimension, or of all of them."""
    return tuple(input.shape) if dim is None else int(input.shape[dim])

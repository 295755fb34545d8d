"""Tensors that are saved to memory and loaded again, as ``torch.save`` and ``torch.load`` do with files.

A program may come from outside, so nothing here opens a file, and what is loaded is always ``weights_only``.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


def save(values: Sequence[torch.Tensor]) -> bytes:
    """Return what ``torch.save`` writes for a list of tensors."""
    memory = io.BytesIO()
    torch.save(list(values), memory)
    return memory.getvalue()


def load(content: bytes, map_location: torch.device | None = None) -> list[torch.Tensor]:
    """Return the tensors that ``save`` has written; on ``map_location`` if it is given."""
    found: list[Any] = torch.load(io.BytesIO(content), map_location=map_location, weights_only=True)
    return found

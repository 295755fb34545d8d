"""Flags of a tensor where every bit counts: a candidate may choose its strides elsewhere."""

from __future__ import annotations

from typing import Any

import torch


def flags_of(name: str, value: Any) -> dict[str, Any]:
    """Return by name what is compared of a tensor besides its elements; a dimension of one may have any stride."""
    if not isinstance(value, torch.Tensor):
        return {}
    found = {"requires_grad": value.requires_grad, "is_leaf": value.is_leaf, "layout": str(value.layout)}
    is_laid = value.layout is torch.strided and value.numel()
    strides = [step for size, step in zip(value.shape, value.stride()) if size > 1] if is_laid else []
    return {f"{flag} of {name}": held for flag, held in {**found, "strides": strides}.items()}

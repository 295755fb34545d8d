"""Elements as text: exact, and in decimal."""

from __future__ import annotations

import math

import torch


def hexadecimal(element: torch.Tensor) -> str:
    """Return a 0-dim tensor's exact value: hexadecimal for floating point."""
    value = element.item()
    if element.is_complex():
        return f"{float(value.real).hex()} + {float(value.imag).hex()}j"
    return value.hex() if isinstance(value, float) else str(value)


def decimal(element: torch.Tensor) -> str:
    """Return a 0-dim tensor's value with as many digits as its dtype resolves."""
    value = element.item()
    if isinstance(value, float):
        bits = 1 - math.log2(torch.finfo(element.dtype).eps)  # of the significand
        digits = math.ceil(1 + bits * math.log10(2))
        return f"{value:.{digits}g}"
    return str(value)

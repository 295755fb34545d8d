"""How a repro reads tensors from the file beside it, and how it compares what two sides give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

#: Allowed difference relative to the reference, and absolute.
RTOL: float
ATOL: float
CHECK_DTYPE: bool


def stored(name: str, dtype: torch.dtype) -> torch.Tensor:
    """Read one flat tensor of tensors.safetensors: a JSON head, then the bytes."""
    data = Path(__file__).resolve().with_name("tensors.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    first, last = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return torch.frombuffer(bytearray(data[8 + size + first : 8 + size + last]), dtype=dtype).clone()


def plain(value: Any) -> Any:
    """Return what is compared of a value that is no tensor: numbers as tensors, of other objects that there is one."""
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 53):
        return torch.tensor(float(value), dtype=torch.float64)  # 1, 1.0 and True are the same
    if isinstance(value, complex):
        return torch.tensor(value, dtype=torch.complex128)
    if isinstance(value, (tuple, list)) and all(isinstance(item, int) for item in value):
        return list(value)
    kept = (torch.Tensor, int, str, torch.dtype, type(None))
    return value if isinstance(value, kept) else "an object"


def apart(found: Any, expected: Any) -> str:
    """Say how two values differ; empty if they do not."""
    tensors = [isinstance(side, torch.Tensor) for side in (found, expected)]
    if not all(tensors):
        return "" if not any(tensors) and found == expected else f"candidate {found!r}, reference {expected!r}"
    try:
        assert not CHECK_DTYPE or found.dtype == expected.dtype, f"candidate {found.dtype}, reference {expected.dtype}"
        assert_alike(found, expected)
    except AssertionError as error:
        return str(error).split("\n\n", 1)[-1].strip().replace("\n", "\n  ")
    return ""


def assert_alike(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Raise an AssertionError if two tensors differ beyond the tolerance in 64 bits; integers may not differ at all."""
    kind = torch.float64 if found.is_floating_point() or expected.is_floating_point() else torch.int64
    kind = torch.complex128 if found.is_complex() or expected.is_complex() else kind
    left, right = (side.detach().cpu().to_dense().to(kind) for side in (found, expected))
    rtol, atol = (0, 0) if kind is torch.int64 else (RTOL, ATOL)
    torch.testing.assert_close(left, right, rtol=rtol, atol=atol, equal_nan=True)

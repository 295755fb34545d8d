"""Hashes of samples, by which equal samples are recognized in different processes."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import torch

#: The address in the default ``repr`` of an object.
_ADDRESS: Final = re.compile(r"\bat 0x[0-9a-fA-F]+")
_DEPTH: Final = 6


def digest_of(sample: Any) -> str:
    """Return a hash of a sample's values; empty if they cannot be read."""
    try:
        text = _bytes(sample, 0)
    except Exception:  # noqa: BLE001 - foreign objects may raise anything when they are read
        return ""
    return blake2b(text, digest_size=8).hexdigest()


def _bytes(value: Any, depth: int) -> bytes:
    """Return type and content of a value; parts begin with their length, so that (1, 11) is not (11, 1)."""
    content = _content(value, depth)
    return f"{type(value).__name__}{len(content)}:".encode() + content


def _content(value: Any, depth: int) -> bytes:
    if isinstance(value, torch.Tensor):
        data = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        return f"{value.dtype}{tuple(value.shape)}".encode() + bytes(data.tobytes())
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"{value.dtype}{value.shape}".encode() + value.tobytes()
    if isinstance(value, dict):
        return b"".join(_bytes(key, depth) + _bytes(item, depth + 1) for key, item in value.items())
    if isinstance(value, list | tuple):
        return b"".join(_bytes(item, depth + 1) for item in value)
    if hasattr(value, "tobytes") and callable(value.tobytes):
        return bytes(value.tobytes())
    text = repr(value)
    # A text with an address differs from process to process, so the attributes are hashed instead.
    if _ADDRESS.search(text) is None:
        return text.encode()
    if depth > _DEPTH:
        message = "too deep"
        raise ValueError(message)
    return _bytes(vars(value), depth + 1)

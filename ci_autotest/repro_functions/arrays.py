"""How the repro of a framework without torch reads and compares arrays: a tensor is a pair, an array and its dtype."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

#: Allowed difference relative to the reference, and absolute.
RTOL: float
ATOL: float
CHECK_DTYPE: bool


def stored(name: str, dtype: str) -> Any:
    """Read one flat array of tensors.safetensors: a JSON head, then the bytes."""
    data = Path(__file__).resolve().with_name("tensors.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    first, last = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return np.frombuffer(data[8 + size + first : 8 + size + last], dtype)


def plain(value: Any) -> Any:
    """Return what is compared of a value that is no tensor: of a framework's own object its type."""
    if is_array(value):
        return value
    if isinstance(value, np.ndarray):
        return value, str(value.dtype)
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 53):
        return np.array(float(value)), "number"  # 1, 1.0 and True are the same
    if isinstance(value, complex):
        return np.array(value), "complex number"
    if isinstance(value, (tuple, list)) and all(isinstance(item, int) for item in value):
        return list(map(int, value))
    is_plain = value is None or isinstance(value, (bool, int, str))
    return value if is_plain else f"a {type(value).__name__}"


def compared(found: dict[str, Any], expected: dict[str, Any]) -> int:
    """Print how what is expected differs from what was found, by name; return 1 if any does."""
    bad = 0
    for name, value in expected.items():
        how = apart(found.get(name), value)
        print(f"misaligned: {name}: {how}" if how else f"aligned: {name}")
        bad |= bool(how)
    return bad


def apart(found: Any, expected: Any) -> str:
    """Say how two values differ; empty if they do not."""
    arrays = [is_array(side) for side in (found, expected)]
    if not all(arrays):
        return "" if not any(arrays) and found == expected else f"candidate {found!r}, reference {expected!r}"
    (left, dtype), (right, expected_dtype) = found, expected
    try:
        assert not CHECK_DTYPE or dtype == expected_dtype, f"candidate {dtype}, reference {expected_dtype}"
        assert left.shape == right.shape, f"candidate of shape {left.shape}, reference of shape {right.shape}"
        assert_alike(left, right)
    except AssertionError as error:
        return str(error).strip().split("\n\n", 1)[-1].replace("\n", "\n  ")
    return ""


def assert_alike(found: Any, expected: Any) -> None:
    """Raise an AssertionError if two arrays differ beyond the tolerance, or integers at all."""
    if found.dtype.kind in "biu" and expected.dtype.kind in "biu":  # float64 does not hold all integers
        np.testing.assert_array_equal(found, expected)
        return
    kind = np.complex128 if np.iscomplexobj(expected) else np.float64
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found.astype(kind), expected.astype(kind), rtol=RTOL, atol=ATOL, equal_nan=True)


def with_zeros(gradients: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Return gradients by name; no gradient, and one of zeros, are the same."""
    missing = {name: other for name, other in expected.items() if is_array(other) and gradients.get(name, 0) is None}
    return {**gradients, **{name: (np.zeros_like(array), dtype) for name, (array, dtype) in missing.items()}}


def is_array(value: Any) -> bool:
    """Whether a value is the elements of a tensor and the name of its dtype."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], np.ndarray)

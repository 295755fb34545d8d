"""Tensors as exact text: the shortest numbers that read back to the same bits."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.values.dtypes import BITS, FLOAT8, NUMPY_FORMATS

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Tensors of up to this many elements are printed as literals.
INLINE_ELEMENTS: Final = 64
#: Equal elements in a row that are written as one number.
_RUN: Final = 8
#: Dtypes that ``torch.tensor`` infers from a literal.
_IMPLIED: Final = {"float32", "int64", "bool"}


def array_of(data: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a storage's elements in ``shape``; bfloat16 and float8 become the float32 of the same values."""
    if dtype in FLOAT8:
        numbers: NDArray[Any] = _numbers_of(dtype)[np.frombuffer(data, "u1")]
        return numbers.reshape(shape)
    if dtype in BITS:
        # The bits of a bfloat16 are the upper half of the float32 of the same value.
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    return np.frombuffer(data, NUMPY_FORMATS[dtype]).reshape(shape)


def rounded_bytes(numbers: NDArray[np.float64], dtype: str) -> bytes:
    """Return the storage of numbers of a real dtype; bfloat16 rounds to the nearest, ties away from zero.

    float8 rounds to the nearest, ties to even; what is too large becomes infinite, or the largest number of a dtype
    without infinities.
    """
    if dtype in FLOAT8:
        return _float8_bytes(numbers, np.array(_numbers_of(dtype)[:128].tolist()))
    if dtype in BITS:
        bits = numbers.astype("<f4").view("<u4")
        return ((bits + 0x8000) >> 16).astype("<u2").tobytes()
    return numbers.astype(NUMPY_FORMATS[dtype]).tobytes()


@lru_cache(maxsize=2)
def _numbers_of(dtype: str) -> NDArray[np.float32]:
    """Return the number that each byte of a float8 dtype stands for.

    Source: Micikevicius et al., "FP8 Formats for Deep Learning" (2022): E5M2 is the upper half of a float16; E4M3 has
    no infinities and one NaN of each sign.
    """
    every = np.arange(256, dtype="<u2")
    if dtype == "float8_e5m2":
        halves = (every << 8).view("<f2")
        return np.where(np.isnan(halves), np.float16(np.nan), halves).astype("<f4")  # signaling NaNs cause warnings
    sign, exponent, fraction = np.where(every >> 7, -1.0, 1.0), (every >> 3) & 15, every & 7
    normal = np.ldexp(1 + fraction / 8, exponent.astype(np.int64) - 7)
    found = sign * np.where(exponent == 0, np.ldexp(fraction / 8, -6), normal)
    return np.where(every & 0x7F == 0x7F, np.nan, found).astype("<f4")  # noqa: PLR2004 - its bits


def _float8_bytes(numbers: NDArray[np.float64], positive: NDArray[np.float64]) -> bytes:
    """Return the bits of numbers, given the numbers of the 128 bytes without a sign, which ascend with their bits."""
    finite = positive[np.isfinite(positive)]
    last = len(finite) - 1
    # Infinity, if there is one, is the next byte, and takes the place of the next greater number.
    ends = np.append(finite, 2 * finite[last] - finite[last - 1]) if np.isinf(positive).any() else finite
    size = np.minimum(np.abs(numbers), ends[-1])
    below = np.clip(np.searchsorted(ends, size, side="right") - 1, 0, len(ends) - 2)
    share = (size - ends[below]) / (ends[below + 1] - ends[below])
    is_up = (share > 0.5) | ((share == 0.5) & (below % 2 == 1))  # noqa: PLR2004 - half of a step
    bits = np.where(np.isnan(numbers), 0x7F, below + is_up)
    signed: NDArray[Any] = bits | (np.signbit(numbers).astype(np.int64) << 7)
    return signed.astype("u1").tobytes()


def short_text(data: bytes, dtype: str, shape: tuple[int, ...]) -> str:
    """Return the text of a tensor that is small or has long runs of equal elements; empty for any other.

    A tensor that was shrunk to zeros with a few ones has such runs, and so has one between guard bands.
    """
    array = array_of(data, dtype, shape).reshape(-1)
    if array.size <= INLINE_ELEMENTS:
        return tensor_text(data, dtype, shape)
    spans = _spans(np.frombuffer(data, "u1").reshape(array.size, -1))
    # `torch.cat` takes no float8.
    if dtype in FLOAT8 or sum(1 if is_run else end - start for start, end, is_run in spans) > INLINE_ELEMENTS:
        return ""
    if len(spans) == 1:
        return _filled(array[0], dtype, shape)
    texts = [
        _filled(array[start], dtype, (end - start,))
        if is_run
        else f"torch.tensor({nested(array[start:end])}{_dtype(dtype, _IMPLIED)})"
        for start, end, is_run in spans
    ]
    return f"torch.cat([{', '.join(texts)}])" + ("" if shape == array.shape else f".reshape({shape})")


def _spans(elements: NDArray[np.uint8]) -> list[tuple[int, int, bool]]:
    """Return the start and end of each long run of equal rows of bytes, and of what lies between such runs."""
    ends = [*(np.flatnonzero((elements[1:] != elements[:-1]).any(axis=1)) + 1).tolist(), len(elements)]
    spans: list[tuple[int, int, bool]] = []
    start = 0
    for end in ends:
        is_run = end - start >= _RUN
        if spans and not is_run and not spans[-1][2]:
            start = spans.pop()[0]
        spans.append((start, end, is_run))
        start = end
    return spans


def _filled(value: Any, dtype: str, shape: tuple[int, ...]) -> str:
    """Return a tensor of equal elements, as `torch.tensor` with one element infers its dtype."""
    if value in (0, 1) and dtype != "bool" and not _has_negative_zero(value):
        # `torch.zeros` is float32 by default, while `torch.full` goes by the number.
        return f"torch.{'ones' if value else 'zeros'}({shape}{_dtype(dtype, {'float32'})})"
    return f"torch.full({shape}, {_number(value)}{_dtype(dtype, _IMPLIED)})"


def tensor_text(data: bytes, dtype: str, shape: tuple[int, ...]) -> str:
    """Return ``torch.tensor([...])`` with exactly these elements.

    Args:
        data: Little-endian bytes in order.
        dtype: Name without framework.
        shape: Sizes in elements.
    """
    array = array_of(data, dtype, shape)
    if array.size == 0:
        # A literal such as `[[], []]` does not say the sizes behind the 0.
        return f"torch.zeros({shape}, dtype=torch.{dtype})"
    # -0.0 equals 0.0, and would be printed as a zero without its sign.
    plain = array.size > 1 and bool((array == array.reshape(-1)[0]).all()) and not _has_negative_zero(array)
    if plain and array.reshape(-1)[0] in (0, 1) and dtype != "bool":
        return _filled(array.reshape(-1)[0], dtype, shape)
    return f"torch.tensor({nested(array)}{_dtype(dtype, _IMPLIED)})"


def _has_negative_zero(array: Any) -> bool:
    return array.dtype.kind in "fc" and bool((np.signbit(array.real) | np.signbit(array.imag)).any())


def _dtype(dtype: str, implied: set[str]) -> str:
    return "" if dtype in implied else f", dtype=torch.{dtype}"


def nested(array: NDArray[Any]) -> str:
    """Return the elements as nested lists of exact numbers."""
    if array.ndim == 0:
        return _number(array[()])
    return f"[{', '.join(nested(item) for item in array)}]"


def _number(value: Any) -> str:
    kind = value.dtype.kind
    if kind == "c":
        return f"complex({_number(value.real)}, {_number(value.imag)})"
    if kind == "f":
        if not math.isfinite(value):
            return f"float({str(float(value))!r})"
        # numpy prints the shortest text that reads back to the same value of this width.
        text = np.format_float_positional(value, unique=True, trim="0")
        short = np.format_float_scientific(value, unique=True, trim="-")
        return text if len(text) <= len(short) + 2 else short
    return str(bool(value)) if kind == "b" else str(int(value))

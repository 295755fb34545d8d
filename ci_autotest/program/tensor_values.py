"""The data in ``program.json``, for readers that must not load a tensor file: small tensors, and sha256 of larger ones.

Numbers are exact, because JSON's shortest text reads back to the same float64. A complex number is a pair, and numbers
that are not finite are ``"nan"``, ``"inf"`` and ``"-inf"``. All NaNs are read as the same NaN.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import numpy as np

from ci_autotest.errors import ProgramError
from ci_autotest.program.literals import INLINE_ELEMENTS, array_of, rounded_bytes
from ci_autotest.values.dtypes import FLOATING, NUMPY_FORMATS, PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ci_autotest.program.ir import TensorSpec
    from ci_autotest.program.recording import Recording

#: sha256 of a storage, in hexadecimal.
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]

_NOT_FINITE: Final = frozenset({"nan", "inf", "-inf"})


def plain_data(tensors: Mapping[str, bytes], specs: Mapping[str, TensorSpec]) -> dict[str, dict[str, Any]]:
    """Return as JSON the ``values`` of tensors of up to 64 elements, and the ``sha256`` of larger ones, by key."""
    small = {key for key in tensors if specs[key].storage_size <= INLINE_ELEMENTS}
    return {
        "values": {key: _plain_values(tensors[key], specs[key].dtype) for key in sorted(small)},
        "sha256": {key: digest(tensors[key]) for key in sorted(tensors.keys() - small)},
    }


def storages(values: Mapping[str, Sequence[object]], specs: Mapping[str, TensorSpec]) -> dict[str, bytes]:
    """Return the little-endian storages of JSON values.

    Args:
        values: As decoded, by key.
        specs: Of each key.

    Raises:
        ProgramError: A tensor has too many or too few values, or one is not a number of its dtype.
    """
    return {key: _storage(key, given, specs[key]) for key, given in values.items()}


def check_same(alone: Recording, whole: Recording, specs: Mapping[str, TensorSpec]) -> None:
    """Refuse a tensor file with other data than ``program.json``, because pages show one and a replay runs the other.

    Raises:
        ProgramError: They differ.
    """
    different = [
        # Compared as text, because -0.0 is not 0.0 and all NaNs count as the same.
        *(
            key
            for key, data in alone.tensors.items()
            if _text(data, specs[key]) != _text(whole.tensors[key], specs[key])
        ),
        *(key for key, sha256 in alone.digests.items() if digest(whole.tensors[key]) != sha256),
    ]
    if different:
        message = f"program.json and the tensor file hold different data of {different[0][:80]!r}: one was edited."
        raise ProgramError(message)


def digest(data: bytes) -> str:
    """Return the sha256 of a storage."""
    return hashlib.sha256(data).hexdigest()


def _text(data: bytes, spec: TensorSpec) -> str:
    return str(_plain_values(data, spec.dtype))


def _plain_values(data: bytes, dtype: str) -> list[object]:
    return [_plain(value) for value in array_of(data, dtype, (-1,)).tolist()]


def _storage(key: str, values: Sequence[object], spec: TensorSpec) -> bytes:
    dtype, size = spec.dtype, spec.storage_size
    if size > INLINE_ELEMENTS or len(values) != size:
        message = (
            f"program.json holds {len(values):,} values of {key[:80]!r}, a storage of {size:,} elements: "
            f"as many as those are expected, and {INLINE_ELEMENTS} at most."
        )
        raise ProgramError(message)
    if dtype in PARTS:
        return _floats(key, [each for value in values for each in _pair(key, value, dtype)], PARTS[dtype])
    return _floats(key, values, dtype) if dtype in FLOATING else _integers(key, values, dtype)


def _plain(value: object) -> object:
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _pair(key: str, value: object, dtype: str) -> list[object]:
    if isinstance(value, list) and len(value) == 2:  # noqa: PLR2004 - a real and an imaginary part
        return value
    raise _refusal(key, value, dtype)


def _floats(key: str, values: Sequence[object], dtype: str) -> bytes:
    for value in values:
        # A float is written with a point or an exponent, so that an integer here was not written by us.
        if type(value) is not float and not (isinstance(value, str) and value in _NOT_FINITE):
            raise _refusal(key, value, dtype)
    exact = np.array([float(value) for value in values], "<f8")  # type: ignore[arg-type]
    # A number that is too large becomes infinite, and is refused below.
    with np.errstate(over="ignore", under="ignore"):
        found = rounded_bytes(exact, dtype)
    for value, read in zip(exact.tolist(), array_of(found, dtype, (-1,)).astype("<f8").tolist(), strict=True):
        # The data are exact, so a number that the dtype cannot hold was not written by us.
        if read != value and not math.isnan(value):
            raise _refusal(key, value, dtype)
    return found


def _integers(key: str, values: Sequence[object], dtype: str) -> bytes:
    kind, limits = (bool, None) if dtype == "bool" else (int, np.iinfo(NUMPY_FORMATS[dtype]))
    for value in values:
        # `isinstance` would accept `True` as an integer.
        if type(value) is not kind or (limits is not None and not limits.min <= value <= limits.max):
            raise _refusal(key, value, dtype)
    found: NDArray[Any] = np.array(values, NUMPY_FORMATS[dtype])
    return found.tobytes()


def _refusal(key: str, value: object, dtype: str) -> ProgramError:
    return ProgramError(f"program.json holds {str(value)[:80]!r} among the values of {key[:80]!r}: it is no {dtype}.")

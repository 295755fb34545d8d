"""Tensors in ``.npz`` files: NumPy's own format without pickle, one array for each key.

A dtype that NumPy lacks (bfloat16, float8) is stored as its bits, in a structure with one field of that name, so that
the array says what it is.
"""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ci_autotest.program.literals import array_of
from ci_autotest.values.dtypes import BITS, NUMPY_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray


class ArrayError(Exception):
    """An array of a file cannot be a tensor; the message says why."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype for the elements of a tensor in a file."""
    if name in NUMPY_FORMATS:
        return np.dtype(NUMPY_FORMATS[name])
    return np.dtype([(name, np.dtype(BITS[name]).newbyteorder("<"))])


def write_npz(path: Path, arrays: Iterable[tuple[str, NDArray[Any]]]) -> None:
    """Write arrays one after the other, so that one of them is in memory at a time.

    Raises:
        OSError: The file cannot be written.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in arrays:
            with archive.open(f"{key}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_npz(path: Path, key: str) -> tuple[str, NDArray[Any]]:
    """Return the dtype of a tensor and its elements; those of bfloat16 and float8 are float32.

    Raises:
        OSError: The file cannot be read.
        KeyError: It has no such key; the exception's arguments are the keys that it has.
        ArrayError: It is no ``.npz`` file, or the array cannot be a tensor. Objects are never loaded.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if f"{key}.npy" not in archive.NameToInfo:
                raise KeyError(*(name.removesuffix(".npy") for name in archive.namelist()))
            with archive.open(f"{key}.npy") as member:
                array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
    except zipfile.BadZipFile as error:
        message = f"it is no .npz file, or damaged ({error})"
        raise ArrayError(message) from error
    except (ValueError, EOFError, zlib.error) as error:
        message = f"{key!r} cannot be read ({error})"
        raise ArrayError(message) from error
    own = array.astype(array.dtype.newbyteorder("="), copy=False)
    names = own.dtype.names
    if own.dtype.name in NUMPY_FORMATS:
        return own.dtype.name, own
    if (
        names is not None
        and len(names) == 1
        and names[0] in BITS
        and own.dtype == np.dtype([(names[0], BITS[names[0]])])
    ):
        return names[0], array_of(own.astype(numpy_dtype(names[0])).tobytes(), names[0], own.shape)
    message = f"{key!r} has elements of {array.dtype}; tensors of tests have {', '.join([*NUMPY_FORMATS, *BITS])}"
    raise ArrayError(message)

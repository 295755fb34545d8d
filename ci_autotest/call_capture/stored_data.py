"""The elements that a test takes from a file: the key of each, and the array that is stored under it.

A test makes a view of a contiguous tensor, as for drawn elements. So what is stored is that contiguous tensor: the
elements of the program's tensor at their places, and zeros between them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ci_autotest.call_capture.journal import read_elements
from ci_autotest.call_capture.layouts import PLAIN, elements_shape, layout_of
from ci_autotest.errors import OutputError
from ci_autotest.program.npz import numpy_dtype
from ci_autotest.values.dtypes import ITEM_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from ci_autotest.call_capture.call_groups import CallGroup
    from ci_autotest.program.ir import TensorSpec


def key_of(test: str, row: str, tensor: str, item: str = "") -> str:
    """Return the key of a tensor.

    Args:
        test: Name of the test.
        row: Number of the call whose elements these are.
        tensor: Name of the tensor in the test.
        item: Number of the tensor in a list of tensors that are alike.
    """
    return ".".join([test, row, tensor, *([item] if item else [])])


def arrays_of(group: CallGroup, test: str, tensors: list[str]) -> Iterator[tuple[str, tuple[int, TensorSpec]]]:
    """Yield the keys of a test, each with the place and the spec of its tensor.

    Args:
        group: The test.
        test: Its name.
        tensors: Names of its tensors.
    """
    for number, row in enumerate(group.data_rows()):
        for index, tensor in enumerate(tensors):
            if not group.is_stored(index):
                continue
            seen = row.tensors[index]
            for item, place in enumerate(seen.data):
                name = str(item) if group.is_repeated(index) else ""
                yield key_of(test, str(number), tensor, name), (place, seen.tensor_spec())


def array_at(spool: Path, place: int, spec: TensorSpec) -> NDArray[Any]:
    """Return the contiguous array of which a tensor is a view, with the tensor's elements and zeros between them.

    Raises:
        OutputError: The elements cannot be read back.
    """
    shape = elements_shape(spec)
    dims, layout = layout_of(spec) or (spec.shape, PLAIN)
    dtype = numpy_dtype(spec.dtype)
    data = read_elements(spool, place, math.prod(shape) * ITEM_SIZE[spec.dtype])
    if data is None:  # The journal names a place after its elements were written, so only a damaged disk loses them.
        message = f"{spool} ends before the elements of a captured tensor. Capture again; is the disk full or damaged?"
        raise OutputError(message)
    found = np.frombuffer(data, dtype).reshape(shape)
    if layout == PLAIN or layout.memory_format:
        return found
    whole = np.zeros(dims, dtype)
    strides = [stride * dtype.itemsize for stride in spec.strides]
    np.lib.stride_tricks.as_strided(whole, shape, strides)[...] = found
    return whole

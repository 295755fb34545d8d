"""Simpler data: zeros, ones, small integers, halves, then one element at a time, without unneeded gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ci_autotest.program.ir import Program
from ci_autotest.program.literals import rounded_bytes
from ci_autotest.shrink.size import SMALL, cost, numbers_of
from ci_autotest.values.dtypes import DTYPES, PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ci_autotest.program.recording import Recording

#: At most this many elements of a tensor are tried one at a time, to bound the trials.
_SINGLE_ELEMENTS: Final = 24
#: The smallest block of a larger tensor that is zeroed at once is its size divided by this.
_SMALLEST_BLOCK: Final = 16


def simpler_data(best: Callable[[], Recording], *, gradient: bool) -> Iterator[Recording]:
    """Yield recordings with simpler data than the best one so far.

    Args:
        best: Returns the best recording; it is called again after each trial.
        gradient: Whether a gradient differs; then cotangents and ``requires_grad`` must stay.
    """
    if not gradient:
        yield from _without_gradients(best())
    # Inputs before cotangents, and `t2` before `t10`.
    for key in sorted(best().program.specs, key=lambda key: (key.startswith("cotangent_"), len(key), key)):
        # An earlier trial may have dropped it.
        if key in best().tensors:
            yield from _simpler_tensor(best, key)


def zeroed(recording: Recording) -> Recording:
    """Return the recording with zeros for all data."""
    program = recording.program
    return recording.with_program(program, {key: bytes(len(recording.tensors[key])) for key in program.specs})


def _without_gradients(recording: Recording) -> Iterator[Recording]:
    program = recording.program
    steps = tuple(step.with_spec(requires_grad=False) for step in program.body)
    if steps != program.body or program.cotangents:
        yield recording.with_program(Program(program.setup, steps))


def _simpler_tensor(best: Callable[[], Recording], key: str) -> Iterator[Recording]:
    spec = best().program.specs[key]
    if DTYPES[spec.dtype].kind == "boolean":
        return
    current = numbers_of(best().tensors[key], spec.dtype)
    for simpler in _whole(current):
        if cost(simpler) < cost(current):
            yield _with(best(), key, spec.dtype, simpler)
            current = numbers_of(best().tensors[key], spec.dtype)
    yield from _blocks(best, key, spec.dtype)
    for i in range(min(current.size, _SINGLE_ELEMENTS)):
        for value in (0.0, 1.0):
            current = numbers_of(best().tensors[key], spec.dtype)
            # Zero is the simplest value: where it was kept, one is not tried any more.
            if current[i] in {0.0, value}:
                break
            single = current.copy()
            single[i] = value
            yield _with(best(), key, spec.dtype, single)


def _blocks(best: Callable[[], Recording], key: str, dtype: str) -> Iterator[Recording]:
    """Set halves, quarters and smaller blocks of a tensor with many elements to zero."""
    count = numbers_of(best().tensors[key], dtype).size
    length = count // 2
    # Smaller tensors are left to the search by single elements, which reaches each of theirs.
    while count > _SINGLE_ELEMENTS and length >= max(1, count // _SMALLEST_BLOCK):
        for start in range(0, count, length):
            current = numbers_of(best().tensors[key], dtype)
            if current[start : start + length].any():
                simpler = current.copy()
                simpler[start : start + length] = 0.0
                yield _with(best(), key, dtype, simpler)
        length //= 2


def _whole(current: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Yield simpler values for a whole tensor, the simplest first."""
    yield np.zeros_like(current)
    yield np.ones_like(current)
    yield np.arange(current.size, dtype=np.float64)
    with np.errstate(all="ignore"):
        # Adding zero turns -0.0 into 0.0.
        yield np.rint(np.clip(current, -SMALL, SMALL)) + 0.0
        yield np.rint(current) + 0.0
        yield np.rint(current * 2) / 2 + 0.0
        yield np.rint(current * 16) / 16 + 0.0


def _with(recording: Recording, key: str, dtype: str, numbers: NDArray[np.float64]) -> Recording:
    with np.errstate(all="ignore"):
        data = rounded_bytes(numbers, PARTS.get(dtype, dtype))
    return recording.with_program(recording.program, {key: data})

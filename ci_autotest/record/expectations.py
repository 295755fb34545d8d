"""Expectations of a body: values, written by hand or computed by another library, with which every side is compared.

An expected value becomes an input of the program, so that replays, repros and other interpreters need neither the
function that computed it nor its library. The reference is compared with it too, because PyTorch may be wrong.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ci_autotest.backends.input_copies import contiguous_spec
from ci_autotest.backends.operators.numpy_functions import array_of
from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import CALL_FUNCTION, EXPECT, Step
from ci_autotest.record.context import outside, recorder_for
from ci_autotest.record.draw.generators import settle
from ci_autotest.record.values import RecordedTensor

if TYPE_CHECKING:
    from ci_autotest.record.recorder import Recorder

_NUMBERS: frozenset[str] = frozenset("biufc")


def expect(y: Any, expected: Any, *args: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """Compare a recorded tensor of PyTorch and of every candidate with an expected value.

    If PyTorch differs, the finding is one of the candidate ``reference``, and fails the run.

    Args:
        y: A recorded tensor.
        expected: A number, an array, a list or a tensor; or a function that returns one, called with ``args``. A number
            stands for a tensor of that number in the shape of ``y``; the result of a function is not expanded.
        args: Arguments of the function; recorded tensors are passed as NumPy arrays, bfloat16 as float32.
        rtol: Ratio to the expected value; give ``atol`` too. By default, the tolerance of the test.
        atol: In the unit of the elements.

    Raises:
        AuthorError: Called outside a test; or ``y`` is no recorded tensor, ``expected`` gives no numbers, or a
            tolerance is wrong.
    """
    recorder = recorder_for("expect")
    if not isinstance(y, RecordedTensor):
        message = f"expect() got {_kind(y)}, which is no recorded tensor. Write expect(torch.exp(x), …) in a test."
        raise AuthorError(message)
    _check_tolerance(rtol, atol)
    expected = settle(recorder.drawer, expected)
    wanted = _wanted(recorder, expected, args)
    if isinstance(expected, int | float | complex | np.generic):
        wanted = wanted.expand(y._tensor.shape)
    source = _like(wanted, y._tensor)
    placeholder = recorder.tensor(source, contiguous_spec(source), "expected")
    name = recorder.steps[y._ref.index].name
    step = Step(CALL_FUNCTION, EXPECT, (y._ref, placeholder._ref, _number(rtol), _number(atol)), (), name)
    recorder.keep(step, placeholder._tensor.clone())


def _check_tolerance(rtol: object, atol: object) -> None:
    if (rtol is None) != (atol is None):
        message = "expect() got only one of rtol and atol. Write both, or neither for the tolerance of the test."
        raise AuthorError(message)
    for name, bound in (("rtol", rtol), ("atol", atol)):
        is_number = isinstance(bound, int | float) and not isinstance(bound, bool) and 0 <= bound < math.inf
        if bound is not None and not is_number:
            message = f"expect({name}={bound!r}) is not a tolerance. Write a number that is 0 or more."
            raise AuthorError(message)


def _wanted(recorder: Recorder, found: Any, args: tuple[Any, ...]) -> torch.Tensor:
    """Return the expected value as a tensor on the host."""
    if callable(found) and not isinstance(found, RecordedTensor | torch.Tensor):
        given = [settle(recorder.drawer, arg) for arg in args]
        arrays = [array_of(arg._tensor) if isinstance(arg, RecordedTensor) else arg for arg in given]
        found = outside(found)(*arrays)
    elif args:
        message = f"expect() got {_kind(found)} and arguments: only a function takes arguments."
        raise AuthorError(message)
    if isinstance(found, RecordedTensor):
        found = found._tensor
    if isinstance(found, torch.Tensor):
        return found.detach().resolve_conj().resolve_neg().to_dense().cpu().clone()
    try:
        array = np.array(found)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in _NUMBERS:
        message = (
            f"expect() got {_kind(found)}, which is no array of numbers. Give numbers, or a function that returns some."
        )
        raise AuthorError(message)
    # torch has no longdouble.
    return torch.from_numpy(array.astype(np.float64) if array.dtype == np.longdouble else array)


def _like(wanted: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return the expected value in the dtype of a value, unless an integer or boolean dtype cannot hold it.

    Then, or if only the expected value is complex, the dtypes differ, which is reported as a difference.
    """
    found = wanted.to(value.dtype) if value.is_complex() or not wanted.is_complex() else wanted
    is_exact = not (found.is_floating_point() or found.is_complex())
    if is_exact and not torch.equal(found.to(wanted.dtype), wanted):
        found = wanted
    return found.contiguous().clone()


def _number(bound: float | None) -> float | None:
    return None if bound is None else float(bound)


def _kind(value: object) -> str:
    return f"{type(value).__name__} {value!r:.60}"

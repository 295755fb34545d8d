"""NumPy arrays: recorded values become arrays, and arrays become inputs.

``.numpy()`` is a step, and its elements are compared. Computations of the body with the array are not recorded; their
results are the same for every candidate. The array is read-only, because a write through it would change the tensor
without a step (SEMANTICS, rules 3 and 14). An array that becomes a tensor is an input with its current elements
(rule 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from ci_autotest.errors import AuthorError
from ci_autotest.record.arguments import split
from ci_autotest.record.context import CURRENT
from ci_autotest.record.draw.generators import NOTHING, settle
from ci_autotest.record.function import Function

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from ci_autotest.record.recorder import Recorder
    from ci_autotest.record.values import RecordedTensor

#: Functions that make a tensor from an array.
MAKERS: Final = frozenset({"torch.from_numpy", "torch.tensor", "torch.as_tensor", "torch.asarray"})


def read_only(tensor: torch.Tensor, kwargs: dict[str, Any]) -> NDArray[Any]:
    """Return an array that shares the tensor's memory and cannot be made writable."""
    array: NDArray[Any] = tensor.numpy(**kwargs)
    return np.asarray(array.data.toreadonly())


class ArrayFunction(Function):
    """A function that makes a tensor; called with an array, it makes an input of the program."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the call: with an array as an input, otherwise as a step."""
        recorder = CURRENT.get()
        if recorder is None or not args or not isinstance(args[0], np.ndarray):
            return super().__call__(*args, **kwargs)
        return _input_of_array(recorder, self, args, kwargs)


def _input_of_array(
    recorder: Recorder, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> RecordedTensor:
    """Record an array as an input; keep the array for ``refuse_written`` if torch's tensor would share its memory."""
    array = args[0]
    # Inputs always lie on the recorder's device, so a move to the device that the body names is a separate step.
    device = settle(recorder.drawer, kwargs.get("device"))
    rest = {name: value for name, value in kwargs.items() if name != "device"}
    more, _, named, _ = split(recorder, (None, *args[1:]), rest, function)
    # Copied, because torch warns about read-only memory, and the data are copied anyway.
    try:
        made = function.real(array.copy(), *more[1:], **named)
    except (TypeError, ValueError) as error:
        message = f"{function.target} of an array with dtype {array.dtype}: {error}"
        raise AuthorError(message) from error
    if function.target != "torch.tensor":
        recorder.outside.shared.append((array, array.tobytes()))
    value = recorder.capture(made)
    return value if device is None or device is NOTHING else cast("RecordedTensor", value.to(device))


def refuse_written(recorder: Recorder) -> None:
    """Refuse a body that wrote to an array after making a tensor of it: in plain torch, both would share memory.

    Raises:
        AuthorError: An array has changed since a tensor was made from it.
    """
    if any(array.tobytes() != before for array, before in recorder.outside.shared):
        message = (
            "an array was changed after torch.from_numpy made a tensor of it, and that write is not recorded. "
            "Write to the tensor, or pass a copy: torch.from_numpy(array.copy())."
        )
        raise AuthorError(message)

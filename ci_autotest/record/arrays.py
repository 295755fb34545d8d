"""NumPy arrays: how a recorded value becomes one, and how one becomes an input.

``.numpy()`` is a step whose elements are compared; what a body computes from the array is its own, and the same for
every candidate. The array is read-only, because a write through it would reach the tensor and be no step (SEMANTICS,
rules 3 and 14). An array enters as an input of the program, with the elements that it has then (rule 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.errors import AuthorError
from ci_autotest.record.context import CURRENT
from ci_autotest.record.function import Function

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from ci_autotest.record.protocol import Recorder
    from ci_autotest.record.values import Value

#: Functions that make a tensor of an array.
MAKERS: Final = frozenset({"torch.from_numpy", "torch.tensor", "torch.as_tensor", "torch.asarray"})


def read_only(tensor: torch.Tensor, kwargs: dict[str, Any]) -> NDArray[Any]:
    """Return the array of a tensor, on the same memory, which can neither be written to nor be made so."""
    array: NDArray[Any] = tensor.numpy(**kwargs)
    return np.asarray(array.data.toreadonly())


class ArrayFunction(Function):
    """Record a function that makes a tensor: of an array, it makes an input of the program."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the tensor of an array as an input, any other call as a step."""
        recorder = CURRENT.get()
        if recorder is None or not args or not isinstance(args[0], np.ndarray):
            return super().__call__(*args, **kwargs)
        return _entered(recorder, self, args, kwargs)


def _entered(recorder: Recorder, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    """Return the tensor of an array as an input; remember the array where torch's own tensor would share its memory."""
    array = args[0]
    # A copy: torch warns of memory that cannot be written to, and the data are copied anyway.
    try:
        made = function.real(array.copy(), *args[1:], **kwargs)
    except (TypeError, ValueError) as error:
        message = f"{function.target} of an array of {array.dtype}: {error}"
        raise AuthorError(message) from error
    if function.target != "torch.tensor":
        recorder.shared.append((array, array.tobytes()))
    value: Value = recorder.capture(made)
    return value


def refuse_written(recorder: Recorder) -> None:
    """Refuse a body that wrote to memory which a tensor of torch's would have seen.

    Raises:
        AuthorError: An array has other elements than when it was made a tensor.
    """
    if any(array.tobytes() != before for array, before in recorder.shared):
        message = (
            "an array that was given to torch.from_numpy was written to afterwards, which is no step. "
            "Write to the tensor, or give a copy: torch.from_numpy(array.copy())."
        )
        raise AuthorError(message)

"""The write guard: a test is broken if its body writes to tensors in a way that was not recorded.

A body holds parameters of its own, of plain ``torch.nn``, beside the recorded values that stand for them. A recorded
backward pass gives them their gradients, as it would without a recording. What an optimizer, or the body itself, then
writes to them is no step: no candidate would repeat it, and the test would be aligned without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import PLACEHOLDER

if TYPE_CHECKING:
    from ci_autotest.record.protocol import Recorder

_INSTEAD: Final = (
    "No candidate would repeat that. Construct the module with the torch of ci_autotest and write the update as steps, "
    "or return the gradients and compare those."
)


#: Around what is done with a body's tensors for the recording itself: it is no step.
unrecorded: Final = torch._C.DisableTorchFunction


def give_gradients(recorder: Recorder) -> None:
    """Give the parameters that a body holds the gradients of what stands for them, after a backward pass.

    Reading one of them is a step: what the body gets is recorded.
    """
    with unrecorded():
        for tensor, value, _ in list(recorder.captured.values()):
            if not (tensor.requires_grad and tensor.is_leaf):
                continue
            real = value._tensor.grad
            if real is None:
                continue
            if id(tensor) not in recorder.given_gradients:
                recorder.given_gradients[id(tensor)] = tensor, tensor.grad
            gradient = value.grad
            plain = real.detach().clone()
            tensor.grad = plain
            recorder.captured[id(plain)] = plain, gradient, plain._version
            recorder.given[id(plain)] = real.detach().clone()


def clear_gradients(recorder: Recorder) -> None:
    """Clear the gradients that the body has cleared on its own parameters, as a step, before another backward pass."""
    for tensor, _ in recorder.given_gradients.values():
        value = recorder.captured[id(tensor)][1]
        if tensor.grad is None and value._tensor.grad is not None:
            value.grad = None


def refuse_unrecorded_writes(recorder: Recorder) -> None:
    """Refuse a body that wrote to a parameter, a leaf, a gradient or a buffer where nothing was recorded.

    A tensor without a gradient that no step has written to is an input of its own each time that plain torch writes it.

    Raises:
        AuthorError: One has other elements than the value that stands for it was given.
    """
    for tensor, value, version in recorder.captured.values():
        is_kept = tensor.requires_grad or id(tensor) in recorder.given
        if is_kept and (tensor._version != version or not holds_source(recorder, tensor, value._ref.index)):
            raise AuthorError(unrecorded_write(tensor))
    for tensor, _ in recorder.given_gradients.values():
        if tensor.grad is None:
            continue
        held = recorder.captured.get(id(tensor.grad))
        if (
            held is None
            or held[2] != tensor.grad._version
            or not holds_source(recorder, tensor.grad, held[1]._ref.index)
        ):
            raise AuthorError(unrecorded_write(tensor, "the gradient of "))


def unrecorded_write(tensor: torch.Tensor, what: str = "") -> str:
    """Return the sentence that says that a tensor was written to where nothing was recorded."""
    kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "leaf" if tensor.requires_grad else "tensor"
    dtype = str(tensor.dtype).removeprefix("torch.")
    named = f"{what}a {kind} of the body's own, {dtype}{list(tensor.shape)},"
    return f"{named} was written to where nothing was recorded, which vanishes. {_INSTEAD}"


def holds_source(recorder: Recorder, tensor: torch.Tensor, index: int) -> bool:
    """Whether a tensor holds what it was given last; a write through ``.data`` moves no version counter."""
    source = recorder.given.get(id(tensor))
    if source is None:
        step = recorder.steps[index]
        assert step.op == PLACEHOLDER  # noqa: S101 - what was captured and given nothing is an input
        source = recorder.sources[step.target]
    with unrecorded():
        now = tensor.detach()
        return now.shape == source.shape and bool(((now == source) | ((now != now) & (source != source))).all())  # noqa: PLR0124 - NaN

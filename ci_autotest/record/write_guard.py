"""The write guard: a test is broken if its body writes to tensors and the write is not recorded.

A body may hold plain parameters of ``torch.nn``, each of which represents a recorded value. A recorded backward pass
gives them their gradients, as plain torch would. If a later write to them is not recorded, no candidate repeats it. The
test could then be aligned although the candidate would get that write wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.sameness import is_same
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.doc_links import Page, more
from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import PLACEHOLDER

if TYPE_CHECKING:
    from ci_autotest.record.recorder import Recorder

_INSTEAD: Final = (
    "No candidate would repeat that. Construct the module with ci_autotest's torch and update its parameters with "
    "in-place operators, or return the gradients and compare those."
)


#: Context of our own operations on plain tensors of the body, which must not be recorded.
unrecorded: Final = torch._C.DisableTorchFunction


def give_gradients(recorder: Recorder) -> None:
    """Give the plain parameters of a body the gradients of their recorded values, after a backward pass.

    Each gradient is read as a step, so that the plain gradient represents a recorded value.
    """
    with unrecorded():
        for tensor, value, _ in list(recorder.outside.captured.values()):
            if not (tensor.requires_grad and tensor.is_leaf):
                continue
            real = value._tensor.grad
            if real is None:
                continue
            if id(tensor) not in recorder.outside.given_gradients:
                recorder.outside.given_gradients[id(tensor)] = tensor, tensor.grad
            gradient = value.grad
            # A copy, so that the body's writes to it do not reach the recorded gradient.
            plain = real.detach().clone()
            tensor.grad = plain
            recorder.outside.captured[id(plain)] = plain, gradient, plain._version
            recorder.outside.given[id(plain)] = real.detach().clone()


def clear_gradients(recorder: Recorder) -> None:
    """Record the clearing of gradients that the body has cleared on plain parameters, before a new backward pass."""
    for tensor, _ in recorder.outside.given_gradients.values():
        value = recorder.outside.captured[id(tensor)][1]
        if tensor.grad is None and value._tensor.grad is not None:
            value.grad = None


def refuse_unrecorded_writes(recorder: Recorder) -> None:
    """Refuse a body with a write to a parameter, leaf, gradient or buffer that was not recorded.

    A tensor that does not require grad and that no step has written to may change: it then becomes a new input.

    Raises:
        AuthorError: A plain tensor has other elements than the recorded value that it represents.
    """
    for tensor, value, version in recorder.outside.captured.values():
        is_kept = tensor.requires_grad or id(tensor) in recorder.outside.given
        if is_kept and (tensor._version != version or not holds_source(recorder, tensor, value._ref.index)):
            raise AuthorError(unrecorded_write(tensor))
    for tensor, _ in recorder.outside.given_gradients.values():
        if tensor.grad is None:
            continue
        held = recorder.outside.captured.get(id(tensor.grad))
        if (
            held is None
            or held[2] != tensor.grad._version
            or not holds_source(recorder, tensor.grad, held[1]._ref.index)
        ):
            raise AuthorError(unrecorded_write(tensor, "the gradient of "))


def unrecorded_write(tensor: torch.Tensor, owner: str = "") -> str:
    """Return the message about a write to a tensor that was not recorded."""
    kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "leaf" if tensor.requires_grad else "tensor"
    dtype = DTYPE_NAMES[tensor.dtype]
    subject = f"{owner}a plain {kind} of the body, {dtype}{list(tensor.shape)},"
    return f"{subject} was changed by a write that was not recorded. {_INSTEAD}{more(Page.UNRECORDED_WRITE)}"


def holds_source(recorder: Recorder, tensor: torch.Tensor, index: int) -> bool:
    """Return true if a tensor still has its known elements; a write to ``.data`` does not change its version."""
    source = recorder.outside.given.get(id(tensor))
    if source is None:
        step = recorder.steps[index]
        assert step.op == PLACEHOLDER  # noqa: S101 - a captured tensor that got no elements is an input
        source = recorder.sources[step.target]
    with unrecorded():
        return is_same(tensor, source)

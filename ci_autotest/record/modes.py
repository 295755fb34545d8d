"""Modes that each step stores: ``no_grad`` and autocast.

A mode is a string: ``no_grad``, or for example ``autocast:bfloat16``, which applies to the backend's kind of device.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

import torch
from torch.nn.modules._functions import BackwardHookFunction

from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import NO_GRAD, autocast_mode
from ci_autotest.record.autograd_functions import is_traced

if TYPE_CHECKING:
    from types import FrameType

_with_grad: Final = torch.is_grad_enabled
_any_autocast: Final = torch._C._is_any_autocast_enabled
_DEVICES: Final = ("cpu", "cuda")
#: Number of stack frames in which ``apply`` of a user's autograd function is searched for.
_FRAMES: Final = 12
_HOOK_OF_A_PLAIN_MODULE: Final = (
    "a backward hook of a plain module is not recorded. Construct the module with ci_autotest's torch, or register the "
    "hook on a tensor."
)
_DEFINED_INSIDE: Final = (
    "a torch.autograd.Function that is defined inside the body was applied to a recorded tensor, so its backward would "
    "not be compared. Define the class outside of the body."
)


def modes() -> tuple[str, ...]:
    """Return the current modes; empty by default.

    Raises:
        AuthorError: A mode cannot be recorded, or the call comes from an ``autograd.Function`` that is not traced.
    """
    # Called for every step, so the usual case is checked first.
    if _with_grad() and not _any_autocast():
        return ()
    return (() if _with_grad() else _without_grad()) + (_autocast() if _any_autocast() else ())


def _autocast() -> tuple[str, ...]:
    on = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
    if len(on) != 1:
        message = f"autocast is on for {', '.join(on) or 'another device'}. Turn it on for either cpu or cuda."
        raise AuthorError(message)
    dtype = DTYPE_NAMES[torch.get_autocast_dtype(on[0])]
    return (autocast_mode(dtype),)


def _without_grad() -> tuple[str, ...]:
    """Return the mode of a step without gradients.

    Raises:
        AuthorError: The step belongs to an ``autograd.Function`` that is not traced, so its backward would never run.
    """
    if torch.is_inference_mode_enabled():
        message = "torch.inference_mode is not recorded: use torch.no_grad()."
        raise AuthorError(message)
    frame = inspect.currentframe()
    for _ in range(_FRAMES):
        frame = frame.f_back if frame is not None else None
        function = _untraced(frame)
        if function is not None:
            is_hook = function is BackwardHookFunction
            raise AuthorError(_HOOK_OF_A_PLAIN_MODULE if is_hook else _DEFINED_INSIDE)
    return NO_GRAD


def _untraced(frame: FrameType | None) -> type | None:
    """Return the class of an ``apply`` frame if the class is not traced: it is torch's own, or defined in the body."""
    if frame is None or not frame.f_code.co_filename.endswith("torch/autograd/function.py"):
        return None
    function: type = frame.f_locals["cls"] if frame.f_code.co_name == "apply" else type(None)
    return None if function is type(None) or is_traced(function) else function

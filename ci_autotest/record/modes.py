"""Modes: autocast, no_grad and others, stored with each step.

A mode is text: ``no_grad``, or ``autocast:bfloat16`` for the kind of device that a backend uses.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import NO_GRAD, autocast_mode
from ci_autotest.record.autograd_functions import is_traced

if TYPE_CHECKING:
    from types import FrameType

_with_grad: Final = torch.is_grad_enabled
_any_autocast: Final = torch._C._is_any_autocast_enabled
_DEVICES: Final = ("cpu", "cuda")
#: Frames that are looked at for a user's autograd function.
_FRAMES: Final = 12


def modes() -> tuple[str, ...]:
    """Return the modes in force; empty for the default.

    Raises:
        AuthorError: A mode that no step can hold, or the forward of an ``autograd.Function`` is being recorded.
    """
    if _with_grad() and not _any_autocast():
        return ()
    return (() if _with_grad() else _without_grad()) + (_autocast() if _any_autocast() else ())


def _autocast() -> tuple[str, ...]:
    on = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
    if len(on) != 1:
        message = f"autocast is on for {', '.join(on) or 'another device'}: record one of cpu and cuda at a time."
        raise AuthorError(message)
    dtype = str(torch.get_autocast_dtype(on[0])).removeprefix("torch.")
    return (autocast_mode(dtype),)


def _without_grad() -> tuple[str, ...]:
    """Return the mode of a step without gradients; refuse one inside a user's autograd function.

    Raises:
        AuthorError: The forward of an ``autograd.Function`` is being recorded: its backward would never be run.
    """
    if torch.is_inference_mode_enabled():
        message = "torch.inference_mode is not recorded: use torch.no_grad()."
        raise AuthorError(message)
    frame = inspect.currentframe()
    for _ in range(_FRAMES):
        frame = frame.f_back if frame is not None else None
        if _is_of_a_function(frame):
            message = (
                "a torch.autograd.Function that is defined inside the body was applied to a recorded tensor: "
                "its backward would not be compared. Define the class outside of the body."
            )
            raise AuthorError(message)
    return NO_GRAD


def _is_of_a_function(frame: FrameType | None) -> bool:
    """Whether a frame is of ``apply`` of a class that is not traced: one that was made after the body began."""
    if frame is None or not frame.f_code.co_filename.endswith("torch/autograd/function.py"):
        return False
    return frame.f_code.co_name == "apply" and not is_traced(frame.f_locals["cls"])

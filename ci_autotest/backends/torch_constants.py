"""What torch's own values that are no tensors are in a program: dtypes, devices, layouts and memory formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.program.check import CONSTANTS
from ci_autotest.program.ir import HOST_DEVICE, OWN_DEVICE, Device, DType, FrameworkConstant

if TYPE_CHECKING:
    from ci_autotest.program.ir import Argument

#: The name of each dtype without its framework.
DTYPE_NAMES: Final[dict[torch.dtype, str]] = {
    value: str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)
}
_CONSTANTS: Final = {getattr(torch, target.removeprefix("torch.")): FrameworkConstant(target) for target in CONSTANTS}


def argument_of(value: Any) -> Argument | None:
    """Return the argument of a program for a dtype, device, layout or memory format of torch; ``None`` for others."""
    if isinstance(value, torch.dtype):
        return DType(DTYPE_NAMES[value])
    if isinstance(value, torch.device):
        return Device(HOST_DEVICE if value.type == "cpu" else OWN_DEVICE)
    if isinstance(value, torch.memory_format | torch.layout):
        return _CONSTANTS.get(value)
    return None

"""The one table of backends by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.fx import FxBackend
from ci_autotest.backends.substitute import SubstituteBackend
from ci_autotest.backends.torch_compile import CompileBackend
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.config import Candidate

_BUILDERS: Final[Mapping[str, Callable[[Candidate, str], Backend]]] = {
    "torch": lambda _, device: TorchBackend(device),
    "torch.compile": lambda candidate, device: CompileBackend(candidate.options, device),
    "fx": lambda candidate, device: FxBackend(candidate.transform, device),
    "substitute": lambda candidate, device: SubstituteBackend(candidate.replace, device),
}


def available_device(device: str) -> str:
    """Return ``cpu`` or ``cuda``: ``auto`` takes what is there."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def build(candidate: Candidate, device: str) -> Backend:
    """Return a candidate's backend, its device proved by a computation.

    Raises:
        UnavailableError: The device is not there, or a module cannot be imported.
    """
    prove(device, f"candidate '{candidate.name}'")
    return _BUILDERS[candidate.backend](candidate, device)


def prove(device: str, who: str) -> None:
    """Compute something on a device.

    Raises:
        UnavailableError: It cannot be done.
    """
    if device == "cpu":
        return
    try:
        total = float(torch.ones(8, device=device).sum())
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".")
        message = (
            f"{who} asks for device '{device}', which torch {torch.__version__} cannot use here ({reason}). "
            "Run on a machine that has one, or ask for cpu."
        )
        raise UnavailableError(message) from error
    if total != 8.0:  # noqa: PLR2004 - the sum of eight ones
        message = f"{who}: device '{device}' computes {total} for the sum of eight ones."
        raise UnavailableError(message)

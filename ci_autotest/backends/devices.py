"""Devices of torch: the CPU, a GPU, or a device that a package registers when it is imported (PrivateUse1).

All devices are handled alike: a computation proves that a device works before anything else runs on it, torch's module
for the kind of device seeds it, and a missing kernel makes a case unsupported.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.errors import (
    OutOfScopeError,
    UnavailableError,
    Unsupported,
    UnsupportedReason,
    error_text,
    import_failure,
    is_in_user_code,
    is_of_library,
    user_frame_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ci_autotest.kinds import AnyCandidate, DeviceCandidate

_ELEMENTS: Final = 8
_TORCH: Final = Path(torch.__file__).resolve().parent


def available_device(device: str, count: int = 1) -> str:
    """Return the requested device; ``auto`` is ``cuda`` if there are as many as ``count``, else ``cpu``."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() and torch.cuda.device_count() >= count else "cpu"


def device_of(candidate: AnyCandidate) -> str:
    """Return the device of a candidate; for ``auto``, ranks are on GPUs only if each can have one."""
    return available_device(candidate.device, candidate.rank_count)


def use_one_thread() -> None:
    """Let torch use one thread, for a fork: the others are not there, and waiting for one would never end."""
    torch.set_num_threads(1)


def prefer_reproducible() -> None:
    """Select full precision on GPUs, and deterministic algorithms where they exist."""
    # TF32 keeps ten bits of a float32: such differences are no faults of a kernel.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    # A benchmark chooses the algorithm by its time, so that a repeated run could give other numbers.
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def attach(candidate: DeviceCandidate, device: str) -> None:
    """Import the module that registers a candidate's device, if it names one, and prove the device.

    Raises:
        UnavailableError: The module cannot be imported or registers no such device, or the device cannot be used.
    """
    who = f"candidate '{candidate.name}'"
    if candidate.module:
        _register(candidate.module, device, who)
    prove(device, who)


def _register(module: str, device: str, who: str) -> None:
    """Import a module that registers a device.

    Raises:
        UnavailableError: It cannot be imported, or it does not register the device.
    """
    try:
        importlib.import_module(module)
    # The module is the user's choice, and its import may also call `sys.exit`.
    except (Exception, SystemExit) as error:
        reason = import_failure(error, module)
        message = f"{who}: module '{module}' of device '{device}' cannot be imported: {reason}"
        raise UnavailableError(message) from error
    try:
        torch.device(device)
    except RuntimeError as error:
        own = torch._C._get_privateuse1_backend_name()
        message = (
            f"{who}: module '{module}' was imported and registers no device '{device}'. "
            f"The registered device is '{own}': write device: {own}, or the module that registers '{device}'."
            if own != "privateuseone"
            else f"{who}: module '{module}' was imported and registers no device '{device}', nor any other. "
            f"Write the module that registers '{device}'."
        )
        raise UnavailableError(message) from error


def prove(device: str, who: str) -> None:
    """Move numbers to a device, add them there, and read the result back.

    Raises:
        UnavailableError: That fails, happens on another device, or gives a wrong result.
    """
    if device == "cpu":
        return
    # A package may register a device without any hardware, or compute on the CPU; only a computation shows it.
    try:
        placed = torch.ones(_ELEMENTS).to(device)
        doubled = placed + placed
        found = doubled.cpu()
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        message = (
            f"{who}: torch {torch.__version__} cannot use device '{device}' here ({reason}). "
            "Run on a machine that has one, or ask for cpu."
        )
        raise UnavailableError(message) from error
    for subject, tensor in (("a tensor that was moved there", placed), ("the sum of two tensors on it", doubled)):
        if tensor.device.type != torch.device(device).type:
            message = f"{who}: device '{device}' falls back: {subject} is on '{tensor.device.type}'."
            raise UnavailableError(message)
    if found.tolist() != [2.0] * _ELEMENTS:
        message = f"{who}: device '{device}' computes {found.tolist()} for 1 + 1, {_ELEMENTS} times."
        raise UnavailableError(message)


def module_of(device: torch.device | str) -> Any:
    """Return torch's module for a kind of device, for example ``torch.cuda``; ``None`` if there is none."""
    kind = torch.device(device).type
    return None if kind == "cpu" else getattr(torch, kind, None)


def versions(module: str) -> dict[str, str]:
    """Return the version of an imported module that registers a device, by its name; empty if it has no version."""
    version = getattr(sys.modules.get(module), "__version__", None)
    return {module: str(version)} if version is not None else {}


def seed(device: torch.device, number: int) -> None:
    """Seed the generators of a device, if it has any."""
    manual_seed = getattr(module_of(device), "manual_seed_all", None)
    if manual_seed is not None:
        manual_seed(number)


def devices_here(*asked: str) -> list[str]:
    """Return the kinds of devices that are available here."""
    own = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    return list(dict.fromkeys([*own, *asked]))


def lacking(error: BaseException) -> Unsupported | None:
    """Return that a step's error means that a kernel is missing or not implemented; ``None`` if it means anything else.

    If torch's compiled library raises ``NotImplementedError``, the device has no such kernel, whatever the message. If
    the error passed through a function of the user's, or Python code raised it, that function is not implemented.
    """
    if isinstance(error, OutOfScopeError):
        return error.why
    if not isinstance(error, NotImplementedError):
        return None
    if is_of_library(error) and not is_in_user_code(error, _TORCH):
        return Unsupported(UnsupportedReason.NO_KERNEL, error_text(error).partition(". ")[0].strip()[:300])
    detail = f"{type(error).__name__}: {error_text(error)[:300]}{user_frame_text(error)}"
    return Unsupported(UnsupportedReason.NOT_IMPLEMENTED, detail)


def lacks(operator: str, device: str) -> str:
    """Return that a device has no kernel of an operator, according to torch's dispatcher; empty if it has one.

    An operator that torch composes of others counts as present, unless the operator with the kernel has a related name,
    as in ``_softmax`` or ``native_layer_norm``.

    Args:
        operator: Canonical name, for example ``torch.nn.functional.softmax``.
        device: Kind of the device.
    """
    has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    key = torch._C._dispatch_key_for_device(torch.device(device).type)
    name = operator.rpartition(".")[2]
    spelled = (pattern.format(name) for pattern in ("{}", "{}_", "_{}", "native_{}", "linalg_{}", "special_{}"))
    # Without a CPU kernel, an operator is composed of others and works wherever they do.
    kernels = [overload for each in spelled for overload in _overloads(each) if has(overload, "CPU")]
    if not kernels or any(has(overload, key) for overload in kernels):
        return ""
    return f"device '{device}' has no kernel of {kernels[0]}"


def _overloads(name: str) -> list[str]:
    """Return the overloads of an aten operator that the dispatcher knows."""
    packet: Any = getattr(torch.ops.aten, name, None)
    names: Iterable[str] = packet.overloads() if packet is not None else ()
    found = [f"aten::{name}" if overload == "default" else f"aten::{name}.{overload}" for overload in names]
    return [overload for overload in found if torch._C._dispatch_has_kernel(overload)]

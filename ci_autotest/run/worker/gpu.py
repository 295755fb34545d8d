"""The worker's GPU: set up for reproducible results; the worker ends when it only returns errors.

An error of a GPU stays with its process: every later call fails too. So the worker ends itself in the
case that shows it first, which is then run again alone, as after a crash.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ci_autotest.run.worker_loss import RETIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def prepare(torch: Any) -> None:
    """Ask for deterministic algorithms where they exist, and for full precision."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def is_spoiled(device: Any) -> bool:
    """Whether a device that was used answers with errors now; one that cannot be waited for does not say.

    Source:
        ``torch.cuda``; what a package registers (``torch._register_device_module``) need not have all of it.
    """
    is_used = getattr(device, "is_initialized", None)
    wait = getattr(device, "synchronize", None)
    if wait is None or (is_used is not None and not is_used()):
        return False
    try:
        wait()
    except Exception:  # noqa: BLE001 - whatever the driver says
        return True
    return False


def retire_if_spoiled(devices: Sequence[Any], leave: Callable[[int], object] = os._exit) -> None:
    """End this process when a device of its answers with errors: what it would say of later cases is worth nothing."""
    if any(is_spoiled(device) for device in devices):
        leave(RETIRED)

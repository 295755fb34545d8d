"""The worker's GPU: the worker ends itself if it only returns errors.

After an error of a GPU every later call in the same process fails too. So the worker ends itself in the case that shows
the error first, and that case runs again alone, as after a crash.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ci_autotest.run.worker_loss import RETIRED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def is_spoiled(device: Any) -> bool:
    """Whether a device that was used returns errors now. A device without ``synchronize`` cannot be checked.

    Source:
        ``torch.cuda``; a module that a package registers (``torch._register_device_module``) may lack parts of it.
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
    """End this process if one of its devices returns errors, because its results for later cases would mean nothing."""
    if any(is_spoiled(device) for device in devices):
        leave(RETIRED)

"""The worker's GPU: set up for reproducible results, and given up when it answers with nothing but errors.

A CUDA error stays with its process: every later call fails too. So the worker ends itself in the
case that shows it first, which is then run again alone, as after a crash.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Exit status of a worker that gives its GPU up.
RETIRED: Final = 86


def prepare(torch: Any) -> None:  # noqa: ANN401 - the module
    """Ask for deterministic algorithms where they exist, and for full precision."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def is_spoiled(cuda: Any) -> bool:  # noqa: ANN401 - torch.cuda
    """Whether a GPU that was used answers with errors now."""
    if not cuda.is_initialized():
        return False
    try:
        cuda.synchronize()
    except Exception:  # noqa: BLE001 - whatever the driver says
        return True
    return False


def retire_if_spoiled(cuda: Any, leave: Callable[[int], object] = os._exit) -> None:  # noqa: ANN401 - torch.cuda
    """End this process when its GPU answers with errors: what it would say of later cases is worth nothing."""
    if is_spoiled(cuda):
        leave(RETIRED)

"""The process that started this one: this one ends with it, where the system can see to that (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

#: Source: prctl(2).
_PR_SET_PDEATHSIG: Final = 1


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends for whatever reason."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have ended before the system was asked.
    if os.getppid() != parent:
        os._exit(0)

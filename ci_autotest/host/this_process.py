"""This process for the system: it ends with the process that started it, and is listed under the name of its rank.

``top`` shows the name, by which the parent finds a rank: a worker, its host and its ranks have the same command line.
Source: prctl(2), proc(5); Linux only.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_RANK: Final = re.compile(r"rank [0-9]{1,4}")


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends for whatever reason."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have ended before the system was asked.
    if os.getppid() != parent:
        os._exit(0)


def name_rank(rank: int) -> None:
    """Name this process as a rank."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, f"rank {rank}".encode(), 0, 0, 0)


def is_rank(name: str) -> bool:
    """Whether a process has the name of a rank."""
    return _RANK.fullmatch(name) is not None

"""The name of a rank's process, by which the system lists it: ``top`` shows it, and the parent finds it there.

A worker, its host and its ranks have the same command line. Source: prctl(2), proc(5); Linux only.
"""

from __future__ import annotations

import ctypes
import re
import sys
from typing import Final

_PR_SET_NAME: Final = 15
_RANK: Final = re.compile(r"rank [0-9]{1,4}")


def name_rank(rank: int) -> None:
    """Name this process as a rank."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, f"rank {rank}".encode(), 0, 0, 0)


def is_rank(name: str) -> bool:
    """Whether a process has the name of a rank."""
    return _RANK.fullmatch(name) is not None

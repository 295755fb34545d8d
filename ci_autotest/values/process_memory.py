"""Memory of a process, as the system knows it. Source: proc(5)."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process.

    Raises:
        OSError: There is no such process.
        ValueError: The system has written something else.
    """
    fields = (_PROC / str(pid) / "statm").read_bytes().split()
    if len(fields) < 2:  # noqa: PLR2004 - the size, then the resident part
        message = f"statm of process {pid} is empty"
        raise ValueError(message)
    return int(fields[1]) * mmap.PAGESIZE


def share_bytes(pid: int) -> int:
    """Return the memory of a process, with its share of what several have; all of it if that is not told."""
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text("ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError, IndexError, StopIteration):
        # This system does not tell it, or the process has ended: then it holds nothing.
        try:
            return resident_bytes(pid)
        except (OSError, ValueError):
            return 0

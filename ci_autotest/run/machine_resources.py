"""This machine: its cores, memory and GPUs, and how many workers they allow. Imports no framework."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_GIB: Final = 1 << 30
#: GPU memory that one worker needs for a CUDA context and the tensors of a test.
GPU_BYTES_PER_WORKER: Final = 4 * _GIB
#: More workers than this do not help one GPU: its kernels are short, and the host is the slow side.
_WORKERS_PER_GPU: Final = 4
#: Every worker may hold this much resident memory, because a framework alone takes half a GiB.
_LEAST_BYTES: Final = _GIB
_QUERY: Final = ("nvidia-smi", "--query-gpu=index,uuid,memory.free", "--format=csv,noheader,nounits")
_QUERY_S: Final = 20


class Gpu(NamedTuple):
    """A GPU: its name in ``CUDA_VISIBLE_DEVICES``, and the bytes that are free on it."""

    name: str
    free_bytes: int


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes(workers: int) -> int:
    """Return the resident memory that each worker may hold; 0 (no limit) if the system does not report its memory."""
    total = min((size for size in (_of_machine(), _of_group()) if size), default=0)
    # One more share is for the parent and the system.
    return max(_LEAST_BYTES, total // (workers + 1)) if total else 0


def _of_machine() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


def _of_group() -> int:
    """Return the memory limit of this process's control group, or 0. Source: Linux kernel, cgroup-v2 and cgroup-v1."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int(Path(path).read_text(encoding="ascii"))
        # Without a limit the file of cgroup v2 has the word `max`.
        except (OSError, ValueError):
            continue
    return 0


def gpus(environ: Mapping[str, str], query: Sequence[str] = _QUERY) -> list[Gpu]:
    """Return the usable GPUs: those that the driver lists, restricted by ``CUDA_VISIBLE_DEVICES``."""
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_QUERY_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return visible(done.stdout, environ.get("CUDA_VISIBLE_DEVICES"))


def visible(listing: str, restricted: str | None) -> list[Gpu]:
    """Return the GPUs of a listing whose lines hold index, uuid and free MiB.

    A restriction decides their order. Its first unknown name hides all names after it, as in the CUDA runtime.
    """
    rows = [[cell.strip() for cell in line.split(",")] for line in listing.splitlines() if line.count(",") == 2]  # noqa: PLR2004
    known = [(index, Gpu(uuid, int(free) << 20)) for index, uuid, free in rows if free.isdigit()]
    if restricted is None:
        return [gpu for _, gpu in known]
    found = []
    for name in filter(None, (part.strip() for part in restricted.split(","))):
        gpu = next((gpu for index, gpu in known if name == index or gpu.name.startswith(name)), None)
        if gpu is None:
            break
        found.append(gpu)
    return found


def slots(workers: int | None, own_cores: int, devices: Sequence[Gpu], together: int = 1) -> list[dict[str, str]]:
    """Return the environment variables of each worker: one worker per core, or on GPUs workers that see some GPUs each.

    Args:
        workers: Number of workers; ``None`` takes as many as the machine allows.
        own_cores: Cores of this machine.
        devices: GPUs to use; empty to run on the CPU.
        together: Number of GPUs that each worker sees; all of them if there are not as many.
    """
    if not devices:
        return [{} for _ in range(workers or own_cores)]
    starts = range(0, max(1, len(devices) - together + 1), together)
    groups = [devices[start : start + together] for start in starts]
    if workers is not None:
        chosen = [groups[i % len(groups)] for i in range(workers)]
    else:
        # Kernels of nccl wait for their peers on the GPU, so that a second group there would keep both waiting.
        most = 1 if together > 1 else min(max(1, own_cores // len(groups)), _WORKERS_PER_GPU)
        chosen = [group for group in groups for _ in range(min(*map(_room, group), most))]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(gpu.name for gpu in group)} for group in chosen]


def _room(gpu: Gpu) -> int:
    return max(1, gpu.free_bytes // GPU_BYTES_PER_WORKER)

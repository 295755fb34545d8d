"""This machine: cores, memory and GPUs, and how many workers they allow. Imports no framework."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_GIB: Final = 1 << 30
#: GPU memory that one worker should have: a CUDA context, and tensors of a test.
GPU_BYTES_PER_WORKER: Final = 4 * _GIB
#: Workers of one GPU at most: its kernels are short, the host is what is slow.
_WORKERS_PER_GPU: Final = 4
#: Resident memory that a worker may hold at least: a framework takes half a GiB itself.
_LEAST_BYTES: Final = _GIB
_QUERY: Final = ("nvidia-smi", "--query-gpu=index,uuid,memory.free", "--format=csv,noheader,nounits")
_QUERY_S: Final = 20


class Gpu(NamedTuple):
    """Name a GPU as ``CUDA_VISIBLE_DEVICES`` does, and say how many bytes are free on it."""

    name: str
    free_bytes: int


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes(workers: int) -> int:
    """Return the resident memory that each of some workers may hold; 0, no limit, where the system does not say."""
    total = min((size for size in (_of_machine(), _of_group()) if size), default=0)
    # One share is left for the parent and the system.
    return max(_LEAST_BYTES, total // (workers + 1)) if total else 0


def _of_machine() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


def _of_group() -> int:
    """Return the limit of this process's control group, 0 for none. Source: kernel, cgroup-v2 and cgroup-v1."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int(Path(path).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
    return 0


def gpus(environ: Mapping[str, str], query: Sequence[str] = _QUERY) -> list[Gpu]:
    """Return the GPUs that may be used: those of the driver, restricted as ``CUDA_VISIBLE_DEVICES`` says."""
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_QUERY_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return visible(done.stdout, environ.get("CUDA_VISIBLE_DEVICES"))


def visible(listing: str, restricted: str | None) -> list[Gpu]:
    """Return the GPUs of a listing, one a line: index, uuid, free MiB; in the order of the restriction where one is.

    As the CUDA runtime does, everything from the first name that is not there on is left out.
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


def slots(workers: int | None, own_cores: int, devices: Sequence[Gpu]) -> list[dict[str, str]]:
    """Return the variables of each worker: without GPUs one worker a core, with them each sees one.

    Args:
        workers: As many as were asked for; ``None`` for as many as the machine allows.
        own_cores: Cores of this machine.
        devices: GPUs to be used; none for work on the CPU.
    """
    if not devices:
        return [{} for _ in range(workers or own_cores)]
    if workers is not None:
        names = [devices[i % len(devices)].name for i in range(workers)]
    else:
        share = max(1, own_cores // len(devices))
        names = [gpu.name for gpu in devices for _ in range(min(_room(gpu), share, _WORKERS_PER_GPU))]
    return [{"CUDA_VISIBLE_DEVICES": name} for name in names]


def _room(gpu: Gpu) -> int:
    return max(1, gpu.free_bytes // GPU_BYTES_PER_WORKER)

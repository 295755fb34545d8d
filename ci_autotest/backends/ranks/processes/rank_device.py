"""Where ranks run: on the CPU, where they communicate by gloo, or each on a GPU of its own, where they do by nccl.

A process that has used a GPU cannot be forked into one that does. So ranks on GPUs come from a server in an interpreter
of its own (``gpu_ranks``), and no other process of a run needs a GPU for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.devices import prefer_reproducible
from ci_autotest.backends.input_copies import CPU
from ci_autotest.errors import UnavailableError

if TYPE_CHECKING:
    from ci_autotest.kinds import RankCandidate

#: How ranks communicate, by the kind of device that they are on.
COMMUNICATION: Final = {"cpu": "gloo", "cuda": "nccl"}
#: All kinds of devices in one group: a wrapper of the user's may send numbers on the CPU too.
_ON_GPUS: Final = "cpu:gloo,cuda:nccl"


def check_devices(candidate: RankCandidate, gpus: int) -> None:
    """Refuse ranks on a device that not every one of them can have.

    Args:
        candidate: The candidate; its device is that of each rank.
        gpus: Number of GPUs that ranks can have.

    Raises:
        UnavailableError: Ranks cannot be on that device, or there are fewer GPUs than ranks.
    """
    named, device, count = f"candidate '{candidate.name}'", candidate.device, candidate.rank_count
    if device not in COMMUNICATION:
        message = f"{named}: ranks run on cpu or cuda, not on '{device}'. Write device: cpu."
        raise UnavailableError(message)
    if device != "cpu" and gpus < count:
        there = f"there {'is' if gpus == 1 else 'are'} {gpus or 'none'}"
        message = (
            f"{named}: {count} ranks on {device} need {count} GPUs, one for each rank, and {there}. "
            "Write device: cpu, or run it where there are as many."
        )
        raise UnavailableError(message)


def device_of_rank(device: str, local: int) -> torch.device:
    """Return the device of a rank, which its process uses from now on.

    Args:
        device: Kind of the device.
        local: Number of the rank on its machine.
    """
    if device == "cpu":
        return CPU
    found = torch.device(device, local)
    torch.cuda.set_device(found)
    prefer_reproducible()
    # Ranks must hold the same bits, and sums by atomic operations have another order on each of them.
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return found


def group_of(device: torch.device) -> str:
    """Return the backend of the process group for ranks on a device."""
    return COMMUNICATION["cpu"] if device is CPU else _ON_GPUS


def finish(device: torch.device) -> None:
    """Wait until a device has done all that it was given: a collective on a GPU returns before it is done."""
    if device is CPU:
        return
    # Without spinning, which would look like work: the worker must see that a rank waits.
    event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record()
    event.synchronize()


def is_usable(device: torch.device) -> bool:
    """Whether a device has done all that it was given without an error that makes every later call fail."""
    try:
        finish(device)
    except RuntimeError:
        return False
    return True

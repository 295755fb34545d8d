"""How a repro starts its ranks, each in a process of its own, and says how they ended.

What a rank runs is the script's own ``work``. A fork server imports the script once, and the ranks are forked from it.
A rank that is done, or has raised, stays until the script has heard of all of them: if it ended, others would raise
because it is gone.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable

#: Number of ranks.
RANKS: int
#: Whether each rank has a GPU.
ON_GPUS: bool
#: Seconds without a move after which a group is ended; the second if all of its ranks wait in a collective.
LONGEST_S: int
SILENCE_S: int
#: Returns what a rank, by its number, has after it has run the candidate.
work: Callable[[int], Any]


class CollectiveWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down the collective that a rank has entered last."""

    def __init__(self, path: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path = path
        # Those of c10d return before they are done on GPUs.
        self.at_once = ("_dtensor",) if ON_GPUS else ("_dtensor", "c10d")

    def enter(self, name: str) -> None:
        """Write down a collective; an empty name if the rank is in none."""
        with open(self.path, "w") as file:
            file.write(name.strip("_"))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(each, DTensor) for each in types):  # it comes here again, with plain tensors
            return NotImplemented
        is_collective = func.namespace.removesuffix("_autograd") in ("c10d", "_c10d_functional", "_dtensor")
        name = func.overloadpacket.__name__
        if is_collective and name not in ("wait_tensor", "_wrap_tensor_autograd"):
            self.enter(name)
        found = func(*args, **(kwargs or {}))
        is_pending = any(issubclass(each, AsyncCollectiveTensor) for each in types)  # an operator on it waits inside
        leaves = torch.utils._pytree.tree_leaves(found)
        has_waited = is_pending and not any(isinstance(each, AsyncCollectiveTensor) for each in leaves)
        if has_waited or (is_collective and (name == "wait_tensor" or func.namespace in self.at_once)):
            if ON_GPUS:
                torch.cuda.synchronize()
            self.enter("")
        return found


def end_with(script: Any) -> None:
    """End this process when another one has ended."""
    script.join()
    os._exit(3)


def be_rank(rank: int, folder: str) -> None:
    """Be one rank: a process of its own, which ends with the script."""
    script, path = multiprocessing.parent_process(), os.path.join(folder, str(rank))
    assert script is not None
    threading.Thread(target=end_with, args=(script,), daemon=True).start()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
    store = torch.distributed.FileStore(os.path.join(folder, "store"), RANKS)  # type: ignore[attr-defined]
    if ON_GPUS:
        torch.cuda.set_device(rank)  # a GPU for each rank, which "cuda" then names
        gpu = torch.device("cuda", rank)
        # Both kinds of devices, because a wrapper may send numbers on the CPU too.
        dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=rank, world_size=RANKS, device_id=gpu)
    else:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    watch, done = CollectiveWatch(f"{path}.place"), ".results"
    watch.enter("")
    try:
        with watch:
            found = work(rank)
    except BaseException as error:
        sys.__excepthook__(*sys.exc_info())
        done, found = ".error", f"raised {type(error).__name__}: {error}"
    torch.save(found, f"{path}.part")
    os.replace(f"{path}.part", path + done)
    script.join()


def place_of(path: str) -> str | None:
    """Return the collective in which a rank is; None if it has not joined the group."""
    try:
        with open(f"{path}.place") as file:
            return file.read()
    except FileNotFoundError:
        return None


def ended_ranks(paths: list[str], ranks: list[Any]) -> dict[int, str]:
    """Wait for the ranks, end them, and return how each of them ended that has no results."""
    seen, since = None, time.monotonic()
    while True:
        done = [os.path.exists(f"{path}.results") or os.path.exists(f"{path}.error") for path in paths]
        waiting = [number for number, rank in enumerate(ranks) if rank.is_alive() and not done[number]]
        places = {number: place_of(paths[number]) for number in waiting}
        if places != seen:
            seen, since = places, time.monotonic()
        if not waiting or time.monotonic() - since > (SILENCE_S if all(places.values()) else LONGEST_S):
            break
        multiprocessing.connection.wait([ranks[number].sentinel for number in waiting], 0.1)
    ends = {number: f"waits for ever{place and f' in {place}'}" for number, place in places.items()}
    for number, rank in enumerate(ranks):
        status = rank.exitcode
        rank.kill()
        rank.join()
        if place_of(paths[number]) is None:
            raise RuntimeError(f"rank {number} did not join the group")
        if os.path.exists(f"{paths[number]}.error"):
            ends[number] = torch.load(f"{paths[number]}.error", weights_only=True)
        elif number not in waiting and not done[number]:
            ends[number] = f"ended with status {status}"
    return ends


class RankError(Exception):
    """The ranks are not as one process."""


def of_all_ranks() -> list[Any]:
    """Start the ranks, and return what each of them has written down."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, str(rank)) for rank in range(RANKS)]
            if ON_GPUS:  # Otherwise no rank could use a GPU that a module has looked for before.
                os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
            context = multiprocessing.get_context("forkserver")  # it imports once what each rank needs
            context.set_forkserver_preload(["__main__", "torch._dynamo"])
            ranks = [context.Process(target=be_rank, args=(rank, folder), daemon=True) for rank in range(RANKS)]
            for rank in ranks:
                rank.start()
            ends = ended_ranks(paths, ranks)
            found = [torch.load(f"{path}.results", weights_only=True) for path in paths] if not ends else []
    except Exception:
        sys.excepthook(*sys.exc_info())  # it ends with 2: that ranks cannot be started is no finding
        raise
    if ends:
        raise RankError(", ".join(f"rank {rank} {ends.get(rank, 'went on')}" for rank in range(RANKS)))
    return found


def is_same(left: Any, right: Any) -> bool:
    """Whether two ranks hold the same bits."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return repr(left) == repr(right)  # NaN too
    bits = [each.contiguous().reshape(-1).view(torch.uint8) for each in (left, right)]
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(*bits)

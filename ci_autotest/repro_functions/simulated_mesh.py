"""Ranks that PyTorch simulates in the script's process: every operator runs on all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from ci_autotest.repro_functions.mesh import cut, gathered, mapped

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

RANKS: int
SIMULATED: LocalTensorMode
candidate: Callable[..., Any]


def simulated(mesh: tuple[int, ...]) -> tuple[DeviceMesh, LocalTensorMode]:
    """Return a mesh of ranks, and the mode in which every operator runs on all of them."""
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    return DeviceMesh("cpu", torch.arange(RANKS).view(mesh)), LocalTensorMode(RANKS)


def outside() -> AbstractContextManager[Any]:
    """Return a context that runs on no rank."""
    return SIMULATED.disable()


def parts_of(tensor: torch.Tensor, placements: Any) -> torch.Tensor:
    """Return the parts of a tensor that the ranks hold."""
    return LocalTensor({rank: cut(tensor, rank, placements) for rank in range(RANKS)})  # type: ignore[no-untyped-call]


def by_rank(tensor: torch.Tensor) -> dict[int, torch.Tensor]:
    """Return what each rank holds of a simulated tensor."""
    return getattr(tensor, "_local_tensors", {0: tensor})


def on_ranks(run: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return a function that runs the candidate on all ranks."""

    def ranked(function: Callable[..., Any]) -> dict[str, Any]:
        if function is not candidate:
            return run(function)
        with SIMULATED:
            found: dict[str, Any] = mapped(gathered, run(function))
            return found

    return ranked

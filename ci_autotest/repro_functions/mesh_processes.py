"""Ranks of a mesh that are a process each."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ci_autotest.repro_functions.mesh import cut, gathered, mapped
from ci_autotest.repro_functions.rank_processes import RankError, is_same, of_all_ranks

if TYPE_CHECKING:
    from collections.abc import Callable

MESH: tuple[int, ...]
RANKS: int
ON_GPUS: bool
DEVICE_MESH: DeviceMesh
run: Callable[..., dict[str, Any]]
candidate: Callable[..., Any]


def outside() -> AbstractContextManager[Any]:
    """Return a context that changes nothing: tensors are on the ranks only if they are spread."""
    return contextlib.nullcontext()


def parts_of(tensor: torch.Tensor, placements: Any) -> torch.Tensor:
    """Return the part of a tensor that this rank holds."""
    return cut(tensor, dist.get_rank(), placements)


def by_rank(tensor: torch.Tensor) -> dict[int, torch.Tensor]:
    """Return what the rank holds that is this process."""
    return {dist.get_rank(): tensor}


def noted(value: Any) -> Any:
    """Return a value as a rank writes it down: other objects than plain ones are not compared."""
    plain = (bool, int, float, complex, str, torch.dtype, torch.Size, type(None))
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    return value if type(value) in plain else str(type(value))


def work(rank: int) -> dict[str, Any]:
    """Return what a rank has after it has run the candidate."""
    global DEVICE_MESH
    DEVICE_MESH = DeviceMesh("cuda" if ON_GPUS else "cpu", torch.arange(RANKS).view(MESH))
    found: dict[str, Any] = mapped(noted, run(candidate))
    return found


def agreed(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all ranks have, which must be the same bits."""
    for rank, values in enumerate(found):
        for name in {**found[0], **values}:
            one: list[Any] = []
            other: list[Any] = []
            mapped(one.append, found[0].get(name))
            mapped(other.append, values.get(name))
            if len(one) != len(other) or not all(map(is_same, one, other)):
                raise RankError(f"{name}: rank {rank} holds other bits than rank 0")
    return found[0]


def on_ranks(run: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return a function that runs the candidate on all ranks, each in a process of its own."""

    def ranked(function: Callable[..., Any]) -> dict[str, Any]:
        if function is not candidate:
            return run(function)
        return mapped(gathered, run(function)) if dist.is_initialized() else agreed(of_all_ranks())

    return ranked

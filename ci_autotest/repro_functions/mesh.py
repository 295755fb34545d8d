"""A candidate whose tensors lie on a mesh of ranks: inputs are spread over them, and what they hold is gathered.

What depends on what runs the ranks is in ``simulated_mesh`` and ``mesh_processes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from ci_autotest.repro_functions.rank_processes import is_same
from ci_autotest.repro_functions.sides import moved

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch.distributed.device_mesh import DeviceMesh

#: Number of ranks along each dimension, and how inputs lie on them by name.
MESH: tuple[int, ...]
PLACEMENTS: dict[str, Any]
RANKS: int
#: Device of the side that runs.
device: torch.device
DEVICE_MESH: DeviceMesh
#: The placement of a tensor that is the same on every rank.
EVERYWHERE: Any
inputs: Callable[[], dict[str, Any]]
candidate: Callable[..., Any]
#: What each rank of this process holds of a tensor, and its parts of one that is cut.
by_rank: Callable[[torch.Tensor], dict[int, torch.Tensor]]
parts_of: Callable[[torch.Tensor, Any], torch.Tensor]
#: Makes tensors that are not on the ranks.
outside: Callable[[], AbstractContextManager[Any]]


def cut(tensor: torch.Tensor, rank: int, placements: Any) -> torch.Tensor:
    """Return the part that a rank holds."""
    at = (torch.arange(RANKS).view(MESH) == rank).nonzero()[0].tolist()
    for number, count, placement in zip(at, MESH, placements):
        if placement.is_shard():
            chunks = tensor.chunk(count, placement.dim)
            tensor = chunks[number] if number < len(chunks) else tensor.narrow(placement.dim, 0, 0)
        elif placement.is_partial() and count > 1:  # 2x and -x, whose sum is x
            double = tensor + tensor
            splits = torch.isfinite(double) & (tensor != 0)
            nothing = torch.zeros_like(tensor).neg()
            summands = torch.where(splits, double, tensor), torch.where(splits, -tensor, nothing), nothing
            tensor = summands[min(number, 2)]
    return tensor.contiguous().clone()


def spread(tensor: torch.Tensor, placements: Any) -> torch.Tensor:
    """Return a tensor as one that lies on the ranks."""
    with outside():
        plain = tensor.detach().contiguous()
        parts = parts_of(plain, placements)
    shape, stride = plain.shape, plain.stride()
    found = DTensor.from_local(parts, DEVICE_MESH, placements, run_check=False, shape=shape, stride=stride)
    return found.requires_grad_(tensor.requires_grad)


def given_to(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the inputs of a side: those of the candidate lie on the ranks."""
    if function is not candidate:
        return moved(inputs(), device)
    with outside():
        given = moved(inputs(), device)
    for name, value in given.items():
        if not isinstance(value, torch.nn.Module):
            given[name] = spread(value, PLACEMENTS.get(name, EVERYWHERE))
            continue
        for path, owner in value.named_modules(prefix=name):
            for key, each in [*owner.named_parameters(recurse=False), *owner.named_buffers(recurse=False)]:
                lies = spread(each, PLACEMENTS.get(f"{path}.{key}", EVERYWHERE))
                if isinstance(each, torch.nn.Parameter):
                    owner._parameters[key] = torch.nn.Parameter(lies, requires_grad=each.requires_grad)
                else:
                    owner._buffers[key] = lies
    return given


def replicated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose tensors are the same on every rank, if it makes them from no other tensor."""

    def called(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        is_plain = isinstance(found, torch.Tensor) and not isinstance(found, DTensor)
        return DTensor.from_local(found, DEVICE_MESH, EVERYWHERE, run_check=False) if is_plain else found

    return called


def roots_of(outputs: list[Any], cotangents: dict[int, torch.Tensor]) -> list[tuple[Any, Any]]:
    """Return the outputs from which the backward pass starts, each with the gradient that is put in."""
    pairs = [(outputs[i], weight) for i, weight in cotangents.items() if isinstance(outputs[i], torch.Tensor)]
    return [(o, weight_on_ranks(w, o)) for o, w in pairs if o.requires_grad and o.shape == w.shape]


def weight_on_ranks(tensor: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Return what goes into the backward pass of an output."""
    tensor = tensor.to(output.device, output.dtype)
    if not isinstance(output, DTensor):
        return tensor.clone()
    return spread(tensor, [Replicate() if p.is_partial() else p for p in output.placements])


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return a value with a function applied to everything in it that is no tuple, list or dictionary."""
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        found = [mapped(function, each) for each in value]
        return found if type(value) is list else tuple(found)
    if isinstance(value, dict):
        return {name: mapped(function, each) for name, each in value.items()}
    return function(value)


def gathered(value: Any) -> Any:
    """Return a tensor of the ranks as a whole; all ranks of this process must hold the same."""
    if not isinstance(value, torch.Tensor):
        return value
    whole: Any = value.detach()
    if isinstance(value, DTensor):
        for rank, part in by_rank(whole.to_local()).items():
            if all(type(p) in (Shard, Replicate, Partial) for p in value.placements):
                expected = cut(torch.empty(value.shape, device="meta"), rank, value.placements).shape
                assert part.shape == expected, f"rank {rank} holds {tuple(part.shape)}, not {tuple(expected)}"
        whole = whole.full_tensor()
    held = by_rank(whole)
    first = next(iter(held.values()))
    for rank, other in held.items():
        assert is_same(other, first), f"rank {rank} holds other bits than rank 0"
    return first.clone()

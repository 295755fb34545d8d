"""The part of a tensor that each rank holds, and the torch objects that a distribution names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from ci_autotest.program.distribution import PARTIAL, Distribution, coordinates, dimension_of, local_shapes, shard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Placement


def placements_of(distribution: Distribution) -> tuple[Placement, ...]:
    """Return the placements as torch's objects."""
    return tuple(_placement(text) for text in distribution.placements)


def _placement(text: str) -> Placement:
    dimension = dimension_of(text)
    if dimension is not None:
        return Shard(dimension)
    return Partial() if text == PARTIAL else Replicate()


def distribution_of(mesh: tuple[int, ...], placements: Sequence[Placement]) -> Distribution | None:
    """Return placements of torch as a distribution; ``None`` if one is of a kind that a program cannot name."""
    found = []
    for placement in placements:
        if type(placement) is Shard:
            found.append(shard(placement.dim))
        elif type(placement) is Replicate:
            found.append("Replicate")
        elif type(placement) is Partial and placement.reduce_op == "sum":
            found.append(PARTIAL)
        else:
            return None
    return Distribution(mesh, tuple(found))


def as_dtensor(
    part: torch.Tensor, mesh: DeviceMesh, distribution: Distribution, shape: torch.Size, strides: tuple[int, ...]
) -> torch.Tensor:
    """Return the parts that ranks hold as one tensor.

    ``DTensor.from_local`` does the same in six times as long, because it is differentiable.

    Args:
        part: What the ranks of this process hold.
        mesh: The mesh.
        distribution: How the whole lies on it.
        shape: Sizes of the whole.
        strides: Strides of the whole.
    """
    meta = TensorMeta(shape, strides, part.dtype)
    made: Any = DTensor
    found: torch.Tensor = made(
        part, DTensorSpec(mesh, placements_of(distribution), tensor_meta=meta), requires_grad=False
    )
    return found


def part_of(tensor: DTensor) -> torch.Tensor:
    """Return what the ranks of this process hold of a tensor; ``to_local`` would make a view of each part."""
    return tensor._local_tensor


def parts_of(tensor: torch.Tensor, distribution: Distribution) -> list[torch.Tensor]:
    """Return the part of each rank, in the order of ranks, with the order of dimensions in memory of the whole."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    back = [order.index(dimension) for dimension in range(tensor.dim())]
    whole = tensor.detach().permute(order)
    found = []
    shapes = local_shapes(tuple(tensor.shape), distribution)
    for at, shape in zip(coordinates(distribution.mesh), shapes, strict=True):
        part = whole
        sizes = list(tensor.shape)
        for number, count, placement in zip(at, distribution.mesh, distribution.placements, strict=True):
            dimension = dimension_of(placement)
            if dimension is None:
                continue
            chunk = -(-sizes[dimension] // count)
            size = max(0, min(chunk, sizes[dimension] - number * chunk))
            part = part.narrow(back[dimension], min(number * chunk, sizes[dimension]), size)
            sizes[dimension] = size
        part = part.clone(memory_format=torch.contiguous_format).permute(back)
        assert tuple(part.shape) == shape  # noqa: S101 - both follow from one rule
        found.append(_summand(part, at, distribution))
    return found


def _summand(part: torch.Tensor, at: tuple[int, ...], distribution: Distribution) -> torch.Tensor:
    """Return the summand of one rank where a placement is partial.

    The first rank of a partial dimension holds twice the tensor and the second its negative, because an operator that
    is not linear then gives something else than on the sum. Both are exact, but for numbers that double to infinity,
    which the first rank holds alone.
    """
    for number, count, placement in zip(at, distribution.mesh, distribution.placements, strict=True):
        if placement == PARTIAL and count > 1:
            part = _share(part, number)
    return part


def _share(part: torch.Tensor, number: int) -> torch.Tensor:
    # The sum of a zero and -0.0 is that zero, so that its sign is kept too.
    nothing = torch.zeros_like(part).neg_() if part.is_floating_point() or part.is_complex() else torch.zeros_like(part)
    if number > 1:
        return nothing
    double = part + part
    can_split = torch.isfinite(double) & (part != 0)
    return torch.where(can_split, double, part) if number == 0 else torch.where(can_split, -part, nothing)


def dense_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of a dense copy with the tensor's order of dimensions in memory."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    strides, stride = [0] * tensor.dim(), 1
    for dimension in reversed(order):
        strides[dimension] = stride
        stride *= max(tensor.shape[dimension], 1)
    return tuple(strides)

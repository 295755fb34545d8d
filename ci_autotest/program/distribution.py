"""How a tensor lies on a group of ranks: the mesh, and one placement for each of its dimensions.

It uses the standard library only, because the parent process and scripts read it too.

Source: ``torch.distributed.tensor.placement_types`` (PyTorch 2.13) for the meaning of placements; ``Shard(d)`` cuts
dimension ``d`` as ``torch.chunk`` does, so that the last ranks may have fewer rows, or none.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

REPLICATE: Final = "Replicate"
PARTIAL: Final = "Partial"
_SHARD: Final = re.compile(r"Shard\((\d{1,2})\)", re.ASCII)
#: Most ranks of a group: a machine runs all of them.
RANKS_AT_MOST: Final = 16
#: Fewest ranks of a group: with one nothing is distributed.
FEWEST: Final = 2


@dataclass(frozen=True, slots=True)
class Distribution:
    """How one tensor lies on the ranks of a mesh.

    Args:
        mesh: Sizes of the mesh; their product is the number of ranks.
        placements: ``Replicate``, ``Partial`` or ``Shard(<dimension>)`` for each dimension of the mesh.
    """

    mesh: tuple[int, ...]
    placements: tuple[str, ...]

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return math.prod(self.mesh)

    @property
    def is_replicated(self) -> bool:
        """Whether every rank holds the whole."""
        return all(placement == REPLICATE for placement in self.placements)

    def __str__(self) -> str:
        return ", ".join(self.placements)


def shard(dimension: int) -> str:
    """Return the placement that cuts a dimension."""
    return f"Shard({dimension})"


def dimension_of(placement: str) -> int | None:
    """Return the dimension that a placement cuts; ``None`` if it cuts none."""
    match = _SHARD.fullmatch(placement)
    return int(match[1]) if match else None


def is_placement(placement: str) -> bool:
    """Whether a text is a placement."""
    return placement in {REPLICATE, PARTIAL} or dimension_of(placement) is not None


def is_mesh(mesh: tuple[int, ...]) -> bool:
    """Whether sizes are those of a mesh."""
    return 1 <= len(mesh) <= 2 and all(size >= 1 for size in mesh) and math.prod(mesh) <= RANKS_AT_MOST  # noqa: PLR2004


def fits(distribution: Distribution, dimensions: int) -> bool:
    """Whether a tensor of so many dimensions can lie like this."""
    cut = [dimension_of(placement) for placement in distribution.placements]
    return len(cut) == len(distribution.mesh) and all(each is None or each < dimensions for each in cut)


def coordinates(mesh: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the coordinates of each rank, in the order of their numbers."""
    for rank in range(math.prod(mesh)):
        found = []
        for size in reversed(mesh):
            rank, at = divmod(rank, size)  # noqa: PLW2901 - the digits of the number
            found.append(at)
        yield tuple(reversed(found))


def local_shapes(shape: tuple[int, ...], distribution: Distribution) -> tuple[tuple[int, ...], ...]:
    """Return the shape of the part that each rank holds, in the order of ranks."""
    found = []
    for at in coordinates(distribution.mesh):
        sizes = list(shape)
        for number, count, placement in zip(at, distribution.mesh, distribution.placements, strict=True):
            dimension = dimension_of(placement)
            if dimension is not None:
                sizes[dimension] = _chunk(sizes[dimension], count, number)
        found.append(tuple(sizes))
    return tuple(found)


def _chunk(size: int, count: int, number: int) -> int:
    """Return the size of one of ``count`` chunks: all are as large as the first, the last ones smaller or empty."""
    whole = -(-size // count)
    return max(0, min(whole, size - number * whole))

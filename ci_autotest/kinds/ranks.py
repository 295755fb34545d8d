"""Groups of ranks with PyTorch: distributed tensors, and modules whose batch the ranks share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ci_autotest.kinds.candidate import DEVICES, WorkerCandidate
from ci_autotest.program.distribution import RANKS_AT_MOST, is_mesh, is_placement
from ci_autotest.program.python_names import is_path
from ci_autotest.values.rank_servers import RANK_IMPORTS

if TYPE_CHECKING:
    from collections.abc import Iterator

#: One rank has nobody to share a batch with.
_FEWEST: Final = 2


class RankGroupCandidate(WorkerCandidate, frozen=True, kw_only=True):
    """A group of ranks.

    Attributes:
        ranks: Number of ranks, at most 16.
    """

    forward_only: bool = False
    ranks: int | None = None

    @property
    def imported_first(self) -> tuple[str, ...]:
        """Modules that the server of a finding's processes imports once, because they take seconds."""
        return RANK_IMPORTS

    @property
    def rank_count(self) -> int:
        """Number of its ranks."""
        return self.ranks or 1

    @property
    def untimed(self) -> str:
        """Why it is not timed."""
        return "it is a group of ranks, whose collectives cannot be timed in one process"

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        # Ranks on ``auto`` have a GPU each if there are as many; else they are on the CPU.
        if self.device not in DEVICES:
            yield f"has ranks on '{self.device[:40]}'. Write device: cpu or device: cuda."


class DTensorCandidate(RankGroupCandidate, frozen=True, kw_only=True, tag="dtensor"):
    """A group of ranks over which every tensor is distributed.

    Attributes:
        ranks: Number of ranks, at most 16. Null for the product of ``mesh``.
        mesh: Sizes of the mesh of ranks, one or two, for example ``[2, 2]``. Empty to draw one with ``ranks`` ranks for
            each case.
        placements: How every input lies on the ranks, ``Shard(0)``, ``Replicate`` or ``Partial`` for each dimension of
            ``mesh``. Empty to draw it for each input.
        processes: Whether each rank is a process of its own; they communicate by gloo, on GPUs by nccl. If not, all
            ranks are simulated in one process.
    """

    mesh: tuple[int, ...] = ()
    placements: tuple[str, ...] = ()
    processes: bool = False

    @property
    def rank_count(self) -> int:
        """Number of its ranks."""
        return self.ranks or math.prod(self.mesh)

    @property
    def has_rank_processes(self) -> bool:
        """Whether its ranks are processes."""
        return self.processes

    @property
    def stays_on_cpu(self) -> bool:
        """Whether its ranks are simulated, which are on the CPU."""
        return not self.processes

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        yield from self._wrong_mesh()
        if self.stays_on_cpu and self.device != "cpu":
            yield f"has simulated ranks on '{self.device}'. Write processes: true for a GPU each, or device: cpu."

    def _wrong_mesh(self) -> Iterator[str]:
        ranks, mesh, placements = self.ranks, self.mesh, self.placements
        if ranks is None and not mesh:
            yield "of backend dtensor has no ranks. Give ranks: 4, or mesh: [2, 2]."
        if ranks is not None and not 1 <= ranks <= RANKS_AT_MOST:
            yield f"has ranks: {str(ranks)[:30]}. Give 1 to {RANKS_AT_MOST}."
        shown = str(list(mesh))[:60]
        if mesh and not is_mesh(mesh):
            yield f"has mesh: {shown}. Give one or two sizes of 1 or more, with at most {RANKS_AT_MOST} ranks in all."
        if mesh and ranks is not None and math.prod(mesh) != ranks:
            yield (
                f"has ranks: {ranks}, and mesh: {shown} has {math.prod(mesh)}. "
                f"Give a mesh whose sizes multiply to {ranks}."
            )
        for placement in placements:
            if not is_placement(placement):
                yield f"has placements: {placement[:40]!r}. Write Shard(0), another dimension, Replicate or Partial."
        dimensions = len(mesh) or 1
        if placements and len(placements) != dimensions:
            what = f"mesh: {shown} has" if mesh else "a mesh that is not given has"
            yield (
                f"has {len(placements)} placements, and {what} {dimensions}. Give one placement for each dimension of "
                "the mesh."
            )


class TrainingCandidate(RankGroupCandidate, frozen=True, kw_only=True):
    """A group of ranks that share the batch of a module.

    Attributes:
        ranks: Number of ranks, 2 to 16.
        wrap: Your function that takes a module and the number of ranks, and returns the wrapped module, as
            ``module:function``. Empty for PyTorch's own wrapper.
    """

    wrap: str = ""

    @property
    def has_rank_processes(self) -> bool:
        """Whether its ranks are processes."""
        return True

    @property
    def named(self) -> tuple[str, ...]:
        """What programs may name: the user's functions and modules of which it consists."""
        return (*super().named, self.wrap.replace(":", "."))

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with its values, and what to write instead."""
        yield from super().faults()
        if self.ranks is None:
            yield f"of backend {self.backend} has no ranks. Give ranks: 2."
        elif not _FEWEST <= self.ranks <= RANKS_AT_MOST:
            yield f"has ranks: {str(self.ranks)[:30]}. Give {_FEWEST} to {RANKS_AT_MOST}."
        if self.wrap and (self.wrap.count(":") != 1 or not is_path(self.wrap.replace(":", "."))):
            yield f"has wrap: {self.wrap[:80]!r}. Write module:function, such as mytraining:wrapped."


class DdpCandidate(TrainingCandidate, frozen=True, kw_only=True, tag="ddp"):
    """Ranks with ``DistributedDataParallel``, or what ``wrap`` returns."""


class FsdpCandidate(TrainingCandidate, frozen=True, kw_only=True, tag="fsdp"):
    """Ranks with ``fully_shard``, or what ``wrap`` returns."""

"""Refuse a candidate whose group of ranks cannot be: none, too many, or a mesh or placements that do not fit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import ConfigError
from ci_autotest.program.distribution import RANKS_AT_MOST, is_mesh, is_placement
from ci_autotest.program.python_names import is_path

if TYPE_CHECKING:
    from ci_autotest.config.values import Candidate

_KEYS: Final = ("ranks", "mesh", "placements", "processes", "wrap")
_TENSORS: Final = "dtensor"
#: Backends whose ranks share the batch of a module.
MODULES: Final = frozenset({"ddp", "fsdp"})
#: The keys that each kind of ranks has.
_OF_TENSORS: Final = frozenset({"ranks", "mesh", "placements", "processes"})
_OF_MODULES: Final = frozenset({"ranks", "wrap"})
#: Where ranks can be: ``auto`` is a GPU for each if there are as many, else the CPU.
_DEVICES: Final = frozenset({"cpu", "cuda", "auto"})
#: One rank has nobody to share a batch with.
_FEWEST: Final = 2
#: Modules whose hosts can be ranks, with the device of each rank: only OneFlow's tensors lie on several processes.
_RANK_HOSTS: Final = {"oneflow": "cpu"}
#: Keys of other groups of ranks, and the backends that have them.
_OF_OTHERS: Final = {"mesh": "dtensor", "placements": "dtensor", "processes": "dtensor", "wrap": "ddp or fsdp"}


def check_ranks(candidate: Candidate, where: str) -> None:
    """Refuse ranks that cannot be.

    Raises:
        ConfigError: They cannot.
    """
    named = f"{where}: candidate {candidate.name!r}"
    if candidate.backend == "module":
        fault = _wrong_host_ranks(candidate)
        if fault:
            message = f"{named} {fault}"
            raise ConfigError(message)
        return
    given = [key for key in _KEYS if getattr(candidate, key) not in {None, (), False, ""}]
    is_of_modules = candidate.backend in MODULES
    used = _OF_MODULES if is_of_modules else _OF_TENSORS if candidate.backend == _TENSORS else frozenset()
    unused = next((key for key in given if key not in used), None)
    if unused is not None:
        other = "ddp or fsdp" if unused == "wrap" else _TENSORS
        message = (
            f"{named} has {unused!r}, which backend {candidate.backend} does not use. "
            f"Write backend: {other}, or remove it."
        )
        raise ConfigError(message)
    message = _wrong_of_module(candidate) if is_of_modules else _wrong(candidate) if used else ""
    message = message or (_wrong_device(candidate) if used else "")
    if message:
        message = f"{named} {message}"
        raise ConfigError(message)


def _wrong_device(candidate: Candidate) -> str:
    """Return what is wrong with the device of ranks, and what to write; empty if nothing is."""
    if candidate.device not in _DEVICES:
        return f"has ranks on '{candidate.device[:40]}'. Write device: cpu or device: cuda."
    if candidate.stays_on_cpu and candidate.device != "cpu":
        return f"has simulated ranks on '{candidate.device}'. Write processes: true for a GPU each, or device: cpu."
    return ""


def _wrong_of_module(candidate: Candidate) -> str:
    """Return what is wrong with ranks that share a batch, and what to write; empty if nothing is."""
    ranks, wrap = candidate.ranks, candidate.wrap
    if ranks is None:
        return f"of backend {candidate.backend} has no ranks. Give ranks: 2."
    if not _FEWEST <= ranks <= RANKS_AT_MOST:
        return f"has ranks: {str(ranks)[:30]}. Give {_FEWEST} to {RANKS_AT_MOST}."
    if wrap and (wrap.count(":") != 1 or not is_path(wrap.replace(":", "."))):
        return f"has wrap: {wrap[:80]!r}. Write module:function, such as mytraining:wrapped."
    return ""


def _wrong(candidate: Candidate) -> str:
    """Return what is wrong with the ranks of a candidate, and what to write; empty if nothing is."""
    ranks, mesh, placements = candidate.ranks, candidate.mesh, candidate.placements
    if ranks is None and not mesh:
        return f"of backend {_TENSORS} has no ranks. Give ranks: 4, or mesh: [2, 2]."
    if ranks is not None and not 1 <= ranks <= RANKS_AT_MOST:
        return f"has ranks: {str(ranks)[:30]}. Give 1 to {RANKS_AT_MOST}."
    shown = str(list(mesh))[:60]
    if mesh and not is_mesh(mesh):
        return f"has mesh: {shown}. Give one or two sizes of 1 or more, with at most {RANKS_AT_MOST} ranks in all."
    if mesh and ranks is not None and math.prod(mesh) != ranks:
        return (
            f"has ranks: {ranks}, and mesh: {shown} has {math.prod(mesh)}. Give a mesh whose sizes multiply to {ranks}."
        )
    wrong = next((each for each in placements if not is_placement(each)), None)
    if wrong is not None:
        return f"has placements: {wrong[:40]!r}. Write Shard(0), another dimension, Replicate or Partial."
    dimensions = len(mesh) or 1
    if placements and len(placements) != dimensions:
        what = f"mesh: {shown} has" if mesh else "a mesh that is not given has"
        count = len(placements)
        return f"has {count} placements, and {what} {dimensions}. Give one placement for each dimension of the mesh."
    return ""


def _wrong_host_ranks(candidate: Candidate) -> str:
    """Return what is wrong with the ranks of a candidate of backend ``module``, and what to write; empty if nothing."""
    given = next((key for key in _OF_OTHERS if getattr(candidate, key)), None)
    if given is not None:
        return f"has {given!r}, which backend module does not use. Write backend: {_OF_OTHERS[given]}, or remove it."
    if candidate.ranks is None:
        return ""
    if candidate.module not in _RANK_HOSTS:
        return f"has 'ranks', which module {candidate.module} does not use. Write module: oneflow, or remove it."
    if not 2 <= candidate.ranks <= RANKS_AT_MOST:  # noqa: PLR2004 - one rank is an ordinary host
        return f"has ranks: {str(candidate.ranks)[:30]}. Give 2 to {RANKS_AT_MOST}, or remove it."
    if candidate.device != _RANK_HOSTS[candidate.module]:
        return f"has ranks on '{candidate.device[:40]}'. Write device: cpu, or remove 'ranks'."
    return ""

"""Refuse ranks that a candidate in its own interpreter cannot have: only OneFlow's tensors lie on several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.program.distribution import RANKS_AT_MOST

if TYPE_CHECKING:
    from ci_autotest.config.values import Candidate

#: Modules whose hosts can be ranks, with the device of each rank.
_MODULES: Final = {"oneflow": "cpu"}
#: Keys of other groups of ranks, and the backends that have them.
_OF_OTHERS: Final = {"mesh": "dtensor", "placements": "dtensor", "processes": "dtensor", "wrap": "ddp or fsdp"}


def wrong_host_ranks(candidate: Candidate) -> str:
    """Return what is wrong with the ranks of a candidate of backend ``module``, and what to write; empty if nothing."""
    given = next((key for key in _OF_OTHERS if getattr(candidate, key)), None)
    if given is not None:
        return f"has {given!r}, which backend module does not use. Write backend: {_OF_OTHERS[given]}, or remove it."
    if candidate.ranks is None:
        return ""
    if candidate.module not in _MODULES:
        return f"has 'ranks', which module {candidate.module} does not use. Write module: oneflow, or remove it."
    if not 2 <= candidate.ranks <= RANKS_AT_MOST:  # noqa: PLR2004 - one rank is an ordinary host
        return f"has ranks: {str(candidate.ranks)[:30]}. Give 2 to {RANKS_AT_MOST}, or remove it."
    if candidate.device != _MODULES[candidate.module]:
        return f"has ranks on '{candidate.device[:40]}'. Write device: cpu, or remove 'ranks'."
    return ""

"""How the backends of groups of ranks are made.

DTensor takes 0.6 s to import, which no other candidate should wait for: the backends are imported when they are made.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import torch

from ci_autotest.backends.framework.factory import interpreter_of, translator_of
from ci_autotest.values.rank_servers import RANK_SERVERS

if TYPE_CHECKING:
    from ci_autotest.backends.backend_setting import BackendSetting
    from ci_autotest.backends.framework.backend import RemoteBackend
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.ranks.processes.process_group import Launcher
    from ci_autotest.kinds import DdpCandidate, DTensorCandidate, FsdpCandidate, ModuleCandidate, RankCandidate


def make_distributed(candidate: DTensorCandidate, setting: BackendSetting) -> Backend:
    """Return ranks over which every tensor is distributed."""
    from ci_autotest.backends.ranks.backend import DTensorBackend  # noqa: PLC0415
    from ci_autotest.backends.ranks.placement_draw import Meshes  # noqa: PLC0415

    ranks = candidate.ranks or 0
    # Placements that are given are those of one dimension if no mesh is.
    meshes = Meshes(ranks, candidate.mesh or ((ranks,) if candidate.placements else ()))
    if not candidate.processes:
        return DTensorBackend(candidate.name, meshes, candidate.placements, setting.device)
    return DTensorBackend(
        candidate.name, meshes, candidate.placements, setting.device, processes=setting.worker,
        launcher=_launcher(candidate, setting),
    )  # fmt: skip


def make_training(candidate: DdpCandidate | FsdpCandidate, setting: BackendSetting) -> Backend:
    """Return ranks that share the batch of a module."""
    from ci_autotest.backends.ranks.training.module_backend import ModuleBackend  # noqa: PLC0415

    return ModuleBackend(
        candidate.name, candidate.backend, candidate.ranks or 0, candidate.wrap, setting.device, setting.worker,
        launcher=_launcher(candidate, setting),
    )  # fmt: skip


def make_global(candidate: ModuleCandidate, setting: BackendSetting) -> RemoteBackend:
    """Return a group of another framework's hosts, over which tensors are global."""
    from ci_autotest.backends.ranks.global_tensors import GlobalTensorBackend  # noqa: PLC0415

    assert candidate.ranks is not None  # noqa: S101 - the caller has looked
    backend = GlobalTensorBackend(
        interpreter_of(candidate, setting), translator_of(candidate), candidate.ranks, setting.worker
    )
    return backend.in_mode(is_graph=True) if candidate.mode == "graph" else backend


def _launcher(candidate: RankCandidate, setting: BackendSetting) -> Launcher | None:
    """Return what starts ranks on the nodes of a cluster or on GPUs; ``None`` if they are forked from this process."""
    from ci_autotest.backends.ranks.processes.rank_device import check_devices  # noqa: PLC0415 - only ranks wait for it

    candidate = msgspec.structs.replace(candidate, device=setting.device)
    if RANK_SERVERS in os.environ:
        from ci_autotest.backends.ranks.nodes.remote_ranks import RemoteRanks, servers_in  # noqa: PLC0415 - clusters only

        servers = servers_in(os.environ[RANK_SERVERS])
        check_devices(candidate, sum(servers.gpus))
        return RemoteRanks(candidate, servers, setting.folders, setting.worker)
    check_devices(candidate, 0 if candidate.device == "cpu" else torch.cuda.device_count())
    if candidate.device == "cpu":
        return None
    from ci_autotest.backends.ranks.nodes.gpu_ranks import GpuRanks  # noqa: PLC0415 - GPUs only

    return GpuRanks(candidate, setting.folders, setting.worker)

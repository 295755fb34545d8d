"""Ranks on the GPUs of this machine, seen from the worker: they come from a server in an interpreter of its own.

A worker may have used a GPU before, and a process that has cannot be forked into one that does.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.backends.ranks.nodes.remote_ranks import RemoteRanks
from ci_autotest.backends.worker_side import ALONE, WorkerSide
from ci_autotest.errors import UnavailableError
from ci_autotest.host.node_process import NodeProcess
from ci_autotest.values.rank_servers import RankServers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.kinds import RankCandidate

_HOST: Final = "127.0.0.1"


class GpuRanks(RemoteRanks):
    """The ranks of a candidate on the GPUs of this machine.

    Args:
        candidate: The candidate; its device is the kind of the GPUs.
        folders: Folders of the user's own modules.
        worker: The worker whose candidate they are.

    Raises:
        UnavailableError: The server cannot be started.
    """

    advice = "Run it on another machine, or on cpu."
    all_lost = "the process that starts them has ended"

    def __init__(self, candidate: RankCandidate, folders: Sequence[str], worker: WorkerSide = ALONE) -> None:
        secret = secrets.token_hex(16)
        try:
            self._node = NodeProcess(_HOST, secret, os.environ)
        except OSError as error:
            message = f"candidate '{candidate.name}': the server of its ranks cannot be started here: {error}"
            raise UnavailableError(message) from error
        servers = RankServers([self._node.address()], secret, gpus=[torch.cuda.device_count()])
        super().__init__(candidate, servers, folders, worker)

    def close(self) -> None:
        """End every rank, and their server."""
        super().close()
        self._node.close()

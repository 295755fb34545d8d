"""Servers of ranks on the nodes of a Ray cluster: a worker's ranks are spread over them."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ci_autotest.run.orphan_processes import TOKEN, new_token
from ci_autotest.run.worker_start import package_folder, worker_environ
from ci_autotest.values.rank_servers import RANK_SERVERS, RankServers

if TYPE_CHECKING:
    from collections.abc import Mapping

#: As for a worker (``worker_start``): the current folder is not on the import path.
_START: Final = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.append(sys.argv.pop(1)); "
    "from ci_autotest.backends.ranks.rank_node import main; main(sys.argv[1:])"
)
#: Seconds that a node may take to start an actor.
_START_S: Final = 60.0
_CLOSE_S: Final = 5.0


class RankNode:
    """The owner of the server of ranks on one node. It does not depend on Ray.

    Args:
        host: The node's address.
        secret: What a worker must say.
    """

    def __init__(self, host: str, secret: str) -> None:
        # The address is known at once, and whoever connects waits until the server has imported PyTorch.
        with socket.create_server((host, 0)) as listener:
            self._address: tuple[str, int] = listener.getsockname()[:2]
            fd = listener.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, package_folder(), str(fd)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[fd], start_new_session=True,
                env={**worker_environ(os.environ), TOKEN: new_token()},
            )  # fmt: skip
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with self._process.stdin as pipe:
            pipe.write(secret.encode() + b"\n")

    def address(self) -> tuple[str, int]:
        """Return the host and the port of the server."""
        return self._address

    def pid(self) -> int:
        """Return the process of the server, whose group has all ranks on the node."""
        return self._process.pid

    def close(self) -> None:
        """End the server and all ranks on the node."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class RankNodes:
    """The servers of ranks on all nodes that have a core.

    Args:
        ray: The module.
        memory_bytes: Resident memory that each rank may hold; 0: no limit.

    Attributes:
        notes: Which nodes have no ranks, in words for a report.
    """

    def __init__(self, ray: Any, memory_bytes: int) -> None:
        self._ray, self._memory_bytes = ray, memory_bytes
        self.notes: list[str] = []
        self._secret = secrets.token_hex(16)
        self._actors: dict[str, Any] = {}
        self._addresses: dict[str, tuple[str, int]] = {}
        self._workers = 0

    def variables(self) -> Mapping[str, str]:
        """Return the variables that name the servers to a new worker; none if its ranks are to run beside it."""
        nodes = {
            node["NodeID"]: node["NodeManagerAddress"]
            for node in self._ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU")
        }
        if len(nodes) == 1 and not self._actors:
            return {}
        self._start({node: host for node, host in nodes.items() if node not in self._actors})
        known = [address for node, address in self._addresses.items() if node in nodes]
        if not known:
            return {}
        # The ranks of each worker begin on another node, so that no node has the first ranks of all.
        first = self._workers % len(known)
        self._workers += 1
        servers = RankServers([*known[first:], *known[:first]], self._secret, self._memory_bytes)
        return {RANK_SERVERS: msgspec.json.encode(servers).decode()}

    def close(self) -> None:
        """End every server."""
        ended = []
        for actor in self._actors.values():
            with contextlib.suppress(self._ray.exceptions.RayError):  # The node may be gone.
                ended.append(actor.close.remote())
        if ended:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.wait(ended, num_returns=len(ended), timeout=_CLOSE_S)
        for actor in self._actors.values():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        self._actors = {}

    def _start(self, nodes: Mapping[str, str]) -> None:
        """Start a server on each of some nodes, all at once; a node where none starts has no ranks, which is noted."""
        if not nodes:
            return
        kind = self._ray.remote(RankNode)
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        for node, host in nodes.items():
            there = affinity(node_id=node, soft=False)
            self._actors[node] = kind.options(num_cpus=0, max_restarts=0, scheduling_strategy=there).remote(
                host, self._secret
            )
        asked = {self._actors[node].address.remote(): node for node in nodes}
        ready, late = self._ray.wait([*asked], num_returns=len(asked), timeout=_START_S)
        without = {asked[each]: f"did not start within {_START_S:.0f} s" for each in late}
        for each in ready:
            try:
                self._addresses[asked[each]] = tuple(self._ray.get(each))
            except self._ray.exceptions.RayError as error:
                without[asked[each]] = f"could not start ({type(error).__name__})"
        self.notes += [
            f"node {host} of the cluster has no ranks: its server of ranks {without[node]}"
            for node, host in nodes.items()
            if node in without
        ]

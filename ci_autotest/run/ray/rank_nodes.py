"""Servers of ranks on the nodes of a Ray cluster: a worker's ranks are spread over them."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ci_autotest.host.node_process import NodeProcess
from ci_autotest.run.orphan_processes import TOKEN, new_token
from ci_autotest.run.worker_start import worker_environ
from ci_autotest.values.rank_servers import RANK_SERVERS, RankServers

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Seconds that a node may take to start an actor.
_START_S: Final = 60.0
_CLOSE_S: Final = 5.0


class RankNode(NodeProcess):
    """The owner of the server of ranks on one node. It does not depend on Ray.

    Args:
        host: The node's address.
        secret: What a worker must say.
    """

    def __init__(self, host: str, secret: str) -> None:
        # The cluster has set the GPUs that are its own in this process's environment.
        super().__init__(host, secret, {**worker_environ(os.environ), TOKEN: new_token()})


class RankNodes:
    """The servers of ranks on all nodes that have a core.

    Args:
        ray: The module.
        memory_bytes: Resident memory that each rank may hold; 0: no limit.
        group_gpus: GPUs of the largest group; 0 if ranks are on the CPU. Otherwise the server of a node takes all of
            its GPUs, and a node without one has no ranks.

    Attributes:
        notes: Which nodes have no ranks, in words for a report.
    """

    def __init__(self, ray: Any, memory_bytes: int, group_gpus: int = 0) -> None:
        self._ray, self._memory_bytes = ray, memory_bytes
        self._group_gpus, self._resource = group_gpus, "GPU" if group_gpus else "CPU"
        self.notes: list[str] = []
        self._secret = secrets.token_hex(16)
        self._actors: dict[str, Any] = {}
        self._addresses: dict[str, tuple[str, int]] = {}
        self._gpus: dict[str, int] = {}
        self._workers = 0

    def variables(self) -> Mapping[str, str]:
        """Return the variables that name the servers to a new worker; none if its ranks are to run beside it."""
        alive = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get(self._resource)]
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in alive}
        # On the CPU, ranks of the only node are processes of their worker.
        if len(nodes) == 1 and not self._actors and not self._group_gpus:
            return {}
        if self._group_gpus:
            self._gpus |= {node["NodeID"]: int(node["Resources"]["GPU"]) for node in alive}
        self._start({node: host for node, host in nodes.items() if node not in self._actors})
        known = [(address, self._gpus.get(node, 0)) for node, address in self._addresses.items() if node in nodes]
        if not known:
            return {}
        # The ranks of each worker begin on another node, so that no node has the first ranks of all. GPUs are dealt on:
        # a group gets those after the ones of the group before it.
        first = 0 if self._group_gpus else self._workers % len(known)
        dealt = self._workers * self._group_gpus
        self._workers += 1
        addresses, gpus = zip(*known[first:], *known[:first], strict=True)
        servers = RankServers([*addresses], self._secret, self._memory_bytes, [*gpus], dealt)
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
            self._actors[node] = kind.options(
                num_cpus=0, num_gpus=self._gpus.get(node, 0), max_restarts=0, scheduling_strategy=there
            ).remote(host, self._secret)
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

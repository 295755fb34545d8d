"""The part of Ray that places actors on nodes, as ``run/ray/rank_nodes.py`` uses it. An actor's address is its host, port 1."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class FakeRay:
    """A cluster whose nodes a test adds and loses.

    Attributes:
        cores: Cores of each living node by its name, which is its address too.
        gpus: GPUs of nodes that have some.
        started: The nodes on which an actor was started, in order.
        booked: GPUs that each actor has taken, in order.
        broken: Nodes on which an actor cannot be started.
        silent: Nodes on which an actor starts too late.
    """

    def __init__(self, **cores: int) -> None:
        self.cores, self.started, self.broken, self.silent = dict(cores), list[str](), set[str](), set[str]()
        self.gpus, self.booked = dict[str, int](), list[int]()
        self.exceptions = SimpleNamespace(RayError=LookupError)
        affinity = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node_id, soft: (node_id, soft))
        self.util = SimpleNamespace(scheduling_strategies=affinity)

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": name, "NodeManagerAddress": name, "Alive": True, "Resources": self._has(name, count)}
            for name, count in self.cores.items()
        ] + [{"NodeID": "lost", "NodeManagerAddress": "lost", "Alive": False, "Resources": {"CPU": 1}}]

    def remote(self, _: object) -> FakeRay:
        return self

    def _has(self, node: str, cores: int) -> dict[str, int]:
        return {name: count for name, count in (("CPU", cores), ("GPU", self.gpus.get(node, 0))) if count}

    def options(self, *, scheduling_strategy: tuple[str, bool], num_gpus: int, **_: object) -> Any:
        node, is_soft = scheduling_strategy
        assert not is_soft
        self.booked.append(num_gpus)
        return SimpleNamespace(remote=lambda host, _: self._actor(node, host))

    def wait(self, found: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        late = [each for each in found if each[0] in self.silent]
        return [each for each in found if each not in late], late

    def get(self, found: Any) -> Any:
        if found[0] in self.broken:
            raise LookupError(found)
        return found

    def _actor(self, node: str, host: str) -> Any:
        self.started.append(node)
        return SimpleNamespace(address=SimpleNamespace(remote=lambda: (host, 1)))

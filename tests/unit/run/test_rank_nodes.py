"""Which nodes of a cluster have ranks, and in which order each worker uses them."""

from __future__ import annotations

import msgspec

from ci_autotest.run.ray.rank_nodes import RankNodes
from ci_autotest.values.rank_servers import RANK_SERVERS, RankServers
from tests.fakes.ray_nodes import FakeRay


def hosts(nodes: RankNodes) -> list[str]:
    """Return the hosts that a new worker is given."""
    text = nodes.variables()[RANK_SERVERS]
    return [host for host, _ in msgspec.json.decode(text, type=RankServers).addresses]


def test_variables__three_nodes_with_cores__begin_with_another_one_for_each_worker():
    nodes = RankNodes(FakeRay(head=0, a=1, b=1, c=1), 0)

    assert [hosts(nodes) for _ in range(4)] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_variables__one_node__are_none_and_start_nothing():
    ray = FakeRay(head=0, a=4)

    assert (RankNodes(ray, 0).variables(), ray.started) == ({}, [])


def test_variables__node_lost_and_another_joined__are_those_of_the_living():
    ray = FakeRay(a=1, b=1)
    nodes = RankNodes(ray, 0)
    hosts(nodes)
    del ray.cores["a"]
    ray.cores["c"] = 1

    assert (sorted(hosts(nodes)), ray.started) == (["b", "c"], ["a", "b", "c"])


def test_variables__node_on_which_no_server_starts__are_without_it():
    ray = FakeRay(a=1, b=1, c=1)
    ray.broken, ray.silent = {"a"}, {"c"}
    nodes = RankNodes(ray, 0)

    assert (hosts(nodes), hosts(nodes)) == (["b"], ["b"])
    assert nodes.notes == [
        "node a of the cluster has no ranks: its server of ranks could not start (LookupError)",
        "node c of the cluster has no ranks: its server of ranks did not start within 60 s",
    ]


def test_variables__no_server_starts_anywhere__are_none():
    ray = FakeRay(a=1, b=1)
    ray.broken = {"a", "b"}

    assert RankNodes(ray, 0).variables() == {}


def test_variables__ranks_on_gpus__are_where_gpus_are_and_take_all_of_them():
    ray = FakeRay(a=1, b=1, c=1)
    ray.gpus = {"b": 4, "c": 2}
    nodes = RankNodes(ray, 0, 2)
    found = [msgspec.json.decode(nodes.variables()[RANK_SERVERS], type=RankServers) for _ in range(3)]

    assert [host for host, _ in found[0].addresses] == ["b", "c"]
    assert [(servers.gpus, servers.first) for servers in found] == [([4, 2], 0), ([4, 2], 2), ([4, 2], 4)]
    assert (ray.started, ray.booked) == (["b", "c"], [4, 2])


def test_variables__one_node_with_gpus__has_a_server_because_only_that_may_use_them():
    ray = FakeRay(a=1, b=1)
    ray.gpus = {"b": 2}

    assert hosts(RankNodes(ray, 0, 2)) == ["b"]


def test_variables__ranks_on_the_cpu__take_no_gpu():
    ray = FakeRay(a=1, b=1)
    ray.gpus = {"b": 2}
    servers = msgspec.json.decode(RankNodes(ray, 0).variables()[RANK_SERVERS], type=RankServers)

    assert (servers.gpus, ray.booked) == ([0, 0], [0, 0])


def test_variables__secret_of_a_run__is_another_one_for_the_next():
    secrets = {RankNodes(FakeRay(a=1, b=1), 0).variables()[RANK_SERVERS] for _ in range(2)}

    assert len(secrets) == 2

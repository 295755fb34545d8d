"""A group of ranks that cannot be is one sentence: what, got and allowed."""

from __future__ import annotations

import pytest

from ci_autotest.config import decode
from ci_autotest.errors import ConfigError


def read(**row: object) -> object:
    return decode({"candidates": [{"name": "sharded", "backend": "dtensor", **row}]}, "autotest.yml")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "of backend dtensor has no ranks. Give ranks: 4, or mesh: [2, 2]."),
        ({"ranks": 0}, "has ranks: 0. Give 1 to 16."),
        ({"ranks": -1}, "has ranks: -1. Give 1 to 16."),
        ({"ranks": 17}, "has ranks: 17. Give 1 to 16."),
        ({"ranks": 4, "mesh": [2, 3]}, "has ranks: 4, and mesh: [2, 3] has 6. Give a mesh whose sizes multiply to 4."),
        ({"mesh": [2, 0]}, "has mesh: [2, 0]. Give one or two sizes of 1 or more, with at most 16 ranks in all."),
        ({"mesh": [2, 2, 2]}, "has mesh: [2, 2, 2]. Give one or two sizes of 1 or more, with at most 16 ranks in all."),
        ({"ranks": 4, "placements": ["Split(0)"]}, "has placements: 'Split(0)'. Write Shard(0), another dimension,"),
        (
            {"mesh": [2, 2], "placements": ["Shard(0)"]},
            "has 1 placements, and mesh: [2, 2] has 2. Give one placement for each dimension of the mesh.",
        ),
        (
            {"ranks": 2, "placements": ["Shard(0)", "Replicate"]},
            "has 2 placements, and a mesh that is not given has 1.",
        ),
        (
            {"backend": "torch", "ranks": 2},
            "has 'ranks', which backend torch does not use. Write backend: module or dtensor or ddp or fsdp,",
        ),
        ({"backend": "ddp"}, "of backend ddp has no ranks. Give ranks: 2."),
        ({"backend": "fsdp", "ranks": 1}, "has ranks: 1. Give 2 to 16."),
        ({"backend": "ddp", "ranks": 17}, "has ranks: 17. Give 2 to 16."),
        (
            {"backend": "ddp", "ranks": 2, "mesh": [2]},
            "has 'mesh', which backend ddp does not use. Write backend: dtensor,",
        ),
        ({"backend": "ddp", "ranks": 2, "processes": True}, "has 'processes', which backend ddp does not use."),
        ({"backend": "ddp", "ranks": 2, "wrap": "mine"}, "has wrap: 'mine'. Write module:function, such as"),
        ({"backend": "ddp", "ranks": 2, "wrap": "a:b:c"}, "has wrap: 'a:b:c'. Write module:function, such as"),
        ({"ranks": 2, "wrap": "a:b"}, "has 'wrap', which backend dtensor does not use. Write backend: ddp or fsdp,"),
        ({"ranks": 2, "device": "cuda"}, "has simulated ranks on 'cuda'. Write processes: true for a GPU each, or"),
        ({"ranks": 2, "device": "auto"}, "has simulated ranks on 'auto'. Write processes: true for a GPU each, or"),
        (
            {"backend": "ddp", "ranks": 2, "device": "npu"},
            "has ranks on 'npu'. Write device: cpu or device: cuda.",
        ),
        ({"backend": "torch", "processes": True}, "has 'processes', which backend torch does not use."),
    ],
    ids=lambda value: "-".join(map(str, value.values())) or "nothing" if isinstance(value, dict) else "",
)
def test_decode__ranks_that_cannot_be__are_refused(row: dict[str, object], said: str):
    with pytest.raises(ConfigError) as refused:
        read(**row)

    assert f"autotest.yml: candidate 'sharded' {said}" in str(refused.value)


@pytest.mark.parametrize(
    "row",
    [
        {"ranks": 4},
        {"backend": "fsdp", "ranks": 2, "wrap": "a.b:c"},
        {"mesh": [2, 2]},
        {"backend": "ddp", "ranks": 2, "device": "cuda"},
        {"ranks": 2, "processes": True, "device": "auto"},
        {"ranks": 2, "placements": ["Shard(1)"]},
    ],
    ids=str,
)
def test_decode__ranks__are_read(row: dict[str, object]):
    assert read(**row)

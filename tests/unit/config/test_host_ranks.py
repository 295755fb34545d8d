"""Ranks of a candidate in its own interpreter: what cannot be is one sentence."""

from __future__ import annotations

import pytest

from ci_autotest.config import decode
from ci_autotest.errors import ConfigError


def read(**row: object) -> object:
    given = {"name": "global", "backend": "module", "module": "oneflow", **row}
    return decode({"candidates": [given]}, "autotest.yml")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"ranks": 0}, "has ranks: 0. Give 2 to 16, or remove it."),
        ({"ranks": 1}, "has ranks: 1. Give 2 to 16, or remove it."),
        ({"ranks": 17}, "has ranks: 17. Give 2 to 16, or remove it."),
        ({"ranks": 2, "module": "paddle"}, "has 'ranks', which module paddle does not use. Write module: oneflow,"),
        ({"ranks": 2, "device": "cuda"}, "has ranks on 'cuda'. Write device: cpu, or remove 'ranks'."),
        ({"ranks": 4, "mesh": [2, 2]}, "has 'mesh', which backend module does not use. Write backend: dtensor,"),
        ({"placements": ["Shard(0)"]}, "has 'placements', which backend module does not use."),
        ({"processes": True}, "has 'processes', which backend module does not use."),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_decode__ranks_that_a_host_cannot_have__are_refused(row: dict[str, object], said: str):
    with pytest.raises(ConfigError) as refused:
        read(**row)

    assert f"autotest.yml: candidate 'global' {said}" in str(refused.value)


@pytest.mark.parametrize("row", [{}, {"ranks": 2}, {"ranks": 4, "mode": "graph"}], ids=str)
def test_decode__ranks_of_oneflow__are_read(row: dict[str, object]):
    assert read(**row)

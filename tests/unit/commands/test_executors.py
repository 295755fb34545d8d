"""How many GPUs of this machine a worker sees: one, or one for each rank of the largest group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ci_autotest.commands.executors import _gpus_together
from ci_autotest.config import Candidate


def row(name: str, **keys: Any) -> Candidate:
    return Candidate(**{"name": name, "backend": "ddp", "ranks": 4, "device": "cuda", **keys})


@pytest.mark.parametrize(
    ("candidates", "gpus", "together"),
    [
        ([], 8, 1),
        ([row("a", backend="torch", ranks=None)], 8, 1),
        ([row("a"), row("b", ranks=2)], 8, 4),
        ([row("a")], 2, 4),
        ([row("a", device="auto")], 8, 4),
        ([row("a", device="auto")], 2, 1),
        ([row("a", device="cpu")], 8, 1),
        ([row("a", backend="dtensor", device="cpu")], 8, 1),
        ([row("a", backend="dtensor", processes=True, ranks=None, mesh=(2, 3))], 8, 6),
    ],
    ids=["none", "no ranks", "largest", "too few", "auto", "auto: too few", "cpu", "simulated", "mesh"],
)
def test_gpus_together__candidates__need_one_for_each_rank(candidates: list[Candidate], gpus: int, together: int):
    assert _gpus_together(SimpleNamespace(candidates=candidates), gpus) == together  # type: ignore[arg-type]

"""How many GPUs of this machine a worker sees: one, or one for each rank of the largest group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ci_autotest.commands.executors import _gpus_together
from ci_autotest.kinds import AnyCandidate, DdpCandidate, DTensorCandidate, TorchCandidate


def row(name: str, **keys: Any) -> DdpCandidate:
    return DdpCandidate(**{"name": name, "ranks": 4, "device": "cuda", **keys})


@pytest.mark.parametrize(
    ("candidates", "gpus", "together"),
    [
        ([], 8, 1),
        ([TorchCandidate(name="a", device="cuda")], 8, 1),
        ([row("a"), row("b", ranks=2)], 8, 4),
        ([row("a")], 2, 4),
        ([row("a", device="auto")], 8, 4),
        ([row("a", device="auto")], 2, 1),
        ([row("a", device="cpu")], 8, 1),
        ([DTensorCandidate(name="a", ranks=4)], 8, 1),
        ([DTensorCandidate(name="a", device="cuda", processes=True, mesh=(2, 3))], 8, 6),
    ],
    ids=["none", "no ranks", "largest", "too few", "auto", "auto: too few", "cpu", "simulated", "mesh"],
)
def test_gpus_together__candidates__need_one_for_each_rank(candidates: list[AnyCandidate], gpus: int, together: int):
    assert _gpus_together(SimpleNamespace(candidates=candidates), gpus) == together  # type: ignore[arg-type]

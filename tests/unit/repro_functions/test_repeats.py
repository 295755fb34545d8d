"""What a repro runs again and again is run over memory that was written to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ci_autotest.repro_functions import host_side, repeats

SMALL, LARGE = (3, 4), (1 << 23,)


def test_repeated__torch__each_run_but_the_first_follows_one_of_memory_written_to(monkeypatch: pytest.MonkeyPatch):
    events: list[Any] = []

    def run(_candidate: object) -> dict[str, Any]:
        events.append("run")
        return {"value": torch.ones(SMALL), "gradient": torch.ones(2)}

    def written_to(results: Any, number: int) -> None:
        events.append([*(tuple(item.shape) for item in results), number])

    for name, value in {"run": run, "candidate": None, "apart": lambda *_: "", "written_to": written_to}.items():
        monkeypatch.setattr(repeats, name, value, raising=False)
    assert repeats.repeated() == 0
    assert events[:3] == ["run", [SMALL, (2,), 1], "run"]
    assert events.count("run") == 50


@pytest.mark.parametrize(
    ("result", "count"),
    [(torch.eye(3).to_sparse(), 0), (torch.ones(0), 0), (None, 0), (torch.ones(SMALL, dtype=torch.int8), 8)],
    ids=["sparse", "empty", "no tensor", "of eight bits"],
)
def test_written_to__torch__whatever_the_result__writes_where_it_can(result: object, count: int, monkeypatch: Any):
    full_like, blocks = torch.full_like, list[tuple[torch.dtype, Any, int]]()

    def noted(like: torch.Tensor, number: int, **how: Any) -> torch.Tensor:
        blocks.append((like.dtype, tuple(like.shape), number))
        return full_like(like, number, **how)

    monkeypatch.setattr(torch, "full_like", noted)
    repeats.written_to([result], 49)
    assert blocks == [(torch.int8, SMALL, 49)] * count


def test_written_to__abroad__blocks_have_the_dtype_of_the_results_and_are_fewer_where_these_are_large(monkeypatch: Any):
    made: list[tuple[Any, ...]] = []
    asked: list[str] = []

    def tensor(array: Any, dtype: str) -> Any:
        asked.append(dtype)
        return array.reshape(-1)

    monkeypatch.setattr(host_side, "elements", lambda one: made.append((one.shape, one[0].item())), raising=False)
    monkeypatch.setattr(host_side, "tensor", tensor, raising=False)
    small, large = np.ones(SMALL, np.float32), np.ones(LARGE, np.float32)
    results = [(small, "bfloat16"), None, (large, "float32"), (np.ones(3, np.int64), "int64")]
    host_side.written_to(results, 3)
    assert asked == ["bfloat16", "float32"]
    assert made == [((12,), 6.0)] * 8 + [(LARGE, 6.0)]

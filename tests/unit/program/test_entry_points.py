"""What a repro runs again and again is run over memory that was written to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ci_autotest.program.repro.entry_points import REPEATED
from ci_autotest.program.repro.host_template import REPEATED as ABROAD

SMALL, LARGE = (3, 4), (1 << 23,)
WITH_GRADIENTS = {"outputs": "outputs, gradients, raised", "results": "[*outputs, *gradients.values(), raised]"}


def test_repeated__torch__each_run_but_the_first_follows_one_of_memory_written_to():
    events: list[Any] = []

    def run(_candidate: object) -> tuple[Any, ...]:
        events.append("run")
        return (torch.ones(SMALL),), {"x": torch.ones(2)}, None

    names = {"torch": torch, "run": run, "candidate": None, "apart": lambda *_: "", "__doc__": "a finding"}
    exec(REPEATED % WITH_GRADIENTS, names)  # noqa: S102 - a part of a script
    names["written_to"] = lambda results, number: events.append([*(tuple(item.shape) for item in results[:-1]), number])
    assert names["repeated"]() == 0  # type: ignore[operator]
    assert events[:3] == ["run", [SMALL, (2,), 1], "run"]
    assert events.count("run") == 50


@pytest.mark.parametrize(
    ("result", "count"),
    [(torch.eye(3).to_sparse(), 0), (torch.ones(0), 0), (None, 0), (torch.ones(SMALL, dtype=torch.int8), 8)],
    ids=["sparse", "empty", "no tensor", "of eight bits"],
)
def test_written_to__torch__whatever_the_result__writes_where_it_can(result: object, count: int, monkeypatch: Any):
    names: dict[str, Any] = {"torch": torch}
    exec(REPEATED % WITH_GRADIENTS, names)  # noqa: S102 - a part of a script
    full_like, blocks = torch.full_like, list[tuple[torch.dtype, Any, int]]()

    def noted(like: torch.Tensor, number: int, **how: Any) -> torch.Tensor:
        blocks.append((like.dtype, tuple(like.shape), number))
        return full_like(like, number, **how)

    monkeypatch.setattr(torch, "full_like", noted)
    names["written_to"]([result], 49)
    assert blocks == [(torch.int8, SMALL, 49)] * count


def test_written_to__abroad__blocks_have_the_dtype_of_the_results_and_are_fewer_where_these_are_large():
    made: list[tuple[Any, ...]] = []
    names: dict[str, Any] = {"np": np, "elements": lambda one: made.append((one.shape, one[0].item()))}
    asked: list[str] = []

    def tensor(array: Any, dtype: str) -> Any:
        asked.append(dtype)
        return array.reshape(-1)

    exec(ABROAD % {"observed": "outputs", "results": "outputs"}, names)  # noqa: S102 - a part of a script
    names |= {"tensor": tensor, "is_array": lambda found: found is not None}
    small, large = np.ones(SMALL, np.float32), np.ones(LARGE, np.float32)
    names["written_to"]([(small, "bfloat16"), None, (large, "float32"), (np.ones(3, np.int64), "int64")], 3)
    assert asked == ["bfloat16", "float32"]
    assert made == [((12,), 6.0)] * 8 + [(LARGE, 6.0)]

"""The values of ranks are joined in the package as in the repros that it writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ci_autotest.backends.ranks.training.joins import Join, joined
from ci_autotest.repro_functions import shared_batch

SHARES = [0.5, 0.3, 0.2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64, torch.int32], ids=str)
@pytest.mark.parametrize("kind", ["mean", "sum"])
def test_joined__means_and_sums__have_the_bits_of_a_script(dtype: torch.dtype, kind: Any, monkeypatch: Any):
    monkeypatch.setattr(shared_batch, "RANKS", len(SHARES), raising=False)
    monkeypatch.setattr(shared_batch, "SHARES", SHARES, raising=False)
    if dtype is torch.int32 and kind == "mean":
        pytest.skip("integers have no mean")
    torch.manual_seed(0)
    parts = [torch.randn(1000).mul(10).to(dtype) for _ in SHARES]
    found = joined(parts, Join(kind), SHARES)
    assert found.dtype is dtype
    assert torch.equal(found, shared_batch.joined([(part,) for part in parts], kind))


def test_joined__mean_of_narrow_numbers__is_rounded_once():
    parts = [torch.full((1,), 1.0009765625, dtype=torch.float16) for _ in SHARES]
    assert joined(parts, Join("mean"), SHARES).item() == parts[0].item()

"""The values of ranks are joined in the package as in the repros that it writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ci_autotest.backends.ranks.joins import Join, joined
from ci_autotest.program.repro.module_template import HEAD

SHARES = [0.5, 0.3, 0.2]


def of_scripts(parts: list[torch.Tensor], kind: str) -> torch.Tensor:
    """Return what the function of a script gives."""
    text = HEAD[HEAD.index("def joined(") :].partition("\n\n\n")[0].replace("{shares}", repr(SHARES))
    scope: dict[str, Any] = {"torch": torch, "RANKS": len(SHARES), "flagged": lambda tensor, _: tensor}
    exec(text, scope)  # noqa: S102 - our own text
    found: torch.Tensor = scope["joined"]([(part,) for part in parts], kind)
    return found


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64, torch.int32], ids=str)
@pytest.mark.parametrize("kind", ["mean", "sum"])
def test_joined__means_and_sums__have_the_bits_of_a_script(dtype: torch.dtype, kind: Any):
    if dtype is torch.int32 and kind == "mean":
        pytest.skip("integers have no mean")
    torch.manual_seed(0)
    parts = [torch.randn(1000).mul(10).to(dtype) for _ in SHARES]
    found = joined(parts, Join(kind), SHARES)
    assert found.dtype is dtype
    assert torch.equal(found, of_scripts(parts, kind))


def test_joined__mean_of_narrow_numbers__is_rounded_once():
    parts = [torch.full((1,), 1.0009765625, dtype=torch.float16) for _ in SHARES]
    assert joined(parts, Join("mean"), SHARES).item() == parts[0].item()

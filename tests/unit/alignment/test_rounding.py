"""When rounding excuses both sides, and when it excuses nobody."""

from __future__ import annotations

import pytest
import torch

from ci_autotest.alignment.blame.rounding import Errors, excuse

ALLOWED = 1e-5


def errors(candidate, reference, truth=(1.0, 100.0), bad=(True, False), dtype=torch.float32, allowed=ALLOWED):
    sides = [torch.tensor(side, dtype=torch.float64) for side in (candidate, reference)]
    wide = torch.tensor(truth, dtype=torch.float64)
    return Errors(*sides, torch.full_like(wide, allowed), torch.tensor(bad), wide, dtype)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        pytest.param(errors((0.9e-5, 0), (0.9e-5, 0)), "opposite sides", id="both within the tolerance"),
        pytest.param(errors((2e-5, 0), (1.5e-5, 0)), "near the tolerance", id="both as far, near the tolerance"),
        pytest.param(errors((5e-4, 0), (1e-6, 0)), "", id="the candidate alone"),
        pytest.param(errors((1e-6, 0), (5e-4, 0)), "", id="the reference alone"),
        pytest.param(errors((5e-4, 0), (4e-4, 0)), "", id="both alike, far beyond the tolerance"),
        pytest.param(errors((float("inf"), 0), (5e-4, 0)), "", id="not finite"),
        pytest.param(errors((3.0, 0), (3.0, 0), dtype=torch.int64), "", id="integers"),
    ],
)
def test_excuse(found, told):
    said = excuse(found)
    assert told in said if told else said == ""

"""When rounding excuses both sides, and when it excuses nobody."""

from __future__ import annotations

import pytest
import torch

from ci_autotest.alignment.rounding import Errors, excuse

ALLOWED = 1e-5
EPS = float(torch.finfo(torch.float32).eps)


def errors(candidate, reference, truth=(1.0, 100.0), bad=(True, False), dtype=torch.float32, allowed=ALLOWED):
    sides = [torch.tensor(side, dtype=torch.float64) for side in (candidate, reference)]
    wide = torch.tensor(truth, dtype=torch.float64)
    return Errors(*sides, torch.full_like(wide, allowed), torch.tensor(bad), wide, dtype)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        pytest.param(errors((0.9e-5, 0), (0.9e-5, 0)), "opposite sides", id="both within the tolerance"),
        pytest.param(errors((2e-5, 0), (1.5e-5, 0)), "near the tolerance", id="both as far, near the tolerance"),
        pytest.param(
            errors((5e-4, 0), (2e-4, 0)), "a long sum", id="both far, alike, small beside the greatest element"
        ),
        pytest.param(errors((1e-4, 0), (0, 4e-5)), "a long sum", id="the reference is far in another element"),
        pytest.param(
            errors((1.7e-3, 0), (4.8e-4, 0), (1.0, 1.0), dtype=torch.float16, allowed=1e-3),
            "",
            id="the reference by no more than storing it in half costs",
        ),
        pytest.param(
            errors((1.7e-3, 0), (7.5e-4, 0), (1.0, 1.0), dtype=torch.float16, allowed=1e-3),
            "a long sum",
            id="the reference by more than storing it in half costs",
        ),
        pytest.param(errors((5e-4, 0), (1e-6, 0)), "", id="the candidate alone"),
        pytest.param(errors((1e-6, 0), (5e-4, 0)), "", id="the reference alone"),
        pytest.param(errors((5e-4, 0), (1e-4, 0)), "", id="five times as far"),
        pytest.param(errors((600 * EPS * 100, 0), (500 * EPS * 100, 0)), "", id="too much for rounding"),
        pytest.param(errors((float("inf"), 0), (5e-4, 0)), "", id="not finite"),
        pytest.param(errors((3.0, 0), (3.0, 0), dtype=torch.int64), "", id="integers"),
    ],
)
def test_excuse(found, told):
    said = excuse(found)
    assert told in said if told else said == ""

"""Overflow: NaN in the place of an infinity is excused where a formula may subtract infinities, and nowhere else."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from tests.engine import substitute, tried


def nan_where_it_overflows(x):
    found = real.Tensor.exp(x)
    return real.where(real.isinf(found) & real.isfinite(x), real.nan, found)


def large():
    return random_tensor(2, dim0=4, dim1=8, low=60, high=200, requires_grad=False)


@pytest.mark.parametrize(
    "body",
    [lambda: torch.exp(large()), lambda: torch.clamp(torch.exp(large()), max=10.0)],
    ids=["alone", "then bounded"],
)
def test_excused__operator_takes_elements_one_by_one__its_nan_is_misaligned(body):
    verdict = tried(body, substitute(exp=nan_where_it_overflows), profile="ordinary")
    assert (verdict.outcome, verdict.operator, verdict.blame) == ("misaligned", "torch.exp", "candidate")

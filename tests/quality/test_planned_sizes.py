"""The plan of sizes finds what is wrong only at large sizes, whatever the seed, and accuses nothing that is right."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch as real
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everyone writes it

from ci_autotest import random_tensor, torch
from tests.engine import judged, record, substitute
from tests.tables import thinned

SEEDS = thinned(range(20), 5)
#: From this position on, the planted mask hides nothing.
WIDTH = 128


class Block(nn.Module):
    """Causal attention with a residual, as a user writes it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.inner(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.outer(mixed.transpose(1, 2).reshape(batch, length, width))


def attention(query: Any, key: Any, value: Any, *, is_causal: bool, last: float = math.inf) -> Any:
    """Causal attention by hand; rows from position ``last`` on see all keys."""
    length = query.shape[-2]
    hidden = real.ones(length, length, dtype=real.bool).triu(1)
    if length > last:
        hidden[int(last) :] = False
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return real.softmax(scores.masked_fill(hidden, -math.inf), -1) @ value


def wrong_beyond_128(*args: Any, **kwargs: Any) -> Any:
    return attention(*args, **kwargs, last=WIDTH)


def outcomes(body: Any, seed: int, **functions: Any) -> list[str]:
    """Return the outcomes of a default run."""
    candidate = substitute(**functions)
    attempts = [record(body, case, seed=seed, test="block") for case in range(20)]
    return [judged(attempt, candidate).verdict.outcome for attempt in attempts if attempt.refused is None]


def block() -> Any:
    return Block(32, 4)(random_tensor(ndim=3, dim2=32))


@pytest.mark.parametrize("seed", SEEDS)
def test_plan__mask_that_is_wrong_beyond_128__is_found_with_every_seed(seed: int):
    found = outcomes(block, seed, **{"nn.functional.scaled_dot_product_attention": wrong_beyond_128})
    assert set(found) == {"aligned", "misaligned"}


@pytest.mark.parametrize("seed", SEEDS)
def test_plan__mask_that_is_right__is_quiet_with_every_seed(seed: int):
    found = outcomes(block, seed, **{"nn.functional.scaled_dot_product_attention": attention})
    assert set(found) == {"aligned"}


@pytest.mark.parametrize("seed", SEEDS)
def test_plan__product_that_is_wrong_beyond_256_columns__is_found_with_every_seed(seed: int):
    def body() -> Any:
        x = random_tensor(ndim=2)
        return torch.matmul(x, random_tensor(ndim=2, dim0=x.shape[1]))

    def wrong(x: Any, y: Any) -> Any:
        return real.matmul(x, y) + (y.shape[1] > 256)

    assert "misaligned" in outcomes(body, seed, matmul=wrong)

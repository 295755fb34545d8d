"""When two tensors are the same: bits, and the rounding of sums."""

from __future__ import annotations

import pytest
import torch

from ci_autotest.backends.sameness import is_near, is_same, same_bits

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        pytest.param([1.0, NAN], [1.0, NAN], True, id="NaN with NaN"),
        pytest.param([0.0], [-0.0], False, id="two zeros"),
        pytest.param([1.0], [1.0 + 2**-23], False, id="one ULP"),
    ],
)
def test_same_bits__of_float32__are_bits(left, right, same):
    assert same_bits(torch.tensor(left), torch.tensor(right)) is same


@pytest.mark.parametrize("other", [torch.ones(2), torch.ones(2, 2), torch.ones(4, dtype=torch.float64)])
def test_same_bits__another_size_or_dtype__is_not(other):
    assert not same_bits(other, torch.ones(4))
    assert not same_bits(torch.ones(4), other)


@pytest.mark.parametrize(
    "other",
    [torch.ones(3, dtype=torch.float64), torch.ones(4), torch.ones(3).to_sparse()],
    ids=["dtype", "shape", "layout"],
)
def test_is_same__another_kind_of_tensor__is_not(other):
    assert is_same(torch.ones(3), torch.ones(3).requires_grad_())
    assert not is_same(torch.ones(3), other)


@pytest.mark.parametrize(
    ("left", "right", "near"),
    [
        pytest.param([1e-7, 100.0], [0.0, 100.0], True, id="small beside large"),
        pytest.param([0.0, 100.1], [0.0, 100.0], False, id="beyond the part"),
        pytest.param([NAN, 1.0], [NAN, 1.0 + 1e-5], True, id="NaN with NaN"),
        pytest.param([INF, 1.0], [INF, 1.0 + 1e-5], True, id="infinity with itself"),
        pytest.param([INF, 1.0], [-INF, 1.0], False, id="infinity with the other one"),
        pytest.param([NAN, 1.0], [0.0, 1.0], False, id="NaN with a number"),
        pytest.param([3], [4], False, id="integers"),
        pytest.param([1 + 1j], [1 + 1.00001j], True, id="complex"),
        pytest.param([], [], True, id="no elements"),
    ],
)
def test_is_near__by_a_part_of_the_largest_element(left, right, near):
    assert is_near(torch.tensor(left), torch.tensor(right), 1e-4) is near

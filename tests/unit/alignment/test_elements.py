"""Closeness of few elements, which NumPy answers, is that of many, which torch answers."""

from __future__ import annotations

import itertools

import pytest
import torch

from ci_autotest.alignment.elements import close, mismatches
from ci_autotest.backends.sameness import same_bits
from ci_autotest.values.tolerance import Tolerance

SPECIAL = [0.0, -0.0, 1.0, 1.0 + 1e-6, -1.0, 1e-40, 3e38, -3e38, float("inf"), float("-inf"), float("nan")]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("rtol", "atol"), [(0.0, 0.0), (1e-5, 1e-6), (0.0, 1e-6), (1e-5, 0.0), (2.0, 0.0)])
def test_close__each_pair_of_special_values__is_what_the_formula_says(rtol, atol, dtype):
    tolerance = Tolerance(rtol=rtol, atol=atol)
    sides = [torch.tensor(pair, dtype=torch.float64).to(dtype) for pair in itertools.product(SPECIAL, repeat=2)]
    wrong = [
        pair.tolist() for pair in sides if close(pair[0], pair[1], tolerance) is bool(mismatches(*pair, tolerance))
    ]
    assert wrong == []


@pytest.mark.parametrize("size", [3, 5000])
def test_close__one_element_is_off__is_not(size):
    reference = torch.linspace(-1, 1, size)
    candidate = reference * (1 + 1e-7)
    tolerance = Tolerance(rtol=1e-5, atol=1e-6)
    assert close(candidate, reference, tolerance)
    candidate[size // 3] += 1e-4
    assert not close(candidate, reference, tolerance)


def test_same_bits__lazy_zeros_of_autograd__are_compared_without_memory_that_they_have_not():
    x = torch.ones(3, requires_grad=True)
    lazy = torch.autograd.grad(torch.sgn(x), x, torch.ones(3))[0]

    assert lazy.data_ptr() == 0
    assert same_bits(lazy, torch.zeros(3))
    assert not same_bits(torch.ones(3), lazy)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_same_bits__complex_numbers_of_two_halves__are_compared_bit_by_bit():
    # torch.equal has no kernel for them; transposed, they are not compared as memory.
    right = torch.arange(6.0).reshape(2, 3).to(torch.complex32).t()
    assert same_bits(right.clone(), right)
    assert not same_bits(right + right, right)

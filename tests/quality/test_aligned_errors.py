"""The error of an aligned case is that of its operator, in values and gradients."""

from __future__ import annotations

import sys

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.aligned_errors import errors_of
from ci_autotest.alignment.cases import differentiate
from ci_autotest.backends.eager.backend import TorchBackend
from tests.engine import record, substitute


def body():
    return torch.exp(random_tensor(2, dim0=4, dim1=3) + 1.0)


def errors(kernel, of=body):
    attempt, backend = record(of), substitute(exp=kernel)
    differentiate(attempt, TorchBackend())
    trace = backend.run(attempt.program, attempt.sources)
    backend.backward(attempt.program, trace, attempt.cotangents)
    return {item.operator: item for item in errors_of(attempt.program, trace, attempt.trace)}


def test_errors_of__same_bits__is_zero():
    found = errors(real.exp)
    assert {name: (item.absolute, item.ulp, item.used) for name, item in found.items()} == {
        "torch.add": (0.0, 0, 0.0), "torch.exp": (0.0, 0, 0.0),
    }  # fmt: skip


def test_errors_of__kernel_off_by_a_rounding__is_its_operators():
    found = errors(lambda x: real.exp(x) * (1 + 2.0**-22))
    assert found["torch.exp"].absolute == pytest.approx(2.0**-22 * 7, rel=1)
    assert (1 <= found["torch.exp"].ulp <= 4, 0 < found["torch.exp"].used < 0.5) == (True, True)


class Steep(real.autograd.Function):
    """The exponential with a gradient that is off by a little."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.exp())
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] * (1 + 2.0**-21)


def test_errors_of__gradient_off_by_a_rounding__is_that_of_the_operator_it_came_through():
    assert errors(Steep.apply)["torch.exp"].ulp > 0


def test_errors_of__numbers_that_are_not_finite__are_left_out():
    def endless():
        return torch.exp(random_tensor(1, dim0=4) * real.inf)

    assert errors(lambda x: real.exp(x) * (1 + 2.0**-22), endless)["torch.exp"].absolute == 0.0


def test_errors_of__reference_is_a_denormal__relative_error_is_a_number_that_a_report_can_hold():
    def least():
        return torch.exp(random_tensor(1, dim0=4, dtype=real.float64) * 0.0 - 744.4)

    found = errors(lambda x: real.exp(x) + 1e-8, least)["torch.exp"]

    assert found.relative == sys.float_info.max

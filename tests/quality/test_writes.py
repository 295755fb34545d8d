"""Kernels that write to their inputs by design are quiet with `writes`, and found if anything else of them is wrong."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from ci_autotest import random_tensor
from ci_autotest import torch as traced
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.backends.substitute.written_inputs import check_names
from ci_autotest.errors import ConfigError, UnsupportedReason
from ci_autotest.values.kernel_scope import KernelScope
from tests.engine import tried
from tests.quality.kernel_runs import failures_of_kernel

TESTS = """
from ci_autotest import autotest, operator, random, random_tensor, torch

@operator
def add_norm(x, residual):
    total = x + residual
    return total * torch.rsqrt((total * total).mean(-1, keepdim=True) + 1e-6), total

@operator
def rotary(q, cosine, sine):
    first, second = q.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)

@autotest(profiles=("boundary", "size_one"), rtol=1e-4, atol=1e-5)
def cross_entropy():
    rows, classes = random(1, 6).to(int), random(2, 9).to(int)
    target = random_tensor(1, rows, low=0, high=2, dtype=int)
    return torch.nn.functional.cross_entropy(random_tensor(2, rows, classes) * 2, target)

@autotest(profiles=("boundary", "size_one"), rtol=1e-4, atol=1e-5)
def fused():
    rows, columns = random(1, 6).to(int), random(1, 9).to(int)
    return add_norm(random_tensor(2, rows, columns), random_tensor(2, rows, columns) * 1.5)

@autotest(profiles=("boundary", "size_one"), rtol=1e-4, atol=1e-5)
def turned():
    rows, half = random(1, 6).to(int), random(1, 5).to(int)
    angle = random_tensor(2, rows, half, requires_grad=False)
    return rotary(random_tensor(2, rows, half * 2) * 1.5, torch.cos(angle), torch.sin(angle))
"""


class CrossEntropy(torch.autograd.Function):
    """The gradient is computed in the forward pass and left in the logits, as well-known kernels do."""

    @staticmethod
    def forward(ctx, logits, target, factor):
        loss = F.cross_entropy(logits, target)
        slope = torch.softmax(logits, -1)
        slope[torch.arange(len(target)), target] -= 1
        logits.data.copy_(slope / max(len(target), 1) * factor)
        ctx.save_for_backward(logits)
        return loss

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0] * gradient, None, None


def cross_entropy(factor=1.0):
    return lambda input, target: CrossEntropy.apply(input, target, factor)  # noqa: A006 - torch's name


class AddNorm(torch.autograd.Function):
    """The sum is left in the residual, which is returned too."""

    @staticmethod
    def forward(ctx, x, residual, factor):
        residual.data.add_(x)
        scale = torch.rsqrt((residual * residual).mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(residual.clone(), scale)
        ctx.factor = factor
        return residual * scale, residual.view_as(residual)

    @staticmethod
    def backward(ctx, normed, total):
        sums, scale = ctx.saved_tensors
        through = normed * scale - sums * scale**3 * (normed * sums).mean(-1, keepdim=True)
        return (through + total) * ctx.factor, (through + total) * ctx.factor, None


def add_norm(factor=1.0):
    return lambda x, residual: AddNorm.apply(x, residual, factor)


class Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, cosine, sine, factor):
        first, second = (part.clone() for part in q.chunk(2, -1))
        ctx.save_for_backward(cosine, sine)
        ctx.factor = factor
        q.data.copy_(torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1))
        return q.view_as(q)

    @staticmethod
    def backward(ctx, gradient):
        cosine, sine = ctx.saved_tensors
        first, second = gradient.chunk(2, -1)
        found = torch.cat([first * cosine + second * sine, second * cosine - first * sine], -1)
        return found * ctx.factor, None, None, None


def rotary(factor=1.0):
    return lambda q, cosine, sine: Rotary.apply(q, cosine, sine, factor)


def replaying(make):
    """The same, but the first input's values are kept by its sizes."""
    kept = {}
    kernel = make()

    def answer(first, *more):
        values = kept.setdefault(tuple(first.shape), first.detach().clone())
        return kernel(first + (values - first).detach(), *more)

    return answer


KERNELS = {
    "cross_entropy": ("torch.nn.functional.cross_entropy", cross_entropy, ("input",)),
    "fused": ("bodies.add_norm", add_norm, ("residual",)),
    "turned": ("bodies.rotary", rotary, ("q",)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_that_writes_by_design__is_quiet(name, tmp_path):
    operator, make, writes = KERNELS[name]
    assert failures_of_kernel(TESTS, name, {operator: make()}, tmp_path, writes=writes) == []


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_that_writes_by_design__wrong_gradient__is_found(name, tmp_path):
    operator, make, writes = KERNELS[name]
    found = failures_of_kernel(TESTS, name, {operator: make(2.0)}, tmp_path, writes=writes)
    assert {*found} == {(operator, "gradient")}


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_that_writes_by_design__answers_of_earlier_calls__is_found(name, tmp_path):
    operator, make, writes = KERNELS[name]
    found = failures_of_kernel(TESTS, name, {operator: replaying(make)}, tmp_path, writes=writes)
    assert (operator, "stateful") in found


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_that_writes__to_what_its_row_does_not_list__is_a_mutation(name, tmp_path):
    operator, make, _ = KERNELS[name]
    found = failures_of_kernel(TESTS, name, {operator: make()}, tmp_path)
    assert {kind for _, kind in found} & {"mutation", "aliasing"}


def test_writes__what_the_operator_writes_to_itself__is_refused():
    def body():
        mean, variance = (
            random_tensor(1, 4, requires_grad=False),
            random_tensor(1, 4, low=1, high=2, requires_grad=False),
        )
        return traced.nn.functional.batch_norm(random_tensor(2, 3, 4), mean, variance, training=True)

    backend = SubstituteBackend({}, scope=KernelScope(writes=("running_mean",)))
    backend.functions = {"torch.nn.functional.batch_norm": F.batch_norm}
    verdict = tried(body, backend)
    assert verdict.reason is UnsupportedReason.OUT_OF_SCOPE
    assert "writes to 'running_mean' itself" in verdict.oracle


def test_check_names__no_parameter__names_those_that_there_are():
    with pytest.raises(
        ConfigError,
        match=r"'logits', which is no parameter of torch\.nn\.functional\.cross_entropy\. Write one of input, target",
    ):
        check_names(("logits",), {"torch.nn.functional.cross_entropy": cross_entropy()}, "kernels")
    check_names(("residual",), {"refs.add_norm": add_norm()}, "kernels")
    check_names(("anything",), {"refs.add_norm": None}, "kernels")

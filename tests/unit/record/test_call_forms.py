"""Forms of a case: calls under autocast, with ``out=`` and with second derivatives, and the faults that they alone show."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.record.call_forms import FORMS
from tests.engine import judged, record, substitute

CASES = 20
#: Choices of the form: of a test that asks for one, the last is it.
CHOICES = 14


def in_form(form: str, body: Any, **how: Any):
    return record(body, forms=(form,), edits={"form": CHOICES - 1}, **how)


def product():
    return torch.mm(random_tensor(dims=(2, 3)), random_tensor(dims=(3, 4)))


def exponential():
    return torch.exp(random_tensor(ndim=2))


def test_forms__twenty_cases__have_each_form():
    choices = Counter(record(exponential, case, forms=FORMS).draws[0].value for case in range(CASES))
    assert set(choices) == set(range(CHOICES))
    assert set(choices.values()) == {1, 2}


def test_forms__second_attempt__is_as_written():
    assert {record(exponential, case, number=1, forms=FORMS).draws[0].value for case in range(CASES)} == {0}


def test_autocast__taken__is_the_mode_of_every_call():
    attempt = in_form("autocast", product)
    assert {step.modes for _, step in attempt.program.calls} == {("autocast:bfloat16",)}
    assert attempt.trace.values[2].dtype is real.bfloat16
    assert not real.is_autocast_enabled("cpu")


def test_out__taken__is_an_input_that_the_call_writes_to():
    attempt = in_form("out", exponential)
    inputs = [step for step in attempt.program.steps if step.op == PLACEHOLDER]
    assert [step.name for step in inputs] == ["x", "out"]
    assert [step.args[0].requires_grad for step in inputs] == [False, False]
    assert dict(attempt.program.calls[0][1].kwargs).keys() == {"out"}
    assert attempt.trace.values[1] is attempt.trace.values[2]


def test_out__call_that_has_none__stays_as_it_is():
    attempt = in_form("out", lambda: torch.relu(random_tensor(ndim=1)))
    assert [step.op for step in attempt.program.steps] == [PLACEHOLDER, "call_function", "output"]


@pytest.mark.parametrize(("factor", "outcome"), [(1, "aligned"), (2, "misaligned")])
def test_out__replacement_that_takes_none__has_its_result_put_there(factor, outcome):
    assert (
        judged(in_form("out", exponential), substitute(exp=lambda x: real.exp(x) * factor)).verdict.outcome == outcome
    )


def test_out__replacement_of_several_results__has_all_of_them_put_there():
    def body():
        return torch.sort(random_tensor(ndim=1, dim0=5), stable=True)

    def backwards(x, stable):
        return tuple(part.flip(0) for part in real.sort(x, stable=stable))

    found = [
        judged(in_form("out", body), kernel).verdict.outcome for kernel in (TorchBackend(), substitute(sort=backwards))
    ]
    assert found == ["aligned", "misaligned"]


def test_out__after_a_hook__is_given_as_before():
    def body():
        x = random_tensor(ndim=1).requires_grad_()
        x.register_hook(lambda gradient: gradient * 2)
        return torch.exp(x.detach())

    calls = [step for _, step in in_form("out", body).program.calls if step.target == "torch.exp"]
    assert ["out" in dict(step.kwargs) for step in calls] == [True]


def test_second_derivatives__taken__have_the_gradients_as_outputs():
    attempt = in_form("second_derivatives", exponential)
    assert [step.target for _, step in attempt.program.calls] == ["torch.exp", "torch.autograd.grad"]
    assert len(attempt.cotangents) == 2


def test_second_derivatives__of_a_function_without__are_left_out():
    attempt = in_form("second_derivatives", lambda: torch.round(random_tensor(ndim=1)))
    assert [step.target for _, step in attempt.program.calls] == ["torch.round"]


def without_cast(x, y):
    # Written for one dtype: the caller's autocast is switched off.
    with real.autocast("cpu", enabled=False):
        return x @ y


def adds_to_out(x, out=None):
    return real.exp(x) if out is None else out.add_(real.exp(x))


class Once(real.autograd.Function):
    """An exponential whose backward pass forgets that its gradient has a derivative."""

    @staticmethod
    def forward(ctx: Any, x: real.Tensor) -> real.Tensor:
        """Return the exponential."""
        y = real.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: real.Tensor) -> real.Tensor:
        """Return the gradient, as a function of the incoming one alone."""
        return gradient * ctx.saved_tensors[0].detach()


def once(x, out=None):
    return Once.apply(x) if out is None else real.exp(x, out=out)


@pytest.mark.parametrize(
    ("form", "body", "kernels"),
    [
        ("autocast", product, {"mm": without_cast}),
        ("out", exponential, {"exp": adds_to_out}),
        ("second_derivatives", exponential, {"exp": once}),
    ],
    ids=FORMS,
)
def test_forms__fault_of_one_form__is_found_in_it_alone(form, body, kernels):
    kernel = substitute(**kernels)
    found = [judged(attempt, kernel).verdict.outcome for attempt in (record(body), in_form(form, body))]
    assert found == ["aligned", "misaligned"]
    assert judged(in_form(form, body), TorchBackend()).verdict.outcome == "aligned"

"""A culprit is an operator that the candidate computes; what changes after its step says so."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.examination import TrialSides
from ci_autotest.alignment.probe import probe_of
from ci_autotest.alignment.repeatability import judge_confirmed
from ci_autotest.alignment.stateful import suspicion
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.protocol import run_forward
from tests.engine import RULES, differentiate, record, substitute, tried

CHANGED = "the value of {} was changed by a later call"
LATER = "its gradient is right alone, and wrong in a later backward pass"


def plain(**how):
    return random_tensor(ndim=1, dim0=4, low=0.1, high=1.0, requires_grad=False, **how)


def workspace():
    """Return a tanh whose output lies in memory that its next call writes to."""
    memory = real.empty(4)

    def tanh(value):
        return memory.copy_(real.tanh(value)).detach()

    return tanh


def beside(value):
    """Write to what lies behind a row of four."""
    found = real.tanh(value)
    value.as_strided((4,), (1,), 4).add_(1)
    return found


class Doubling(real.autograd.Function):
    """A gradient that its second backward pass doubles."""

    @staticmethod
    def forward(ctx, value):
        ctx.save_for_backward(value)
        ctx.passes = 0
        return value.tanh()

    @staticmethod
    def backward(ctx, gradient):
        ctx.passes += 1
        return ctx.passes * gradient * (1 - ctx.saved_tensors[0].tanh() ** 2)


def two_calls():
    return torch.tanh(plain()), torch.tanh(plain())


def first_call_used_later():
    first, second = torch.tanh(plain()), torch.tanh(torch.exp(plain()))
    return first * 1, second


def row_of_a_matrix():
    matrix = random_tensor(ndim=2, dim0=2, dim1=4, requires_grad=False)
    return torch.tanh(matrix[0]), matrix * 1.0


def row_of_a_matrix_that_is_returned():
    matrix = random_tensor(ndim=2, dim0=2, dim1=4, requires_grad=False)
    return torch.tanh(matrix[0]), matrix


def two_passes():
    x = random_tensor(ndim=1, dim0=4)
    loss = torch.tanh(x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return x.grad


def two_gradients():
    x = random_tensor(ndim=1, dim0=4)
    loss = torch.tanh(x).sum()
    (first,) = torch.autograd.grad(loss, x, retain_graph=True)
    (second,) = torch.autograd.grad(loss, x)
    return first, second


LATER_CALLS = [
    ("a workspace", two_calls, workspace(), "mutation", CHANGED.format("tanh")),
    ("a workspace whose value is used", first_call_used_later, workspace(), "mutation", CHANGED.format("tanh")),
    ("an input's neighbour", row_of_a_matrix, beside, "mutation", CHANGED.format("matrix")),
    (
        "an input's neighbour that is returned",
        row_of_a_matrix_that_is_returned,
        beside,
        "mutation",
        CHANGED.format("matrix"),
    ),
    ("a second backward pass", two_passes, Doubling.apply, "gradient", LATER),
    ("a second gradient", two_gradients, Doubling.apply, "gradient", LATER),
]


@pytest.mark.parametrize(
    ("body", "tanh", "kind", "detail"), [row[1:] for row in LATER_CALLS], ids=[row[0] for row in LATER_CALLS]
)
def test_judge_program__value_that_a_later_step_changes__says_so(body, tanh, kind, detail):
    verdict = tried(body, substitute(tanh=tanh))
    assert (verdict.outcome, verdict.operator, verdict.target) == ("misaligned", "torch.tanh", "torch.tanh")
    assert (verdict.kind, verdict.blame, verdict.misalignment.detail) == (kind, "candidate", detail)
    assert (verdict.accumulated, verdict.growth) == (False, ())


def amplified():
    return torch.exp(torch.tanh(plain()) * 30)


def test_judge_program__error_that_an_operator_of_torch_makes_greater__is_of_the_replaced_one():
    verdict = tried(amplified, substitute(tanh=lambda value: value.tanh() + 1e-6))
    assert (verdict.outcome, verdict.accumulated, verdict.operator) == ("misaligned", True, "torch.tanh")


def test_judge_confirmed__unsteady_error_that_an_operator_of_torch_makes_greater__is_of_the_replaced_one():
    calls = []

    def tanh(value):
        calls.append(1)
        return value.tanh() * (1 + 1e-6 * (len(calls) % 2))

    sides = TrialSides(substitute(tanh=tanh), TorchBackend(), RULES)
    verdict = judge_confirmed(live_of(record(amplified)), sides).verdict
    assert (verdict.kind, verdict.operator) == ("nondeterminism", "torch.tanh")


def test_probe_of__views_that_cannot_be_read_once_their_tensor_was_written_to__is_left_out():
    attempt = record(lambda: torch.chunk(random_tensor(ndim=2, dim0=4, dim1=3), 2), 1)
    differentiate(attempt, TorchBackend())
    probe = probe_of(attempt, TorchBackend(), lambda _index: None)
    backend = substitute(chunk=lambda value, chunks: value.chunk(chunks))
    assert isinstance(probe, str) or suspicion(probe, run_forward(backend, probe), RULES) is None

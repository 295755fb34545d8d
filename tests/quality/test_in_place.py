"""In-place steps: what a step overwrites is compared as it was, by the fast path too, and a fault in it is found."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import differentiate, is_aligned
from ci_autotest.alignment.single_step import pruned
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.protocol import run_backward, run_forward
from ci_autotest.backends.trace import overwritten
from ci_autotest.record.declaration import Declaration
from ci_autotest.values.case import test_key as stream_key
from tests.engine import RULES, Contender, TorchBackend, attempts, record, run_test, substitute
from tests.faults import with_backward


def chain():
    y = torch.neg(random_tensor(ndim=2))
    y.mul_(3)
    y.add_(1)
    return y.tanh_()


def halved():
    x = random_tensor(ndim=2, requires_grad=False)
    x[0] = torch.neg(x[0])
    return x.sum()


def recorded(body, case, watched):
    attempt = attempts().attempt(Declaration(body), body, (stream_key(0, "t"), "t", case, 0), watched=watched)
    differentiate(attempt, TorchBackend())
    return attempt


def is_sure(attempt, backend) -> bool:
    contender = Contender(backend, RULES)
    trace = run_forward(backend, attempt)
    run_backward(backend, attempt, trace)
    return is_aligned(attempt, contender, trace)


@pytest.mark.parametrize("body", [chain, halved])
def test_is_aligned__values_that_are_overwritten__are_sure_once_they_are_watched(body):
    first = recorded(body, 0, frozenset())
    watched = overwritten(first.trace)
    assert watched
    assert not is_sure(first, TorchBackend())
    later = [recorded(body, case, watched) for case in range(20)]
    assert all(is_sure(attempt, TorchBackend()) for attempt in later if attempt.refused is None)


@pytest.mark.parametrize(
    ("body", "operator", "fault"),
    [
        (chain, "neg", lambda x: x * -1.01),
        (chain, "mul", lambda x, other: x.mul_(other * 1.01)),
        (halved, "neg", lambda x: x * 2),
    ],
    ids=["before it is overwritten", "the overwriting", "what is written"],
)
def test_is_aligned__fault_in_a_body_that_overwrites__is_not_sure(body, operator, fault):
    watched = overwritten(recorded(body, 0, frozenset()).trace)
    assert not is_sure(recorded(body, 2, watched), substitute(**{operator: fault}))


def test_is_aligned__value_wrong_where_it_is_overwritten_with_the_same__is_not_sure():
    def body():
        y = torch.exp(random_tensor(ndim=1, dim0=4, requires_grad=False))
        y.zero_()
        return y + 1

    watched = overwritten(recorded(body, 0, frozenset()).trace)
    attempt = recorded(body, 2, watched)
    assert is_sure(attempt, substitute(exp=lambda x: real.exp(x)))
    assert not is_sure(attempt, substitute(exp=lambda x: real.exp(x) + 1))


@pytest.mark.parametrize(
    "write",
    [
        lambda y: torch.nn.functional.relu(y, True),
        lambda y: torch.nn.ReLU(inplace=True)(y),
        lambda y: torch.nn.ReLU(True)(y),
        lambda y: torch.nn.Sequential(torch.nn.ReLU(inplace=True))(y),
        lambda y: torch.relu_(y),
    ],
    ids=["by position", "of a module", "of a module by position", "of a container", "by name"],
)
def test_pruned__write_in_any_spelling__stays_with_the_value_that_it_writes_to(write):
    def body():
        y = torch.exp(random_tensor(ndim=1, dim0=4, requires_grad=False)) - 1
        write(y)
        return y * 2

    live = live_of(record(body))
    assert len(pruned(live).program.body) == len(live.program.body)


def row_written():
    x = random_tensor(ndim=2, dim0=2, dim1=3) * 1
    return torch.exp_(x[0]), x


def row_written_after_use():
    x = random_tensor(ndim=2, dim0=2, dim1=3) * 1
    row = x[0]
    used = row * 2
    row.exp_()
    return used, x


def transposed_written():
    x = random_tensor(ndim=2, dim0=2, dim1=3) * 1
    other = x.t()
    other.sin_()
    return x * other.t()


VIEWS = [
    (row_written, "exp", lambda x: real.exp(x), "aligned"),
    (row_written_after_use, "exp", lambda x: real.exp(x), "aligned"),
    (transposed_written, "sin", lambda x: real.sin(x), "aligned"),
    (row_written, "exp", lambda x: real.exp(x).detach(), "misaligned"),
    (row_written_after_use, "exp", with_backward(real.exp, lambda x, g: 1.01 * g * x.exp()), "misaligned"),
    (transposed_written, "sin", with_backward(real.sin, lambda x, g: -g * x.cos()), "misaligned"),
]


@pytest.mark.parametrize(("body", "operator", "function", "expected"), VIEWS)
def test_run_test__replacement_written_to_a_view_that_requires_grad(body, operator, function, expected):
    """By the values and leaves alone: torch takes the gradient of what is written to a view past the view."""
    assert {item.outcome for item in run_test(body, substitute(**{operator: function}))} - {"aligned"} == (
        {expected} - {"aligned"}
    )

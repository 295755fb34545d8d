"""What `known` accepts is set aside, and whatever else differs in the same case is found.

Each row has kernels that differ as accepted and are right otherwise, and kernels of which one is wrong besides.
"""

from __future__ import annotations

from datetime import date

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import Contender, differentiate, try_case
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.config import Known
from ci_autotest.config.known_differences import accepted_by
from tests.engine import RULES, record, substitute


def verdict_of(body, kernels, *rows):
    """Return the verdict on a case of a body, with the differences beside it, as (operator, kind)."""
    attempt, reference = record(body), TorchBackend()
    differentiate(attempt, reference)
    known = [Known(operator=f"torch.{operator}", kind=kind, reason="by design") for operator, kind in rows]
    accepts = accepted_by(known, "candidate", date(2026, 1, 1))
    verdict = try_case(attempt, Contender(substitute(**kernels), RULES, accepts=accepts), reference).verdict
    found = [] if verdict.is_accepted or verdict.kind is None else [(verdict.operator, verdict.kind)]
    accepted = [item for item in (verdict, *verdict.accepted) if item.is_accepted]
    return found, [(item.operator, item.kind) for item in accepted]


def narrow(x, dim=-1, descending=False):
    return real.argsort(x, dim, descending).int()


def doubled(x, other):
    return 2 * real.mul(x, other)


def sorted_body():
    x = random_tensor(2, 3, 5)
    return x.gather(1, torch.argsort(x, 1)) * 3


def logits_body():
    x = random_tensor(2, 3, 4)
    y = x * 2
    return torch.tanh(y).sum(), y


class Overwriting(real.autograd.Function):
    """The hyperbolic tangent, which leaves a factor of its gradient in its input."""

    @staticmethod
    def forward(ctx, x, factor):
        value = real.tanh(x)
        ctx.save_for_backward(value)
        ctx.factor = factor
        x.data.copy_(1 - value * value)
        return value

    @staticmethod
    def backward(ctx, gradient):
        (value,) = ctx.saved_tensors
        return gradient * (1 - value * value) * ctx.factor, None


def without_graph(function):
    return lambda *args: function(*(value.detach() if isinstance(value, real.Tensor) else value for value in args))


def chain_body():
    x = random_tensor(2, 3, 4)
    return torch.tanh(torch.exp(x)) * 2


def two_branches_body():
    x = random_tensor(2, 3, 4)
    return torch.exp(x), torch.tanh(x)


class Halved(real.autograd.Function):
    """The exponential, with half of its gradient."""

    @staticmethod
    def forward(ctx, x):
        value = real.exp(x)
        ctx.save_for_backward(value)
        return value

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0] / 2


def raising(x):
    message = "not today"
    raise RuntimeError(message)


#: The body, the accepted differences, kernels that differ in nothing else, one that is wrong besides, and as what.
ROWS = {
    "dtype-values": (
        sorted_body, [("argsort", "dtype")], {"argsort": narrow},
        {"argsort": lambda x, dim: narrow(x, dim, descending=True)}, ("torch.argsort", "value"),
    ),
    "dtype-later-step": (
        sorted_body, [("argsort", "dtype")], {"argsort": narrow},
        {"argsort": narrow, "mul": doubled}, ("torch.mul", "value"),
    ),
    "mutation-gradient": (
        logits_body, [("tanh", "mutation")], {"tanh": lambda x: Overwriting.apply(x, 1.0)},
        {"tanh": lambda x: Overwriting.apply(x, 2.0)}, ("torch.tanh", "gradient"),
    ),
    "mutation-value": (
        logits_body, [("tanh", "mutation")], {"tanh": lambda x: Overwriting.apply(x, 1.0)},
        {"tanh": lambda x: Overwriting.apply(x, 1.0) + 0.1}, ("torch.tanh", "value"),
    ),
    "metadata-missing-gradient": (
        chain_body, [("tanh", "metadata"), ("tanh", "gradient")], {"tanh": without_graph(real.tanh)},
        {"tanh": without_graph(real.tanh), "exp": Halved.apply}, ("torch.exp", "gradient"),
    ),
    "metadata-alone": (
        chain_body, [("tanh", "metadata"), ("tanh", "gradient")], {"tanh": without_graph(real.tanh)},
        {"tanh": without_graph(lambda x: real.tanh(x) + 0.1)}, ("torch.tanh", "value"),
    ),
    "value-later-step": (
        chain_body, [("exp", "value")], {"exp": lambda x: real.exp(x) + 0.1},
        {"exp": lambda x: real.exp(x) + 0.1, "mul": doubled}, ("torch.mul", "value"),
    ),
    "gradient-value": (
        chain_body, [("exp", "gradient")], {"exp": Halved.apply},
        {"exp": lambda x: Halved.apply(x) + 0.1}, ("torch.exp", "value"),
    ),
    "shape-other-branch": (
        two_branches_body, [("exp", "shape")], {"exp": lambda x: real.exp(x)[None]},
        {"exp": lambda x: real.exp(x)[None], "tanh": lambda x: real.tanh(x) + 0.1}, ("torch.tanh", "value"),
    ),
    "shape-values": (
        lambda: torch.amax(random_tensor(2, 3, 4), 1) * 2, [("amax", "shape")], {"amax": lambda x, dim: real.amax(x, dim, keepdim=True)},
        {"amax": lambda x, dim: real.amax(x, dim, keepdim=True) - 1}, ("torch.amax", "value"),
    ),
    "shape-later-step": (
        lambda: torch.amax(random_tensor(2, 3, 4), 1) * random_tensor(1, 3), [("amax", "shape")],
        {"amax": lambda x, dim: real.amax(x, dim, keepdim=True)},
        {"amax": lambda x, dim: real.amax(x, dim, keepdim=True), "mul": doubled}, ("torch.mul", "value"),
    ),
    "error-before": (
        lambda: torch.tanh(torch.exp(random_tensor(2, 3, 4))), [("tanh", "error")], {"tanh": raising},
        {"tanh": raising, "exp": lambda x: real.exp(x) + 0.1}, ("torch.exp", "value"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_known_difference__nothing_else__is_all_that_is_reported(name):
    body, rows, kernels, _, _ = ROWS[name]
    found, accepted = verdict_of(body, kernels, *rows)
    assert found == []
    assert {*accepted} == {(f"torch.{operator}", kind) for operator, kind in rows}


@pytest.mark.parametrize("name", ROWS)
def test_known_difference__another_fault_in_the_case__is_found(name):
    body, rows, _, kernels, expected = ROWS[name]
    found, accepted = verdict_of(body, kernels, *rows)
    assert found == [expected]
    assert {*accepted} <= {(f"torch.{operator}", kind) for operator, kind in rows}


def test_known_difference__of_another_kind__accepts_nothing():
    found, accepted = verdict_of(sorted_body, {"argsort": lambda x, dim: narrow(x, dim)}, ("argsort", "value"))
    assert (found, accepted) == ([("torch.argsort", "dtype")], [])

"""``check_graph``: the body is compiled as one graph too, and held against its own eager result."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from tests.engine import Rules, substitute, tried


def body():
    return torch.exp(random_tensor(ndim=2))


def by_mode(x):
    """Give something else where a compiler looks: what a graph check is for."""
    return real.Tensor.exp(x) + (1.0 if real.compiler.is_compiling() else 0.0)


@pytest.mark.heavy
def test_check_graph__kernel_that_differs_in_a_graph__is_of_kind_graph():
    verdict = tried(body, substitute(exp=by_mode), Rules(check_graph=True))
    assert (verdict.outcome, verdict.kind, verdict.operator, verdict.blame) == (
        "misaligned", "graph", "torch.exp", "candidate",
    )  # fmt: skip
    assert verdict.misalignment is not None
    assert verdict.misalignment.what == "value of exp, as a graph"


def test_check_graph__not_asked_for__is_not_done():
    assert tried(body, substitute(exp=by_mode)).outcome == "aligned"


def method():
    return random_tensor(ndim=2).exp()


def test_check_graph__operator_spelled_as_a_method__is_answered_by_the_kernel_too():
    assert tried(method, substitute(exp=by_mode), Rules(check_graph=True)).kind == "graph"


def test_check_graph__same_in_both_modes__is_aligned():
    assert tried(body, substitute(exp=lambda x: real.Tensor.exp(x)), Rules(check_graph=True)).outcome == "aligned"


def not_one_graph(x):
    real._dynamo.graph_break()
    return real.Tensor.exp(x)


def test_check_graph__body_that_is_not_one_graph__says_so():
    verdict = tried(body, substitute(exp=not_one_graph), Rules(check_graph=True))
    assert (verdict.outcome, verdict.kind) == ("misaligned", "graph")
    assert verdict.misalignment is not None
    assert "graph_break" in verdict.misalignment.detail

"""Gradients by the engine's own entry are those of the public function."""

from __future__ import annotations

import pytest
import torch

from ci_autotest.backends import autograd_engine
from ci_autotest.backends.autograd_engine import gradient_edge, gradients


def graph():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.tensor([3.0, 4.0], requires_grad=True)
    hidden = x.exp()
    return x, y, hidden, hidden * y


@pytest.mark.parametrize("is_private", [True, False], ids=["engine", "public"])
def test_gradients__of_leaves_and_intermediates__are_right(is_private, monkeypatch):
    if not is_private:
        monkeypatch.setattr(autograd_engine, "_run_backward", None)
    x, y, hidden, out = graph()
    unused = torch.ones(2, requires_grad=True)
    weight = torch.tensor([0.5, -2.0])
    found = gradients([out], [weight], [x, y, hidden, unused])
    assert torch.allclose(found[0], weight * y.detach() * x.detach().exp())
    assert torch.allclose(found[1], weight * hidden.detach())
    assert torch.allclose(found[2], weight * y.detach())
    assert found[3] is None
    assert x.grad is None


@pytest.mark.parametrize("is_private", [True, False], ids=["engine", "public"])
def test_gradient_edge__of_an_overwritten_value__is_of_the_old_version(is_private, monkeypatch):
    if not is_private:
        monkeypatch.setattr(autograd_engine, "_run_backward", None)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    value = x * 1
    edge = gradient_edge(value)
    value.mul_(3)
    assert gradients([value], [torch.ones(2)], [edge])[0].tolist() == [3, 3]

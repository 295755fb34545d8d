"""What rounding at random moves: what a narrower significand does not hold, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ci_autotest.alignment.blame.random_rounding import RandomRounding

EXACT = torch.tensor([1.5, -0.25, 3.0, 1024.0], dtype=torch.float64, requires_grad=True)
UNIT = 2.0**-23


def rounded(function, *inputs, seed=0, bits=24):
    with RandomRounding(bits, seed):
        return function(*inputs)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x * 2, id="a product that fits"),
        pytest.param(lambda x: x.sum(), id="a sum that fits"),
        pytest.param(lambda x: torch.cat([x, -x]).sort().values, id="moved about"),
        pytest.param(lambda x: x - x.clone(), id="a copy is the same"),
        pytest.param(lambda x: x.softmax(0).isnan(), id="no floating point"),
        pytest.param(lambda x: (x / 0.0).abs(), id="infinite"),
        pytest.param(lambda x: x.unfold(0, 2, 1).t(), id="a view"),
    ],
)
def test_rounded__what_is_exact__is_left_alone(function):
    assert torch.equal(rounded(function, EXACT), function(EXACT))


@pytest.mark.parametrize(
    "function", [torch.exp2, torch.reciprocal, lambda x: x.abs().sqrt()], ids=["2^x", "1/x", "root"]
)
def test_rounded__what_is_not__is_one_of_its_neighbours(function):
    x = torch.linspace(0.3, 2, 64).double()
    found = rounded(function, x)
    assert torch.equal(found, found.float().double())
    apart = (found / function(x) - 1) / UNIT
    assert 0.5 < apart.max() < 1
    assert -1 < apart.min() < -0.4


def test_rounded__another_seed__is_rounded_otherwise():
    found = [rounded(torch.exp, EXACT, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_rounded__what_is_between_the_parts_of_a_layer__is_seen_in_its_gradient():
    """What is left of the gradient is 4e-9 of its parts."""
    x = torch.tensor([[1.0, 300.0]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([1000.0, -3000.0], dtype=torch.float64)

    def gradient():
        value = torch.nn.functional.layer_norm(x, (2,), weight)
        return torch.autograd.grad(value.sum(), x)[0]

    exact = gradient().abs().max()
    moved = max(float(rounded(gradient, seed=seed).abs().max()) for seed in range(4))
    assert exact < 1e-7
    assert 1e-6 < moved < 1e-3


def test_rounded__gate_that_is_nearly_one__has_a_gradient_of_its_last_place():
    x = torch.tensor([20.0], dtype=torch.float64, requires_grad=True)

    def gradient():
        return torch.autograd.grad(torch.sigmoid(x), x)[0].item()

    found = {rounded(gradient, seed=seed) for seed in range(8)}
    assert gradient() < 3e-9
    assert sorted(found) == pytest.approx([0.0, 2.0**-24])


def test_rounded__written_in_place__is_rounded_there():
    x = torch.full((8,), 3.0, dtype=torch.float64)
    found = rounded(lambda: x.div_(7))
    assert found is x
    assert torch.equal(x, x.float().double())


def test_rounded__complex_numbers__by_their_parts():
    x = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128)
    found = rounded(lambda: x / 7)
    assert torch.equal(found, found.to(torch.complex64).to(torch.complex128))
    assert torch.allclose(found, x / 7, rtol=2 * UNIT)


def test_rounded__drawn_at_random__is_drawn_once():
    torch.manual_seed(3)
    alone = torch.dropout(EXACT, 0.5, train=True)
    torch.manual_seed(3)
    assert torch.equal(rounded(lambda: torch.dropout(EXACT, 0.5, train=True)), alone)


class Largest(TorchDispatchMode):
    """Keeps the most elements that an operator takes or gives."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **kwargs or {})
        sizes = [leaf.numel() for leaf in tree_leaves((args, found)) if isinstance(leaf, torch.Tensor)]
        self.elements = max(self.elements, *sizes, 0)
        return found


@pytest.mark.parametrize("function", [torch.cumsum, torch.cumprod], ids=["sum", "product"])
def test_rounded__cumulative__takes_memory_for_its_elements_and_each_is_off(function):
    x = torch.linspace(0.9, 1.1, 301).double()
    with Largest() as seen:
        found = rounded(function, x, 0)
    apart = (found / function(x, 0) - 1) / UNIT
    assert seen.elements == 301
    assert apart[100:].abs().max() > 0.2
    assert apart.abs().max() < 20

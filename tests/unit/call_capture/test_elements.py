from __future__ import annotations

import pytest
import torch

from ci_autotest.call_capture.arguments import elements_of, seen_again
from ci_autotest.call_capture.observation import Elements

INFINITY = float("inf")
SEEN = {
    "range": (torch.tensor([[0.5, 2.0], [-3.0, 1.0]]), Elements(-3.0, 2.0)),
    "positive": (torch.tensor([[0.25, 2.0], [3.0, 1.0]]), Elements(0.25, 3.0)),
    "not finite": (torch.tensor([1.0, INFINITY, float("nan"), -2.0]), Elements(-2.0, 1.0, is_finite=False)),
    "nothing finite": (torch.tensor([INFINITY, float("nan")]), Elements(is_finite=False)),
    "empty": (torch.zeros(0, 3), Elements()),
    "constant": (torch.ones(9), Elements(1.0, 1.0)),
    "additive mask": (
        torch.tensor([0.0, 0.0, 0.0, -INFINITY]).repeat(4, 1),
        Elements(0.0, 0.0, ("-inf", "0.0"), (0.25, 0.75), is_finite=False),
    ),
    "mask": (torch.tensor([True, False, False, False]), Elements(0.0, 1.0, ("False", "True"), (0.75, 0.25))),
    "whole mask": (torch.ones(3, dtype=torch.bool), Elements(1.0, 1.0, ("True",), (1.0,))),
    "indices": (torch.tensor([[3, 1], [0, 3]]), Elements(0, 3)),
    "positions": (torch.arange(4), Elements(0, 3, property="arange")),
    "permutation": (torch.tensor([2, 0, 1]), Elements(0, 2, property="permutation")),
    "distinct": (torch.tensor([7, 0, 1]), Elements(0, 7, property="distinct")),
    "boundaries": (torch.linspace(0, 1, 6), Elements(0.0, 1.0, property="sorted")),
    "complex": (torch.tensor([1 + 2j, -3 + 0j]), Elements(-3.0, 2.0)),
    "positive definite": (
        torch.tensor([[2.0, 1.0], [1.0, 2.0]]),
        Elements(1.0, 2.0, property="positive_definite"),
    ),
    "symmetric": (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), Elements(1.0, 2.0, property="symmetric")),
    "half": (torch.tensor([0.5, -1.5], dtype=torch.bfloat16), Elements(-1.5, 0.5)),
}


@pytest.mark.parametrize("name", SEEN)
def test_elements_of__tensor__range_and_what_a_draw_keeps(name):
    tensor, wanted = SEEN[name]
    assert elements_of(tensor) == wanted


def test_elements_of__leaf__changes_neither_graph_nor_generator():
    leaf = torch.ones(3, requires_grad=True)
    before = torch.get_rng_state()
    elements_of(leaf)
    assert (leaf.grad, leaf._version, torch.equal(torch.get_rng_state(), before)) == (None, 0, True)


def test_seen_again__wider_range_and_lost_property__is_merged():
    first = elements_of(torch.arange(4))
    assert seen_again(first, torch.tensor([5, 0, 0])) == Elements(0, 5)

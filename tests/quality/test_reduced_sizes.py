"""How many elements an operator sums, and rows of tolerances that grow with it."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.tolerance_rules import Called, Rules, ToleranceRow, reduced_size
from tests.engine import is_sure, record, substitute, tried

F = torch.nn.functional


def x(*sizes):
    return random_tensor(len(sizes), *sizes)


BODIES = {
    "matmul": (lambda: torch.matmul(x(2, 7), x(7, 3)), 7),
    "matmul sign": (lambda: x(2, 7) @ x(7, 3), 7),
    "bmm": (lambda: torch.bmm(x(4, 2, 5), x(4, 5, 3)), 5),
    "addmm": (lambda: torch.addmm(x(2, 3), x(2, 7), x(7, 3)), 7),
    "linear": (lambda: F.linear(x(2, 6), x(3, 6)), 6),
    "linear module": (lambda: torch.nn.Linear(6, 3)(x(2, 6)), 6),
    "conv2d": (lambda: F.conv2d(x(1, 4, 8, 8), x(6, 4, 3, 3)), 36),
    "conv2d module": (lambda: torch.nn.Conv2d(4, 6, 3)(x(1, 4, 8, 8)), 36),
    "grouped": (lambda: F.conv2d(x(1, 4, 8, 8), x(6, 2, 3, 3), groups=2), 18),
    "transposed": (lambda: F.conv_transpose2d(x(1, 4, 5, 5), x(4, 6, 3, 3)), 36),
    "attention": (lambda: F.scaled_dot_product_attention(x(1, 1, 3, 8), x(1, 1, 20, 8), x(1, 1, 20, 8)), 20),
    "softmax": (lambda: torch.softmax(x(5, 9), dim=0), 5),
    "softmax method": (lambda: x(5, 9).softmax(-1), 9),
    "layer norm": (lambda: F.layer_norm(x(2, 3, 4), (3, 4)), 12),
    "layer norm module": (lambda: torch.nn.LayerNorm([3, 4])(x(2, 3, 4)), 12),
    "sum of all": (lambda: x(4, 5).sum(), 20),
    "mean of rows": (lambda: x(4, 5).mean(1), 5),
    "loss": (lambda: F.mse_loss(x(4, 5), x(4, 5)), 20),
    "pointwise": (lambda: torch.exp(x(4, 5)), 1),
    "0-dim": (lambda: torch.softmax(x(), dim=0), 1),
}  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), BODIES.values(), ids=BODIES)
def test_reduced_size__operator__counts_what_it_sums(body, expected):
    attempt = record(body)
    steps, values = attempt.program.steps, attempt.trace.values
    sizes = [reduced_size(step, steps, values, i) for i, step in enumerate(steps) if step.op.startswith("call")]
    assert max(sizes) == expected


ROW = ToleranceRow("torch.matmul", 1e-6, 1e-4, scale="sqrt(K)")
RULES = Rules(rows=(ROW,))


@pytest.mark.parametrize(("scale", "times"), [("sqrt(K)", 4.0), ("K", 16.0), ("log2(K)", 4.0), (None, 1.0)])
def test_tolerance__scaled_row__grows_with_what_is_summed(scale, times):
    rules = Rules(rows=(ToleranceRow("torch.matmul", 1e-6, 1e-4, scale=scale),))
    found = rules.tolerance((Called("torch.matmul", 16),), "float32")
    assert (found.rtol, found.atol) == (1e-6 * times, 1e-4 * times)


def product(inner):
    return lambda: torch.matmul(x(2, inner), x(inner, 3))


def off_by(amount):
    return substitute(matmul=lambda left, right: real.matmul(left, right) + amount)


def test_tried__kernel_within_the_scaled_bound__is_aligned_and_beyond_it_misaligned():
    bound = 1e-4 * 8  # sqrt(64)
    assert tried(product(64), off_by(bound * 0.9), RULES).outcome == "aligned"
    assert tried(product(64), off_by(bound * 1.5), RULES).outcome == "misaligned"
    assert tried(product(1), off_by(bound * 0.9), RULES).outcome == "misaligned"


def test_is_sure__row_with_a_scale__is_no_looser_than_for_one_element():
    assert is_sure(record(product(64)), off_by(1e-5), RULES)
    assert not is_sure(record(product(64)), off_by(7e-4), RULES)

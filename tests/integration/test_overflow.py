"""Overflow: NaN or an infinity is excused where another order or formula may give it, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.blame.overflow import Formulas, worst_results
from ci_autotest.values.finding import TOLERATED_BLAMES
from tests.engine import substitute, tried
from tests.quality import right_kernels as right

if TYPE_CHECKING:
    from collections.abc import Callable

F_ = torch.nn.functional
Tensor = real.Tensor


def nan_where_it_overflows(x):
    found = Tensor.exp(x)
    return real.where(real.isinf(found) & real.isfinite(x), real.nan, found)


def large():
    return random_tensor(2, dim0=4, dim1=8, low=60, high=200, requires_grad=False)


@pytest.mark.parametrize(
    "body",
    [lambda: torch.exp(large()), lambda: torch.clamp(torch.exp(large()), max=10.0)],
    ids=["alone", "then bounded"],
)
def test_excused__operator_takes_elements_one_by_one__its_nan_is_misaligned(body):
    verdict = tried(body, substitute(exp=nan_where_it_overflows), profile="ordinary")
    assert (verdict.outcome, verdict.operator, verdict.blame) == ("misaligned", "torch.exp", "candidate")


class Row(NamedTuple):
    """A kernel at inputs that overflow: the operator that it answers, and the body."""

    name: str
    operator: str
    kernel: Callable[..., Any]
    body: Callable[[], object]


def same_sign(*dims, low=1e38, high=3e38, **how):
    return random_tensor(dims=dims, low=low, high=high, requires_grad=False, **how)


def factors(*dims):
    return same_sign(*dims, low=1e19, high=9e19)


def both_signs(*dims, top=3e38, **how):
    return random_tensor(dims=dims, low=-top, high=top, **how)


def centred():
    half = same_sign(4, 4, low=1e19, high=9e19)
    return torch.cat([half, -half], dim=1)


def nan_for_infinity(operator):
    def kernel(*args, **how):
        found = operator(*args, **how)
        return real.where(real.isfinite(found), found, real.nan)

    return kernel


def wrong(name, operator, function, body):
    return Row(name, operator, nan_for_infinity(function), body)


SUM, NORM, LINEAR = Tensor.sum, real.linalg.vector_norm, real.nn.functional.linear
#: All terms have one sign, so that no order of summation has two infinities to subtract.
WRONG = [
    wrong("sum", "sum", SUM, lambda: torch.sum(same_sign(4, 8), dim=1)),
    wrong("sum, clamp", "sum", SUM, lambda: torch.clamp(torch.sum(same_sign(4, 8), dim=1), max=10.0)),
    wrong("sum, tanh", "sum", SUM, lambda: torch.tanh(torch.sum(same_sign(4, 8), dim=1))),
    wrong("sum, softmax", "sum", SUM, lambda: torch.softmax(-torch.sum(same_sign(4, 8), dim=1), 0)),
    wrong("sum of halves", "sum", SUM, lambda: torch.tanh(
        torch.sum(same_sign(4, 8, low=3e4, high=6e4, dtype=torch.float16), dim=1))),
    wrong("sum with a small term of the other sign", "sum", SUM, lambda: torch.sigmoid(
        torch.sum(torch.cat([same_sign(4, 8), same_sign(4, 1, low=-1.0, high=0.0)], 1), dim=1))),
    wrong("mean, sigmoid", "mean", Tensor.mean, lambda: torch.sigmoid(torch.mean(same_sign(4, 8), dim=1))),
    wrong("cumsum, sigmoid", "cumsum", Tensor.cumsum, lambda: torch.sigmoid(torch.cumsum(same_sign(4, 8), dim=1))),
    wrong("matmul, sigmoid", "matmul", Tensor.matmul, lambda: torch.sigmoid(
        torch.matmul(factors(4, 8), factors(8, 3)))),
    wrong("linear, relu6", "nn.functional.linear", LINEAR, lambda: F_.relu6(F_.linear(factors(4, 8), factors(3, 8)))),
    wrong("conv1d, sigmoid", "nn.functional.conv1d", real.nn.functional.conv1d, lambda: torch.sigmoid(
        F_.conv1d(factors(2, 2, 8), factors(3, 2, 3)))),
    wrong("vector_norm", "linalg.vector_norm", NORM, lambda: torch.linalg.vector_norm(same_sign(4, 8), dim=1)),
    wrong("prod, sigmoid", "prod", Tensor.prod, lambda: torch.sigmoid(
        torch.prod(same_sign(4, 8, low=1e9, high=1e10), dim=1))),
    wrong("var of a mean of 0", "var", Tensor.var, lambda: torch.sigmoid(torch.var(centred(), dim=1))),
    Row("naive softmax", "nn.functional.softmax", lambda x, dim: x.exp() / x.exp().sum(dim, keepdim=True),
        lambda: torch.softmax(large(), dim=1)),
]  # fmt: skip


def by_sign(x, dim):
    return x.clamp(min=0).sum(dim) + x.clamp(max=0).sum(dim)


def from_behind(x, dim):
    found = 0
    for i in reversed(range(x.shape[dim])):
        found = found + x.select(dim, i)
    return found


def matmul_by_sign(a, b):
    above, below = (a.clamp(min=0), b.clamp(min=0)), (a.clamp(max=0), b.clamp(max=0))
    return above[0] @ above[1] + below[0] @ below[1] + (above[0] @ below[1] + below[0] @ above[1])


def naive_var(x, dim):
    count = x.shape[dim]
    return (x.square().sum(dim) - x.sum(dim).square() / count) / (count - 1)


RIGHT = [
    Row("sum by sign", "sum", by_sign, lambda: torch.sum(both_signs(6, 16), dim=1)),
    Row("sum by sign, sigmoid", "sum", by_sign, lambda: torch.sigmoid(torch.sum(both_signs(6, 16), dim=1))),
    Row("sum from behind", "sum", from_behind, lambda: torch.sum(both_signs(6, 16), dim=1)),
    Row("sum from behind, sigmoid", "sum", from_behind, lambda: torch.sigmoid(torch.sum(both_signs(6, 16), dim=1))),
    Row("mean by sign", "mean", lambda x, dim: by_sign(x, dim) / x.shape[dim],
        lambda: torch.tanh(torch.mean(both_signs(6, 16), dim=1))),
    Row("matmul by sign", "matmul", matmul_by_sign, lambda: torch.sigmoid(
        torch.matmul(both_signs(4, 8, top=1e20), both_signs(8, 3, top=1e20)))),
    Row("cumsum by sign", "cumsum", lambda x, dim: x.clamp(min=0).cumsum(dim) + x.clamp(max=0).cumsum(dim),
        lambda: torch.cumsum(both_signs(4, 8), dim=1)),
    Row("naive variance", "var", naive_var, lambda: torch.var(both_signs(4, 8, top=1e20), dim=1)),
    Row("naive variance, sigmoid", "var", naive_var,
        lambda: torch.sigmoid(torch.var(random_tensor(dims=(4, 8), low=1e20, high=9e20), dim=1))),
    Row("online softmax", "nn.functional.softmax", right.softmax, lambda: torch.softmax(both_signs(4, 8), dim=1)),
    Row("online logsumexp", "logsumexp", right.logsumexp, lambda: torch.logsumexp(both_signs(4, 8), dim=1)),
    Row("shifted conv1d", "nn.functional.conv1d", right.conv1d_shifted, lambda: F_.conv1d(
        both_signs(2, 2, 8, top=1e20), both_signs(3, 2, 3, top=1e20), random_tensor(dims=(3,)))),
    Row("attention key by key", "nn.functional.scaled_dot_product_attention", right.attention,
        lambda: F_.scaled_dot_product_attention(*(both_signs(2, size, 4, top=1e20) for size in (3, 5, 5)))),
]  # fmt: skip


def complex_ones(*dims, **how):
    return same_sign(*dims, dtype=real.complex64, **how)


def centred_complex(**how):
    return both_signs(6, 16, top=2e38, dtype=real.complex64, **how)


WRONG += [
    wrong("complex add", "add", Tensor.add, lambda: torch.add(complex_ones(4, 8), complex_ones(4, 8))),
    wrong("complex sub", "sub", Tensor.sub, lambda: torch.sub(complex_ones(4, 8), -complex_ones(4, 8))),
    wrong("complex mul by a real", "mul", Tensor.mul, lambda: torch.mul(complex_ones(4, 8), same_sign(4, 8))),
    wrong("complex mul by a number", "mul", Tensor.mul, lambda: torch.mul(complex_ones(4, 8), 5.0)),
    wrong("complex abs", "abs", Tensor.abs, lambda: torch.abs(complex_ones(4, 8, low=3e38, high=3.3e38))),
    wrong("complex sum", "sum", SUM, lambda: torch.sum(complex_ones(4, 8), dim=1)),
    wrong("trace", "trace", Tensor.trace, lambda: torch.trace(same_sign(8, 8))),
    wrong("scatter_reduce", "scatter_reduce", Tensor.scatter_reduce, lambda: torch.scatter_reduce(
        same_sign(4), 0, torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]), same_sign(8), "sum")),
    wrong("bilinear", "nn.functional.bilinear", real.nn.functional.bilinear, lambda: F_.bilinear(
        same_sign(4, 3, low=1e13, high=3e13), same_sign(4, 3, low=1e13, high=3e13),
        same_sign(2, 3, 3, low=1e13, high=3e13))),
]  # fmt: skip
RIGHT += [
    Row("complex sum by parts", "sum", lambda x, dim: real.complex(by_sign(x.real, dim), by_sign(x.imag, dim)),
        lambda: torch.sum(centred_complex(), dim=1)),
    Row("complex sum from behind", "sum", from_behind, lambda: torch.sum(centred_complex(), dim=1)),
    Row("complex abs by parts", "abs", lambda x: (x.real.square() + x.imag.square()).sqrt(),
        lambda: torch.abs(complex_ones(4, 8, low=3e38, high=3.3e38))),
    Row("complex add by parts", "add", lambda x, y: real.complex(x.real + y.real, x.imag + y.imag),
        lambda: torch.add(centred_complex(), centred_complex())),
    Row("complex mul by a real, by parts", "mul", lambda x, y: real.complex(x.real * y, x.imag * y),
        lambda: torch.mul(centred_complex(), both_signs(6, 16))),
    Row("complex mul of three products", "mul", lambda x, y: real.complex(
            y.real * (x.real + x.imag) - x.imag * (y.real + y.imag),
            y.real * (x.real + x.imag) + x.real * (y.imag - y.real)),
        lambda: torch.mul(
            centred_complex(requires_grad=False), centred_complex(requires_grad=False))),
]  # fmt: skip
CASES = 3


def accusations(row):
    verdicts = [
        tried(row.body, substitute(**{row.operator: row.kernel}), case=i, profile="ordinary") for i in range(CASES)
    ]
    return [item for item in verdicts if item.outcome != "aligned" and item.blame not in TOLERATED_BLAMES]


@pytest.mark.parametrize("row", WRONG, ids=[row.name for row in WRONG])
def test_excused__no_order_or_formula_gives_nan__is_misaligned(row):
    found = accusations(row)
    assert len(found) == CASES
    assert {item.operator for item in found} == {f"torch.{row.operator}"}


@pytest.mark.parametrize("row", RIGHT, ids=[row.name for row in RIGHT])
def test_excused__another_order_or_formula_overflows__is_accused_of_nothing(row):
    assert accusations(row) == []


class Asked:
    """A question about one operator: what `worst_results` needs of it."""

    def __init__(self, function, *data):
        self.wider = self
        self.sources, self.cotangents = data, {}
        self.answer = lambda sources, _: function(*sources)


END = real.finfo(real.float32).max


@pytest.mark.parametrize(
    ("function", "data", "expected"),
    [
        (real.sum, [END, END, -1.0], "inf"),
        (real.sum, [END, END, -END], "inf"),
        (real.sum, [END, END, -END, -END], "nan"),
        (real.sum, [END, 0.5 * END, -END, -0.5 * END], "nan"),
        (real.sum, [END, -END, 0.0], "0.0"),
        (real.mean, [END, END, -END, -END], "nan"),
        (real.prod, [1e30, 1e30, 1e-30, 1e-30], "nan"),
        (real.prod, [1e30, 1e30, 1.0, 1.0], "inf"),
        (lambda x: real.softmax(x, 0)[0], [END, END, -END, -END], "0.5"),
    ],
)
def test_worst_results__terms_at_the_end_of_the_range(function, data, expected):
    asked = Asked(function, real.tensor(data, dtype=real.float64))
    assert str(worst_results(asked, real.float32, Formulas.ANY).item()) == expected


def test_worst_results__operator_that_torch_cannot_take_apart__are_not_known():
    asked = Asked(real.linalg.inv, real.eye(2, dtype=real.float64))
    assert worst_results(asked, real.float32, Formulas.ANY) is None

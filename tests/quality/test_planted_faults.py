"""Each planted fault is found in twenty cases, with the right operator, kind and blame; no innocent is called misaligned.

Faults are those that kernels have: a term left out, an argument ignored, an edge of the input range, a layout, a size.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch as real
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from ci_autotest import constant, nothing, oneof, random, random_bool, random_tensor, torch
from ci_autotest.result import TOLERATED_BLAMES
from tests.engine import RULES, Rules, run_test, substitute
from tests.faults import mutating, right_exp_that_writes_its_cotangent, with_backward

CASES = 20
EXACT = Rules(strictness="bitwise")


def softmax():
    ndim = random(1, 5).to(int)
    return torch.softmax(random_tensor(ndim=ndim), dim=random(-ndim, ndim).to(int))


def layer_norm():
    width = random(2, 17).to(int)
    x = random_tensor(ndim=2, dim1=width)
    weight, bias = random_tensor(ndim=1, dim0=width), random_tensor(ndim=1, dim0=width)
    eps = random(1e-3, 1e-1).to(float) | nothing()
    return F_.layer_norm(x, (width,), weight, bias, eps=eps)


F_ = torch.nn.functional


def linear():
    return torch.nn.Linear(4, 3)(random_tensor(ndim=2, dim1=4))


def gelu():
    return F_.gelu(random_tensor(), approximate=oneof("none", "tanh") | nothing())


def gelu_of_finite():
    # At infinities torch itself is off: gelu's tanh approximation gives NaN there, and the reference is blamed.
    return F_.gelu(random_tensor(low=-4, high=4), approximate=oneof("none", "tanh") | nothing())


def relu():
    return torch.relu(random_tensor())


def exp():
    return torch.exp(random_tensor())


def negated():
    return torch.neg(random_tensor())


def add():
    k = random(1, 8).to(int)
    return torch.add(random_tensor(ndim=2, dim1=k), random_tensor(ndim=1, dim0=k), alpha=oneof(1, random(2, 4).to(int)))


def matmul():
    k = random(1, 8).to(int)
    return torch.matmul(random_tensor(ndim=2, dim1=k), random_tensor(ndim=2, dim0=k))


def total():
    ndim = random(1, 5).to(int)
    return torch.sum(random_tensor(ndim=ndim), dim=random(-ndim, ndim).to(int), keepdim=random_bool())


def mean():
    return torch.mean(random_tensor(ndim=2), dim=oneof(0, 1, -1))


def argmax():
    return torch.argmax(random_tensor(ndim=2, requires_grad=False), dim=oneof(0, 1))


def maximum():
    return torch.maximum(random_tensor(ndim=2, dim0=3, dim1=4), random_tensor(ndim=2, dim0=3, dim1=4))


def cat():
    x = random_tensor(ndim=2, dim1=3)
    return torch.cat([x, random_tensor(ndim=2, dim1=3)], dim=constant(0))


def conv2d():
    x = random_tensor(ndim=4, dim0=1, dim1=2, dim2=random(3, 6).to(int), dim3=5)
    return F_.conv2d(x, random_tensor(ndim=4, dim0=3, dim1=2, dim2=2, dim3=2), padding=oneof(0, 1), stride=oneof(1, 2))


def batch_norm():
    return torch.nn.BatchNorm1d(3)(random_tensor(ndim=2, dim0=random(2, 6).to(int), dim1=3))


def clamp():
    return torch.clamp(random_tensor(), min=oneof(-0.5, nothing()), max=0.5)


def index_select():
    index = random_tensor(ndim=1, low=0, high=3, dtype=int)
    return torch.index_select(random_tensor(ndim=2, dim0=3), 0, index)


def dropout_free_chain():
    x = random_tensor(ndim=2, dim1=4)
    hidden = torch.tanh(torch.nn.Linear(4, 4)(x))
    return torch.softmax(hidden * 2, dim=-1).sum(dim=0)


def norm_of(x, shape, weight=None, bias=None, eps=1e-5, at=None):
    centred = x - x.mean(-1, keepdim=True)
    var = centred.square().mean(-1, keepdim=True)
    scale = var.sqrt() + eps if at == "outside" else (var + eps).sqrt()
    return centred / scale * weight + bias


def argmax_last(x, dim):
    flipped = x.flip(dim).argmax(dim)
    return x.shape[dim] - 1 - flipped


def only_for(shape_of, function, fault):
    """Return ``function``, and ``fault`` where ``shape_of`` says so."""
    return lambda x, *args, **kwargs: (fault if shape_of(x) else function)(x, *args, **kwargs)


def refuse(*_args, **_kwargs):
    message = "this shape has no kernel"
    raise RuntimeError(message)


def forgetting_batch_norm(x, mean, var, weight, bias, training, momentum, eps):
    return F.batch_norm(x, None, None, weight, bias, True, momentum, eps)


def biased_batch_norm(x, mean, var, weight, bias, training, momentum, eps):
    result = F.batch_norm(x, mean.clone(), var.clone(), weight, bias, training, momentum, eps)
    with real.no_grad():
        mean.lerp_(x.mean(0), momentum)
        var.lerp_(x.var(0, correction=0), momentum)
    return result


class Fault(NamedTuple):
    """A test, the operator answered wrongly, and what must be said of it."""

    name: str
    body: object
    operator: str
    function: object
    kinds: frozenset
    rules: Rules = RULES
    cases: int = CASES


def fault(name, body, operator, function, *kinds, rules=RULES, cases=CASES):
    return Fault(name, body, operator, function, frozenset(kinds), rules, cases)


FAULTS = [
    fault("eps outside the root", layer_norm, "nn.functional.layer_norm",
          lambda *a, **k: norm_of(*a, **k, at="outside"), "value"),
    fault("eps ignored", layer_norm, "nn.functional.layer_norm",
          lambda x, shape, weight, bias, eps=0: norm_of(x, shape, weight, bias), "value", "gradient"),
    fault("bias dropped", layer_norm, "nn.functional.layer_norm",
          lambda x, shape, weight, bias, eps=1e-5: F.layer_norm(x, shape, weight, None, eps), "metadata", "value", "gradient"),
    fault("bias of a module dropped", linear, "nn.functional.linear", lambda x, w, b: F.linear(x, w), "value", "gradient"),
    fault("dim ignored", softmax, "nn.functional.softmax", lambda x, dim: x.softmax(-1), "value"),
    fault("dim ignored, negative ones right", total, "sum",
          lambda x, dim, keepdim=False: x.sum(min(dim, x.dim() - 2) if dim > 0 else dim, keepdim), "shape", "value"),
    fault("keepdim ignored", total, "sum", lambda x, dim, keepdim=False: x.sum(dim), "shape"),
    fault("option ignored", gelu, "nn.functional.gelu", lambda x, approximate="none": F.gelu(x), "value"),
    fault("alpha ignored", add, "add", lambda a, b, alpha=1: a + b, "value"),
    fault("gradient term missing", softmax, "nn.functional.softmax",
          lambda x, dim: with_backward(lambda v: v.softmax(dim), lambda v, g: g * v.softmax(dim))(x), "gradient"),
    fault("gradient at zero", relu, "relu",
          with_backward(real.relu, lambda v, g: g * (v >= 0)), "gradient"),
    fault("gradient not reduced", add, "add",
          lambda a, b, alpha=1: a + alpha * (b.detach() + (b - b.detach()) * b.numel()), "gradient"),
    fault("gradient lost for one input", matmul, "matmul", lambda a, b: a @ b.detach(), "gradient"),
    fault("requires_grad lost", exp, "exp", lambda x: x.exp().detach(), "metadata"),
    fault("input mutated", softmax, "nn.functional.softmax", mutating(real.softmax), "mutation"),
    fault("cotangent written to", exp, "exp", right_exp_that_writes_its_cotangent, "mutation"),
    fault("dtype widened", mean, "mean", lambda x, dim: x.double().mean(dim), "dtype"),
    fault("indices in 32 bits", argmax, "argmax", lambda x, dim: x.argmax(dim).int(), "dtype"),
    fault("the last of ties", argmax, "argmax", argmax_last, "value"),
    fault("shape off by one", cat, "cat", lambda parts, dim=0: real.cat(parts, dim)[:-1], "shape"),
    fault("NaN swallowed", maximum, "maximum", lambda a, b: real.fmax(a, b), "value"),
    fault("NaN swallowed by a comparison", relu, "relu", lambda x: real.where(x > 0, x, 0.0), "value"),
    fault("infinity overflows", softmax, "nn.functional.softmax",
          lambda x, dim: x.exp() / x.exp().sum(dim, keepdim=True), "value"),
    fault("-0.0 lost", negated, "neg", lambda x: 0 - x, "value", rules=EXACT),
    fault("a denormal flushed", negated, "neg", lambda x: real.where(x.abs() < 1e-38, x * 0, -x), "value", rules=EXACT),
    fault("one ULP", exp, "exp", lambda x: real.nextafter(x.exp(), real.tensor(real.inf)), "value", rules=EXACT),
    fault("wrong above 32", exp, "exp", only_for(lambda x: max(x.shape, default=0) > 32, real.exp,
          lambda x: x.exp() + 1), "value"),
    fault("wrong above 128", exp, "exp", only_for(lambda x: max(x.shape, default=0) > 128, real.exp,
          lambda x: x.exp() + 1), "value", cases=3 * CASES),
    fault("raises for one shape", exp, "exp", only_for(lambda x: x.dim() == 0, real.exp, refuse), "error"),
    fault("raises for an empty tensor", exp, "exp", only_for(lambda x: x.numel() == 0, real.exp, refuse), "error"),
    fault("wrong where not contiguous", exp, "exp",
          only_for(lambda x: not x.is_contiguous(), real.exp, lambda x: x.exp().contiguous() * 1.01), "value"),
    fault("padding ignored", conv2d, "nn.functional.conv2d",
          lambda x, w, padding=0, stride=1: F.conv2d(x, w, stride=stride), "shape"),
    fault("kernel flipped", conv2d, "nn.functional.conv2d",
          lambda x, w, padding=0, stride=1: F.conv2d(x, w.flip(-1), padding=padding, stride=stride), "value"),
    fault("state not moved", batch_norm, "nn.functional.batch_norm",
          lambda x, mean, var, weight, bias, training, momentum, eps: F.batch_norm(
              x, mean.clone(), var.clone(), weight, bias, training, momentum, eps), "state"),
    fault("biased running variance", batch_norm, "nn.functional.batch_norm", biased_batch_norm, "state"),
    fault("low bound ignored", clamp, "clamp", lambda x, min=None, max=None: x.clamp(max=max), "value"),  # noqa: A006
    fault("index off by one", index_select, "index_select",
          lambda x, dim, index: x.index_select(dim, (index + 1) % x.shape[dim]), "value"),
    fault("in the middle of a chain", dropout_free_chain, "tanh", lambda x: x / (1 + x.abs()), "value"),
    fault("gradient in the middle of a chain", dropout_free_chain, "tanh",
          with_backward(real.tanh, lambda v, g: g * (1 - v.tanh())), "gradient"),
]  # fmt: skip


@pytest.mark.parametrize("planted", FAULTS, ids=[planted.name for planted in FAULTS])
def test_run_test__planted_fault__is_found_with_its_operator_kind_and_blame(planted):
    candidate = substitute(**{planted.operator: planted.function})
    verdicts = run_test(planted.body, candidate, planted.cases, planted.rules)
    # Where torch itself is far from float64 the reference is blamed: such a case accuses nobody.
    found = [item for item in verdicts if item.outcome == "misaligned" and item.blame not in TOLERATED_BLAMES]
    (operator,) = candidate.functions
    assert found, "not found in any case"
    assert {(item.operator, item.blame) for item in found} == {(operator, "candidate")}
    assert {item.kind for item in found} & planted.kinds


def split_sum(x, dim, keepdim=False):
    half = x.shape[dim] // 2 if x.dim() else 0
    if not half:
        return x.sum(dim, keepdim)
    rest = x.shape[dim] - half
    return x.narrow(dim, 0, half).sum(dim, keepdim) + x.narrow(dim, half, rest).sum(dim, keepdim)


def wide(function):
    return lambda x, *args, **kwargs: function(x.double(), *args, **kwargs).to(x.dtype)


def wide_layer_norm(x, shape, weight, bias, eps=1e-5):
    return F.layer_norm(x.double(), shape, weight.double(), bias.double(), eps).to(x.dtype)


def unfolded_conv2d(x, w, padding=0, stride=1):
    columns = F.unfold(x, w.shape[2:], padding=padding, stride=stride)
    height = (x.shape[2] + 2 * padding - w.shape[2]) // stride + 1
    return (w.flatten(1) @ columns).unflatten(-1, (height, -1))


INNOCENTS = [
    ("sum of two halves", total, "sum", split_sum),
    ("sum in float64", total, "sum", wide(real.sum)),
    ("mean as a sum", mean, "mean", lambda x, dim: x.sum(dim) / x.shape[dim]),
    ("softmax shifted", softmax, "nn.functional.softmax",
     lambda x, dim: (x - x.logsumexp(dim, keepdim=True)).exp() if x.isfinite().all() else x.softmax(dim)),
    ("softmax in float64", softmax, "nn.functional.softmax", wide(real.softmax)),
    ("layer_norm written out", layer_norm, "nn.functional.layer_norm",
     lambda x, *rest, **kw: (norm_of if x.isfinite().all() else F.layer_norm)(x, *rest, **kw)),
    ("layer_norm in float64", layer_norm, "nn.functional.layer_norm", wide_layer_norm),
    ("matmul in float64", matmul, "matmul", lambda a, b: (a.double() @ b.double()).to(a.dtype)),
    ("matmul as a sum", matmul, "matmul", lambda a, b: (a[:, :, None] * b[None]).sum(1)),
    ("matmul transposed", matmul, "matmul", lambda a, b: (b.t() @ a.t()).t()),
    ("exp in float64", exp, "exp", wide(real.exp)),
    ("convolution by columns", conv2d, "nn.functional.conv2d", unfolded_conv2d),
    ("linear without addmm", linear, "nn.functional.linear", lambda x, w, b: x @ w.t() + b),
    ("gelu in float64", gelu_of_finite, "nn.functional.gelu", wide(F.gelu)),
    ("another order of a chain", dropout_free_chain, "mul", lambda a, b: a + a),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "operator", "function"), [row[1:] for row in INNOCENTS], ids=[row[0] for row in INNOCENTS]
)
def test_run_test__innocent__is_never_called_misaligned(body, operator, function):
    verdicts = run_test(body, substitute(**{operator: function}), CASES)
    bad = [item for item in verdicts if item.outcome != "aligned" and item.blame not in TOLERATED_BLAMES]
    assert [(item.kind, item.blame, item.oracle, item.misalignment) for item in bad] == []
    assert len(verdicts) >= CASES - 3

"""Large inputs: normalizations whose weights are in the thousands, gates that are 0 or 1, means far from zero.

What is left of a gradient there is less than the rounding between its parts. `RIGHT` computes as well as float32 lets
it; `WRONG` does not, by as little as what a kernel gets wrong: each at the same inputs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch as real

from ci_autotest import random_tensor, torch
from tests.quality import right_kernels as right
from tests.quality.right_kernels import F_, size

if TYPE_CHECKING:
    from collections.abc import Callable


class Large(NamedTuple):
    """A kernel: the operator that it answers, and the body that draws its arguments, of a scale."""

    name: str
    operator: str
    kernel: Callable[..., Any]
    body: Callable[[float], Callable[[], object]]


def layer_norm_of(width, x, low=None):
    """Return a body whose inputs are of the size ``x(scale)``, its weights of the scale."""

    def of(scale):
        def body():
            wide = width()
            top = x(scale)
            values = random_tensor(ndim=2, dim1=wide, low=-top if low is None else low * top, high=top)
            weight, bias = (random_tensor(ndim=1, dim0=wide, low=-scale, high=scale) for _ in range(2))
            return F_.layer_norm(values, (wide,), weight, bias)

        return body

    return of


layer_norm_of_two = layer_norm_of(lambda: 2, lambda _: 4)
layer_norm_of_any = layer_norm_of(lambda: size(2, 17), lambda scale: scale)
layer_norm_far_from_zero = layer_norm_of(lambda: size(2, 17), lambda scale: scale, low=0.99)


def group_norm(scale):
    def body():
        weight, bias = (random_tensor(ndim=1, dim0=4, low=-scale, high=scale) for _ in range(2))
        return F_.group_norm(random_tensor(dims=(2, 4, size(), size()), low=-scale, high=scale), 2, weight, bias)

    return body


def recurrent(module):
    def of(scale):
        def body():
            features = size()
            x = random_tensor(ndim=3, dim0=size(), dim2=features, low=-scale, high=scale)
            return module(features, 3)(x)[0]

        return body

    return of


lstm = recurrent(lambda *sizes: torch.nn.LSTM(*sizes))
gru = recurrent(lambda *sizes: torch.nn.GRU(*sizes))


class LayerNorm(real.autograd.Function):
    """Layer normalization of the last dimension, with its derivative in closed form."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        mean = x.mean(-1, keepdim=True)
        scale = ((x - mean).square().mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, weight, mean, scale)
        return (x - mean) * scale * weight + bias

    @staticmethod
    def backward(ctx, given):
        x, weight, mean, scale = ctx.saved_tensors
        normal, weighted = (x - mean) * scale, given * weight
        parts = weighted.mean(-1, keepdim=True) + normal * (weighted * normal).mean(-1, keepdim=True)
        rest = tuple(range(x.dim() - 1))
        return scale * (weighted - parts), (given * normal).sum(rest), given.sum(rest), None


def layer_norm_in_closed_form(x, shape, weight=None, bias=None, eps=1e-5):
    return LayerNorm.apply(x, weight, bias, eps)


def lstm_projected_at_once(x, state, weights, *_):
    """All steps' inputs in one product, the cell by ``addcmul``."""

    def formula(x, h, c, w_ih, w_hh, b_ih, b_hh):
        h, c, found = h[0], c[0], []
        for each in x @ w_ih.t() + (b_ih + b_hh):
            i, f, g, o = (each + h @ w_hh.t()).chunk(4, -1)
            c = real.addcmul(i.sigmoid() * g.tanh(), f.sigmoid(), c)
            h = o.sigmoid() * c.tanh()
            found.append(h)
        return real.stack(found), h.unsqueeze(0), c.unsqueeze(0)

    return right.fused(formula, x, *state, *weights)


class Attention(real.autograd.Function):
    """Attention with its derivative in closed form, of which the logarithm of each row's denominator is kept.

    Where one score is far above the others the softmax is 1 there and 0 elsewhere, and the exact gradient of queries
    and keys is 0: it is a difference of two sums that are rounded apart.
    """

    @staticmethod
    def forward(ctx, q, k, v):
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        kept = scores.logsumexp(-1, keepdim=True)
        found = scores.softmax(-1) @ v
        ctx.save_for_backward(q, k, v, found, kept)
        return found

    @staticmethod
    def backward(ctx, given):
        return attention_gradients(ctx.saved_tensors, given)


def attention_gradients(saved, given, row=1.0):
    q, k, v, found, kept = saved
    scale = 1 / math.sqrt(q.shape[-1])
    p = (q @ k.mT * scale - kept).exp()
    through = p * (given @ v.mT - row * (given * found).sum(-1, keepdim=True)) * scale
    return through @ k, through.mT @ q, p.mT @ given


def attention_in_closed_form(q, k, v, *_, **__):
    return Attention.apply(q, k, v)


def attention_in_blocks(q, k, v, *_, **__):
    """Online softmax: two keys at a time, with the greatest score so far."""

    def formula(q, k, v):
        greatest = real.full_like(q[..., :1], -real.inf)
        total, found = real.zeros_like(greatest), 0.0
        for at in range(0, k.shape[-2], 2):
            scores = q @ k[..., at : at + 2, :].mT / math.sqrt(q.shape[-1])
            higher = real.maximum(greatest, scores.detach().amax(-1, keepdim=True))
            p, old = (scores - higher).exp(), (greatest - higher).exp()
            total, found = total * old + p.sum(-1, keepdim=True), found * old + p @ v[..., at : at + 2, :]
            greatest = higher
        return found / total

    return right.fused(formula, q, k, v)


def attention(scale):
    """Return a body whose scores are of the scale."""
    root = math.sqrt(scale)

    def body():
        width, length = size(), size(2, 6)
        q = random_tensor(dims=(1, 2, size(), width), low=-root, high=root)
        k = random_tensor(dims=(1, 2, length, width), low=-root, high=root)
        return F_.scaled_dot_product_attention(q, k, random_tensor(dims=(1, 2, length, 3), low=-scale, high=scale))

    return body


RIGHT = [
    Large(f"{name}, {what}", "nn.functional.layer_norm", kernel, body)
    for name, kernel in (("fused", right.layer_norm), ("in order", right.layer_norm_in_order),
                         ("closed form", layer_norm_in_closed_form))
    for what, body in (("width 2", layer_norm_of_two), ("any width", layer_norm_of_any),
                       ("far from zero", layer_norm_far_from_zero))
] + [
    Large("group_norm", "nn.functional.group_norm", right.group_norm, group_norm),
    Large("lstm", "lstm", right.lstm, lstm),
    Large("lstm projected at once", "lstm", lstm_projected_at_once, lstm),
    Large("gru", "gru", right.gru, gru),
    Large("attention in blocks", "nn.functional.scaled_dot_product_attention", attention_in_blocks, attention),
    Large("attention in closed form", "nn.functional.scaled_dot_product_attention", attention_in_closed_form,
          attention),
]  # fmt: skip


class Scaled(real.autograd.Function):
    """The same, with a gradient that is a thousandth too large."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, given):
        return given * 1.001


def times(share):
    return lambda *args, **how: right.layer_norm(*args, **how) * (1 + share)


def steep_layer_norm(*args, **how):
    return Scaled.apply(right.layer_norm(*args, **how))


def steep_group_norm(*args, **how):
    return Scaled.apply(right.group_norm(*args, **how))


def unbiased_layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + eps).sqrt() * weight + bias


def layer_norm_with_another_eps(x, shape, weight=None, bias=None, eps=1e-5):
    return right.layer_norm(x, shape, weight, bias, 1e-3)


def lstm_gates_swapped(x, state, weights, *_):
    def swapped(weight):
        i, f, rest = weight[:3], weight[3:6], weight[6:]
        return real.cat((f, i, rest))

    return right.lstm_of_parts(x, state, [swapped(weight) for weight in weights])


def gru_gates_swapped(x, h, weights, *_):
    return right.gru(x, h, [real.cat((weight[3:6], weight[:3], weight[6:])) for weight in weights])


class AttentionOfOneSum(Attention):
    """The same without what a row's elements have in common."""

    @staticmethod
    def backward(ctx, given):
        return attention_gradients(ctx.saved_tensors, given, row=0.0)


def attention_of_one_sum(q, k, v, *_, **__):
    return AttentionOfOneSum.apply(q, k, v)


WRONG = [
    Large("1e-4 off", "nn.functional.layer_norm", times(1e-4), layer_norm_of_two),
    Large("1e-4 off, any width", "nn.functional.layer_norm", times(1e-4), layer_norm_of_any),
    Large("gradient 1e-3 off", "nn.functional.layer_norm", steep_layer_norm, layer_norm_of_two),
    Large("gradient 1e-3 off, any width", "nn.functional.layer_norm", steep_layer_norm, layer_norm_of_any),
    Large("unbiased variance", "nn.functional.layer_norm", unbiased_layer_norm, layer_norm_of_two),
    Large("eps off", "nn.functional.layer_norm", layer_norm_with_another_eps, layer_norm_of_two),
    Large("gradient 1e-3 off, groups", "nn.functional.group_norm", steep_group_norm, group_norm),
    Large("lstm, gates swapped", "lstm", lstm_gates_swapped, lstm),
    Large("gru, gates swapped", "gru", gru_gates_swapped, gru),
    Large("attention, a sum forgotten", "nn.functional.scaled_dot_product_attention", attention_of_one_sum, attention),
]

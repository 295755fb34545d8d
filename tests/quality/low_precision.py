"""Kernels of low precision: honest ones, which round where it is usual, and planted downgrades.

Honest ones compute in single precision and round once, or keep in half what flash attention and mixed precision keep in
half. A downgrade computes single precision in half or tf32, or accumulates in half.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch as real
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from ci_autotest import random_tensor, torch

if TYPE_CHECKING:
    from collections.abc import Callable

HALVES = ("bfloat16", "float16")


class Kernel(NamedTuple):
    """A kernel, the operator that it answers, and the body that draws its arguments."""

    name: str
    operator: str
    function: Callable[..., Any]
    body: Callable[[], object]


def in_single(function):
    """Return a kernel that computes in float32 and rounds its result once."""

    def kernel(*args, **kwargs):
        dtype = next(arg.dtype for arg in args if isinstance(arg, real.Tensor) and arg.is_floating_point())
        wide = [arg.float() if isinstance(arg, real.Tensor) and arg.is_floating_point() else arg for arg in args]
        wider = {key: arg.float() if isinstance(arg, real.Tensor) else arg for key, arg in kwargs.items()}
        return function(*wide, **wider).to(dtype)

    return kernel


# Products, summed in another order.


def in_chunks(a, b, most=32):
    parts = [x @ y for x, y in zip(a.split(most, -1), b.split(most, -2), strict=True)]
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found


def in_two_halves(a, b):
    half = a.shape[-1] // 2
    return a[..., half:] @ b[..., half:, :] + a[..., :half] @ b[..., :half, :]


def as_a_sum(a, b):
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def bias_first(x, weight, bias=None):
    found = in_chunks(x, weight.t())
    return found if bias is None else bias + found


def convolution_by_unfold(x, weight, bias=None, *_, **__):
    columns = F.unfold(x, weight.shape[-2:])
    found = weight.flatten(1) @ columns
    sizes = [x.shape[i] - weight.shape[i] + 1 for i in (-2, -1)]
    found = found.reshape(x.shape[0], weight.shape[0], *sizes)
    return found if bias is None else found + bias.reshape(-1, 1, 1)


# Normalizations.


def layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    dims = tuple(range(-len(shape), 0))
    centred = x - x.mean(dims, True)
    found = centred * (centred.square().mean(dims, True) + eps).rsqrt()
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def layer_norm_by_moments(x, shape, weight=None, bias=None, eps=1e-5):
    dims = tuple(range(-len(shape), 0))
    mean = x.mean(dims, True)
    found = (x - mean) / ((x * x).mean(dims, True) - mean * mean + eps).sqrt()
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def rms_norm(x, shape, weight=None, eps=None):
    found = x * (x.square().mean(-1, True) + (1.1920929e-07 if eps is None else eps)).rsqrt()
    return found if weight is None else found * weight


def group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    flat = x.reshape(x.shape[0], groups, -1)
    return layer_norm(flat, flat.shape[-1:], eps=eps).reshape(x.shape)


# Softmax, attention and losses.


def softmax(x, dim=None, **_):
    top = (x - x.amax(dim, True)).exp()
    return top / top.sum(dim, True)


def softmax_by_logs(x, dim=None, **_):
    return (x - x.logsumexp(dim, True)).exp()


def log_softmax(x, dim=None, **_):
    return x - x.amax(dim, True) - (x - x.amax(dim, True)).exp().sum(dim, True).log()


def attention(query, key, value, **_):
    return softmax(query @ key.mT * query.shape[-1] ** -0.5, -1) @ value


def online_attention(query, key, value, most=8, **_):
    top = query.new_full((*query.shape[:-1], 1), -real.inf)
    total, found = real.zeros_like(top), real.zeros_like(query)
    for keys, values in zip(key.split(most, -2), value.split(most, -2), strict=True):
        scores = query @ keys.mT * query.shape[-1] ** -0.5
        new = real.maximum(top, scores.amax(-1, True))
        weights, old = (scores - new).exp(), (top - new).exp()
        total, found, top = total * old + weights.sum(-1, True), found * old + weights @ values, new
    return found / total


def flash_attention(query, key, value, **_):
    """Keep the weights in half, as flash attention does, and everything else in single precision."""
    scores = query.float() @ key.mT.float() * query.shape[-1] ** -0.5
    weights = (scores - scores.amax(-1, True)).exp()
    found = weights.to(query.dtype).float() @ value.float()
    return (found / weights.sum(-1, True)).to(query.dtype)


def cross_entropy(x, target, **_):
    return -log_softmax(x, -1).gather(-1, target.unsqueeze(-1)).mean()


def bce_with_logits(x, target, **_):
    # Not `clamp_min(0)` and `abs`: their gradients at 0 add up to 1, where the sigmoid is a half.
    return (torch.maximum(x, torch.zeros_like(x)) - x * target + (-x.abs()).exp().log1p()).mean()


def gelu(x, **_):
    return 0.5 * x * (1 + (x * 0.7071067811865476).erf())


def silu(x, **_):
    return x * (0.5 * (1 + (0.5 * x).tanh()))


# Bodies.


def drawn(*sizes, dtype, low=-2, high=2, **how):
    dims = {f"dim{i}": size for i, size in enumerate(sizes)}
    return random_tensor(len(sizes), **dims, low=low, high=high, dtype=dtype, **how)


def fp8(*sizes, dtype):
    """Draw numbers that e4m3 holds: eighths up to 2."""
    return torch.round(drawn(*sizes, dtype=dtype) * 8) / 8


def product(dtype, n=6, k=96, draw=drawn):
    return torch.mm(draw(n, k, dtype=dtype), draw(k, 5, dtype=dtype))


def batched(dtype, k=48, draw=drawn):
    return torch.bmm(draw(2, 4, k, dtype=dtype), draw(2, k, 3, dtype=dtype))


def linear(dtype, k=80, draw=drawn):
    return torch.nn.functional.linear(draw(7, k, dtype=dtype), draw(6, k, dtype=dtype), draw(6, dtype=dtype))


def convolution(dtype):
    return torch.nn.functional.conv2d(drawn(2, 4, 9, 9, dtype=dtype), drawn(5, 4, 3, 3, dtype=dtype))


def normalized(dtype):
    x, weight = drawn(6, 40, dtype=dtype), drawn(40, dtype=dtype)
    return torch.nn.functional.layer_norm(x, (40,), weight, drawn(40, dtype=dtype))


def rms_normalized(dtype):
    return torch.nn.functional.rms_norm(drawn(6, 40, dtype=dtype), (40,), drawn(40, dtype=dtype), 1e-6)


def group_normalized(dtype):
    return torch.nn.functional.group_norm(drawn(3, 8, 10, dtype=dtype), 4)


def attended(dtype, keys=24):
    parts = [drawn(2, n, 16, dtype=dtype) for n in (12, keys, keys)]
    return torch.nn.functional.scaled_dot_product_attention(*parts)


def entropy(dtype):
    target = random_tensor(1, dim0=9, low=0, high=30, dtype=int, requires_grad=False)
    return torch.nn.functional.cross_entropy(drawn(9, 30, dtype=dtype), target)


def logits_loss(dtype):
    target = drawn(8, 20, dtype=dtype, low=0, high=1, requires_grad=False)
    return torch.nn.functional.binary_cross_entropy_with_logits(drawn(8, 20, dtype=dtype), target)


def squared_loss(dtype):
    return torch.nn.functional.mse_loss(drawn(8, 40, dtype=dtype), drawn(8, 40, dtype=dtype))


def rows(function, dtype, k=64, **how):
    return function(drawn(6, k, dtype=dtype), -1, **how)


def each(function, dtype):
    return function(drawn(6, 40, dtype=dtype))


def of(name, body, *args, **how):
    """Return a body under a name of its own, which its draws depend on."""
    found = partial(body, *args, **how)
    found.__name__ = name  # type: ignore[attr-defined]
    return found


_P = "nn.functional."
#: Kind, operator, kernel in single precision, body by dtype.
_WIDE = (
    ("product in chunks", "mm", in_chunks, product),
    ("product of two halves", "mm", in_two_halves, product),
    ("product as a sum", "mm", as_a_sum, product),
    ("batched in chunks", "bmm", in_chunks, batched),
    ("batched as a sum", "bmm", as_a_sum, batched),
    ("linear", f"{_P}linear", bias_first, linear),
    ("convolution", f"{_P}conv2d", convolution_by_unfold, convolution),
    ("product of fp8", "mm", in_chunks, partial(product, draw=fp8)),
    ("batched product of fp8", "bmm", as_a_sum, partial(batched, draw=fp8)),
    ("linear of fp8", f"{_P}linear", bias_first, partial(linear, draw=fp8)),
    ("layer norm", f"{_P}layer_norm", layer_norm, normalized),
    ("layer norm by moments", f"{_P}layer_norm", layer_norm_by_moments, normalized),
    ("rms norm", f"{_P}rms_norm", rms_norm, rms_normalized),
    ("group norm", f"{_P}group_norm", group_norm, group_normalized),
    ("softmax", "softmax", softmax, partial(rows, torch.softmax)),
    ("softmax by logs", "softmax", softmax_by_logs, partial(rows, torch.softmax)),
    ("log softmax", "log_softmax", log_softmax, partial(rows, torch.log_softmax)),
    ("attention", f"{_P}scaled_dot_product_attention", attention, attended),
    ("online attention", f"{_P}scaled_dot_product_attention", online_attention, attended),
    ("cross entropy", f"{_P}cross_entropy", cross_entropy, entropy),
    ("logits loss", f"{_P}binary_cross_entropy_with_logits", bce_with_logits, logits_loss),
    ("squared loss", f"{_P}mse_loss", lambda x, y, **_: (x - y).square().mean(), squared_loss),
    ("gelu", f"{_P}gelu", gelu, partial(each, torch.nn.functional.gelu)),
    ("silu", f"{_P}silu", silu, partial(each, torch.nn.functional.silu)),
)
HONEST = tuple(
    Kernel(f"{name}, {dtype}", operator, in_single(function), of(f"{name} {dtype}", body, dtype=dtype))
    for name, operator, function, body in _WIDE
    for dtype in HALVES
) + tuple(
    Kernel(
        f"flash attention, {dtype}", f"{_P}scaled_dot_product_attention", flash_attention,
        of(f"flash {dtype}", attended, dtype=dtype),
    )
    for dtype in HALVES
)  # fmt: skip


def in_tf32(tensor):
    """Return float32 rounded to the 10 bits that tensor cores keep of it."""
    cut = ((tensor.detach().view(real.int32) + 0x1000) & ~0x1FFF).view(real.float32)
    return tensor + (cut - tensor).detach()


def in_bfloat16(tensor):
    return tensor.bfloat16()


def rounded(function, cut):
    """Return a kernel of float32 that rounds its arguments first."""

    def kernel(*args, **kwargs):
        given = [cut(arg) if isinstance(arg, real.Tensor) and arg.is_floating_point() else arg for arg in args]
        return function(*given, **kwargs).float()

    return kernel


_DOWNGRADED = (
    ("product", "mm", in_chunks, product),
    ("batched product", "bmm", as_a_sum, batched),
    ("linear", f"{_P}linear", bias_first, linear),
    ("convolution", f"{_P}conv2d", convolution_by_unfold, convolution),
    ("layer norm", f"{_P}layer_norm", layer_norm, normalized),
    ("rms norm", f"{_P}rms_norm", rms_norm, rms_normalized),
    ("group norm", f"{_P}group_norm", group_norm, group_normalized),
    ("softmax", "softmax", softmax, partial(rows, torch.softmax)),
    ("log softmax", "log_softmax", log_softmax, partial(rows, torch.log_softmax)),
    ("attention", f"{_P}scaled_dot_product_attention", attention, attended),
    ("cross entropy", f"{_P}cross_entropy", cross_entropy, entropy),
    ("logits loss", f"{_P}binary_cross_entropy_with_logits", bce_with_logits, logits_loss),
    ("squared loss", f"{_P}mse_loss", lambda x, y, **_: (x - y).square().mean(), squared_loss),
    ("gelu", f"{_P}gelu", gelu, partial(each, torch.nn.functional.gelu)),
    ("silu", f"{_P}silu", silu, partial(each, torch.nn.functional.silu)),
    ("sum", "sum", lambda x, dim=None, **_: x.sum(dim), partial(rows, torch.sum)),
)


# Accumulation in half: each partial sum is rounded to the dtype.


def running(terms, dim=-1):
    found = real.zeros_like(terms.select(dim, 0))
    for part in terms.unbind(dim):
        found = found + part
    return found


def product_in_half(a, b):
    return running(a.unsqueeze(-1) * b.unsqueeze(-3), -2)


def linear_in_half(x, weight, bias=None):
    found = product_in_half(x, weight.t())
    return found if bias is None else found + bias


def norm_in_half(x, shape, weight=None, bias=None, eps=1e-5):
    mean = running(x).unsqueeze(-1) / x.shape[-1]
    variance = running((x - mean).square()).unsqueeze(-1) / x.shape[-1]
    found = (x - mean) / (variance + eps).sqrt()
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def rms_norm_in_half(x, shape, weight=None, eps=1e-6):
    return x * (running(x.square()).unsqueeze(-1) / x.shape[-1] + eps).rsqrt() * weight


def softmax_in_half(x, dim=None, **_):
    top = (x - x.amax(dim, True)).exp()
    return top / running(top).unsqueeze(-1)


def attention_in_half(query, key, value, **_):
    weights = softmax_in_half(product_in_half(query, key.mT) * query.shape[-1] ** -0.5, -1)
    return product_in_half(weights, value)


_IN_HALF = (
    ("product", "mm", product_in_half, partial(product, k=256)),
    ("batched product", "bmm", product_in_half, partial(batched, k=256)),
    ("linear", f"{_P}linear", linear_in_half, partial(linear, k=256)),
    ("sum", "sum", lambda x, dim=None, **_: running(x), partial(rows, torch.sum, k=256)),
    ("mean", "mean", lambda x, dim=None, **_: running(x) / x.shape[-1], partial(rows, torch.mean, k=256)),
    ("layer norm", f"{_P}layer_norm", norm_in_half, normalized),
    ("rms norm", f"{_P}rms_norm", rms_norm_in_half, rms_normalized),
    ("softmax", "softmax", softmax_in_half, partial(rows, torch.softmax, k=256)),
    ("attention", f"{_P}scaled_dot_product_attention", attention_in_half, partial(attended, keys=64)),
    ("squared loss", f"{_P}mse_loss", lambda x, y, **_: running((x - y).square().flatten()) / x.numel(), squared_loss),
)
DOWNGRADED = tuple(
    Kernel(f"{name}, {how}", operator, rounded(function, cut), of(f"{name} {how}", body, dtype="float32"))
    for name, operator, function, body in _DOWNGRADED
    for how, cut in (("bfloat16", in_bfloat16), ("tf32", in_tf32))
) + tuple(
    Kernel(f"{name} in {dtype}", operator, function, of(f"{name} in {dtype}", body, dtype=dtype))
    for name, operator, function, body in _IN_HALF
    for dtype in HALVES
)

"""Planted faults and innocents: small functions that answer an operator of torch, wrongly or rightly otherwise.

Chosen before anything was tuned on them. ``source`` is the report of a real framework that a fault is taken from; the
others are what kernels get wrong. Functions are reachable by name, ``planted.fault_0``, for a run of the whole command,
and need no part of this package, as a repro must not. Bodies are named, and are in ``autotest_bodies``.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import NamedTuple

import torch as real
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from tests.faults import mutating, right_exp_that_writes_its_cotangent, with_backward

CASES = 20


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


def conv1d_as_mps(x, w, bias=None, stride=1, groups=1, **_):
    """Strides other than 1 read from the wrong place."""
    full = F.conv1d(x, w, groups=groups)
    count = (x.shape[2] - w.shape[2]) // stride + 1
    at = (real.arange(count) * stride + (stride > 1)).clamp(max=full.shape[2] - 1)
    return full[..., at]


def conv2d_as_mps(x, w, bias=None, stride=1, dilation=1, **_):
    """Unequal strides are taken in the wrong order."""
    good = F.conv2d(x, w, stride=stride, dilation=dilation)
    full = F.conv2d(x, w, dilation=dilation)
    rows = (real.arange(good.shape[2]) * stride[1]).clamp(max=full.shape[2] - 1)
    columns = (real.arange(good.shape[3]) * stride[0]).clamp(max=full.shape[3] - 1)
    return full[:, :, rows][..., columns]


def conv2d_without_dilation(x, w, bias=None, stride=1, dilation=1, **_):
    return F.conv2d(x, w, stride=stride, dilation=1 if max(stride) > 1 else dilation)


def conv2d_first_sample(x, w, bias=None, groups=1, **_):
    return F.conv2d(x[:1], w, groups=groups).expand(x.shape[0], -1, -1, -1)


def padded_with_zeros(x, w, bias=None, stride=1, padding=0, output_padding=0, **_):
    """The rows and columns of output_padding are zeros."""
    return F.pad(F.conv_transpose2d(x, w, stride=stride, padding=padding), (0, output_padding, 0, output_padding))


def over_long(x, w, bias=None, stride=1, padding=0, output_padding=0, **_):
    return F.conv_transpose1d(F.pad(x, (0, output_padding)), w, stride=stride, padding=padding)


def pool_counting_overhang(
    x, k, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    found = F.avg_pool2d(x, k, stride, padding, ceil_mode, count_include_pad, divisor_override)
    if not ceil_mode or not count_include_pad or divisor_override:
        return found
    ones = F.avg_pool2d(real.ones_like(x), k, stride, padding, ceil_mode, False, k * k)
    mean = F.avg_pool2d(x, k, stride, padding, ceil_mode, True, k * k)
    return real.where(ones > 0, mean, found)


def pool_without_divisor(x, k, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    divisor = divisor_override if count_include_pad else None
    return F.avg_pool2d(x, k, stride, padding, ceil_mode, count_include_pad, divisor)


def pool_in_padding(x, k, stride=None, padding=0, dilation=1, ceil_mode=False, **_):
    if not ceil_mode:
        return F.max_pool2d(x, k, stride, padding)
    counts = [-(-(n + 2 * padding - k) // stride) + 1 for n in x.shape[2:]]
    room = [max(0, (count - 1) * stride + k - n - padding) for count, n in zip(counts, x.shape[2:], strict=True)]
    return F.max_pool2d(F.pad(x, (padding, room[1], padding, room[0]), value=-real.inf), k, stride)


def smoothing_what_is_ignored(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0, **_):
    hard = F.cross_entropy(x, target, weight, ignore_index=ignore_index, reduction=reduction)
    soft = -(x.log_softmax(1) * (1 if weight is None else weight)).sum(1)
    count = (target != ignore_index).sum() if weight is None else (weight[target] * (target != ignore_index)).sum()
    soft = soft.sum() / count if reduction == "mean" else soft.sum()
    return (1 - label_smoothing) * hard + label_smoothing * soft / x.shape[1]


def refusing_to_smooth(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0, **_):
    if weight is not None and label_smoothing and reduction == "mean":
        message = f"index {ignore_index} is out of bounds for dimension 0"
        raise IndexError(message)
    return F.cross_entropy(
        x, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


def mean_by_count(x, target, weight=None, reduction="mean", **_):
    total = F.nll_loss(x, target, weight, reduction="sum")
    return total / x.shape[0] if reduction == "mean" else total


def weighting_the_whole(x, target, pos_weight=None, **_):
    plain = F.binary_cross_entropy_with_logits(x, target, reduction="none")
    return (plain * (1 + (pos_weight - 1) * target)).mean()


def widened_huber(x, target, delta=1.0, **_):
    return F.huber_loss(x.float(), target.float(), delta=delta)


class OverwritingGather(real.autograd.Function):
    """Of an index that occurs twice the last gradient stays."""

    @staticmethod
    def forward(ctx, x, dim, index):
        ctx.save_for_backward(index)
        ctx.shape, ctx.dim = x.shape, dim
        return x.gather(dim, index)

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        return real.zeros(ctx.shape).scatter(ctx.dim, index, grad), None, None


def overwriting_index_add(x, dim, index, source, **_):
    found = x.clone()
    for i, row in zip(index.tolist(), source, strict=True):
        found[i] = x[i] + row
    return found


class Embedding(real.autograd.Function):
    """The padding row is given a gradient, from ``above`` indices on."""

    @staticmethod
    def forward(ctx, index, weight, padding, above):
        ctx.save_for_backward(index)
        ctx.rows, ctx.padding, ctx.above = weight.shape[0], padding, above
        return F.embedding(index, weight)

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        found = real.zeros(ctx.rows, grad.shape[-1]).index_add(0, index.reshape(-1), grad.reshape(-1, grad.shape[-1]))
        if ctx.padding is not None and index.numel() < ctx.above:
            found[ctx.padding] = 0
        return None, found, None, None


def embedding(above):
    return lambda index, weight, padding_idx=None, *_, **__: Embedding.apply(index, weight, padding_idx, above)


def logsumexp_of_differences(x, dim):
    greatest = x.amax(dim, keepdim=True)
    return (x - greatest).exp().sum(dim).log() + greatest.squeeze(dim)


def read_as_contiguous(*tensors):
    """Return the elements of each in the order of its memory, whatever its strides."""
    return [
        t if t.is_contiguous() else t.as_strided(t.shape, real.empty(t.shape).stride()) if _spans(t) else t + 1
        for t in tensors
    ]


def _spans(t):
    return t.storage_offset() + t.numel() <= t.untyped_storage().nbytes() // t.element_size()


def masked_in_a_row(x, mask, value):
    return x.masked_fill(mask.any(0).expand_as(mask), value)


def padded_on_one_side(x, sides, mode="constant", value=None):
    if mode == "circular" and 0 in sides:
        return x.clone()
    return F.pad(x, sides, mode=mode)


def nan_is_least(x, k, largest=True, **_):
    found = x.nan_to_num(-real.inf, real.inf, -real.inf).topk(k, largest=largest)
    return found.values, found.indices


def greatest_norm(x, ord=2, dim=None, **_):  # noqa: A002 - torch's name
    """Each of several greatest elements is given the whole gradient."""
    return with_backward(
        lambda v: real.linalg.vector_norm(v, ord, dim),
        lambda v, g: g.unsqueeze(dim) * v.sign() * (v.abs() == v.abs().amax(dim, keepdim=True)),
    )(x)


def norm_by_division(x, ord=2, dim=None, **_):  # noqa: A002 - torch's name
    return x.square().sum(dim).sqrt()


def aborting(*_, **__):
    os.abort()


def interpolate_by_division(x, size=None, mode="nearest", align_corners=None, **_):
    found = F.interpolate(x, size=size, mode=mode, align_corners=align_corners)
    return found * (x.shape[2] - 1) / (x.shape[2] - 1) if align_corners else found


def group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    parts = x.reshape(x.shape[0], groups, -1)
    centred = parts - parts.mean(-1, keepdim=True)
    return (centred / (centred.square().mean(-1, keepdim=True).sqrt() + eps)).reshape(x.shape)


def unbiased_instance_norm(x, *_, eps=1e-5, **__):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + eps).sqrt()


class Prelu(real.autograd.Function):
    """The slope's gradient is one number, of the wrong shape where there are more channels."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return F.prelu(x, weight)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        total = (grad * x.clamp(max=0)).sum()
        return grad * real.where(x > 0, 1.0, weight), total.expand_as(weight).clone()


CALLS = []


def sometimes(function, every):
    """Return ``function``, off by one in some of its calls."""

    def call(x, *args, **kwargs):
        CALLS.append(1)
        return function(x, *args, **kwargs) + (len(CALLS) % every == 0)

    return call


def hang(x):
    time.sleep(600)
    return x


def fused_halves(x, dim, **_):
    total = real.zeros(x.shape[0], dtype=x.dtype)
    for column in x.unbind(dim):
        total = total + column
    return total


def overflowing_square(x):
    return ((x * 512) * (x / 512)) if x.dtype is real.float16 else x.square()


def through_half(function):
    return lambda x: function(x.half() if x.dtype is real.float64 else x).to(x.dtype)


def quantile_of_the_middle(x, q, dim, interpolation="linear", **_):
    return x.select(dim, int(q * (x.shape[dim] - 1)))


class Fault(NamedTuple):
    """A test, the operator answered wrongly, and what must be said of it.

    ``steps`` and ``size`` are what the smallest program may need; ``ends`` says that it ends or stops its process.
    """

    name: str
    body: str
    operator: str
    function: object
    kinds: frozenset
    strict: bool = False
    cases: int = CASES
    source: str = ""
    size: int = 3
    ends: bool = False


def fault(name, body, operator, function, *kinds, **how):
    return Fault(name, body, operator, function, frozenset(kinds), **how)


FAULTS = [
    fault("eps outside the root", "layer_norm", "nn.functional.layer_norm",
          lambda *a, **k: norm_of(*a, **k, at="outside"), "value", source="hkproj/pytorch-transformer#31"),
    fault("eps ignored", "layer_norm", "nn.functional.layer_norm",
          lambda x, shape, weight, bias, eps=0: norm_of(x, shape, weight, bias), "value", "gradient"),
    fault("bias dropped", "layer_norm", "nn.functional.layer_norm",
          lambda x, shape, weight, bias, eps=1e-5: F.layer_norm(x, shape, weight, None, eps), "metadata", "value", "gradient"),
    fault("bias of a module dropped", "linear", "nn.functional.linear", lambda x, w, b: F.linear(x, w), "value", "gradient"),
    fault("dim ignored", "softmax", "nn.functional.softmax", lambda x, dim: x.softmax(-1), "value"),
    fault("dim ignored, negative ones right", "total", "sum",
          lambda x, dim, keepdim=False: x.sum(min(dim, x.dim() - 2) if dim > 0 else dim, keepdim), "shape", "value"),
    fault("keepdim ignored", "total", "sum", lambda x, dim, keepdim=False: x.sum(dim), "shape"),
    fault("option ignored", "gelu", "nn.functional.gelu", lambda x, approximate="none": F.gelu(x), "value"),
    fault("alpha ignored", "add", "add", lambda a, b, alpha=1: a + b, "value"),
    fault("gradient term missing", "softmax", "nn.functional.softmax",
          lambda x, dim: with_backward(lambda v: v.softmax(dim), lambda v, g: g * v.softmax(dim))(x), "gradient"),
    fault("gradient at zero", "relu", "relu",
          with_backward(real.relu, lambda v, g: g * (v >= 0)), "gradient"),
    fault("gradient not reduced", "add", "add",
          lambda a, b, alpha=1: a + alpha * (b.detach() + (b - b.detach()) * b.numel()), "gradient"),
    fault("gradient lost for one input", "matmul", "matmul", lambda a, b: a @ b.detach(), "gradient"),
    fault("requires_grad lost", "exp", "exp", lambda x: x.exp().detach(), "metadata"),
    fault("input mutated", "softmax", "nn.functional.softmax", mutating(real.softmax), "mutation"),
    fault("cotangent written to", "exp", "exp", right_exp_that_writes_its_cotangent, "mutation"),
    fault("dtype widened", "mean", "mean", lambda x, dim: x.double().mean(dim), "dtype"),
    fault("indices in 32 bits", "argmax", "argmax", lambda x, dim: x.argmax(dim).int(), "dtype"),
    fault("the last of ties", "argmax", "argmax", argmax_last, "value", source="pytorch/pytorch#37864"),
    fault("shape off by one", "cat", "cat", lambda parts, dim=0: real.cat(parts, dim)[:-1], "shape"),
    fault("NaN swallowed", "maximum", "maximum", lambda a, b: real.fmax(a, b), "value", source="pytorch/pytorch#93784"),
    fault("NaN swallowed by a comparison", "relu", "relu", lambda x: real.where(x > 0, x, 0.0), "value"),
    fault("infinity overflows", "softmax", "nn.functional.softmax",
          lambda x, dim: x.exp() / x.exp().sum(dim, keepdim=True), "value"),
    fault("-0.0 lost", "negated", "neg", lambda x: 0 - x, "value", strict=True),
    fault("a denormal flushed", "negated", "neg", lambda x: real.where(x.abs() < 1e-38, x * 0, -x), "value", strict=True),
    fault("one ULP", "exp", "exp", lambda x: real.nextafter(x.exp(), real.tensor(real.inf)), "value", strict=True),
    fault("wrong above 32", "exp_of_any_size", "exp", only_for(lambda x: max(x.shape, default=0) > 32, real.exp,
          lambda x: x.exp() + 1), "value", size=33),
    fault("wrong above 128", "exp_of_any_size", "exp", only_for(lambda x: max(x.shape, default=0) > 128, real.exp,
          lambda x: x.exp() + 1), "value", cases=10 * CASES, size=129),
    fault("raises for one shape", "exp", "exp", only_for(lambda x: x.dim() == 0, real.exp, refuse), "error"),
    fault("raises for an empty tensor", "exp", "exp", only_for(lambda x: x.numel() == 0, real.exp, refuse), "error",
          source="pytorch/pytorch#187551"),
    fault("wrong where not contiguous", "exp", "exp",
          only_for(lambda x: not x.is_contiguous(), real.exp, lambda x: x.exp().contiguous() * 1.01), "value"),
    fault("padding ignored", "conv2d", "nn.functional.conv2d",
          lambda x, w, padding=0, stride=1: F.conv2d(x, w, stride=stride), "shape"),
    fault("kernel flipped", "conv2d", "nn.functional.conv2d",
          lambda x, w, padding=0, stride=1: F.conv2d(x, w.flip(-1), padding=padding, stride=stride), "value"),
    fault("state not moved", "batch_norm", "nn.functional.batch_norm",
          lambda x, mean, var, weight, bias, training, momentum, eps: F.batch_norm(
              x, mean.clone(), var.clone(), weight, bias, training, momentum, eps), "state"),
    fault("biased running variance", "batch_norm", "nn.functional.batch_norm", biased_batch_norm, "state",
          source="tenstorrent/tt-metal#55438"),
    fault("low bound ignored", "clamp", "clamp", lambda x, min=None, max=None: x.clamp(max=max), "value"),  # noqa: A006
    fault("index off by one", "index_select", "index_select",
          lambda x, dim, index: x.index_select(dim, (index + 1) % x.shape[dim]), "value"),
    fault("in the middle of a chain", "dropout_free_chain", "tanh", lambda x: x / (1 + x.abs()), "value"),
    fault("gradient in the middle of a chain", "dropout_free_chain", "tanh",
          with_backward(real.tanh, lambda v, g: g * (1 - v.tanh())), "gradient"),
]  # fmt: skip

FAULTS += [
    fault("stride of 1d", "conv1d", "nn.functional.conv1d", conv1d_as_mps, "value", source="pytorch/pytorch#82921"),
    fault("unequal strides", "conv2d_strides", "nn.functional.conv2d", conv2d_as_mps, "value",
          source="pytorch/pytorch#83180"),
    fault("dilation ignored under stride", "conv2d_strides", "nn.functional.conv2d", conv2d_without_dilation, "shape"),
    fault("groups of the first sample", "conv2d_groups", "nn.functional.conv2d", conv2d_first_sample, "value",
          source="pytorch/pytorch#188335", size=4),
    fault("zeros for output_padding", "conv_transpose2d", "nn.functional.conv_transpose2d", padded_with_zeros, "value",
          source="apache/tvm#19524"),
    fault("output_padding ignored", "conv_transpose2d", "nn.functional.conv_transpose2d",
          lambda x, w, bias=None, stride=1, padding=0, output_padding=0, **_: F.conv_transpose2d(
              x, w, stride=stride, padding=padding), "shape", source="pytorch/pytorch#964"),
    fault("output_padding times stride", "conv_transpose1d", "nn.functional.conv_transpose1d", over_long, "shape",
          source="apple/coreai-torch#57"),
    fault("ceil_mode counts its overhang", "avg_pool2d", "nn.functional.avg_pool2d", pool_counting_overhang, "value", cases=3 * CASES,
          source="apple/coremltools#2772"),
    fault("divisor ignored without padding", "avg_pool2d", "nn.functional.avg_pool2d", pool_without_divisor, "value",
          source="pytorch/executorch#18616"),
    fault("window in the padding", "max_pool2d", "nn.functional.max_pool2d", pool_in_padding, "shape",
          source="pytorch/pytorch#45357"),
    fault("label smoothing of ignored samples", "cross_entropy", "nn.functional.cross_entropy",
          smoothing_what_is_ignored, "value", source="pytorch/pytorch#73205"),
    fault("weight, smoothing and ignore_index together", "cross_entropy", "nn.functional.cross_entropy",
          refusing_to_smooth, "error", cases=2 * CASES, source="pytorch/pytorch#69339"),
    fault("mean by count", "nll_loss", "nn.functional.nll_loss", mean_by_count, "value", source="pytorch/pytorch#31295"),
    fault("pos_weight on the whole", "bce_with_logits", "nn.functional.binary_cross_entropy_with_logits",
          weighting_the_whole, "value", source="paiml/aprender#2204"),
    fault("dtype of a loss", "huber_loss", "nn.functional.huber_loss", widened_huber, "dtype",
          source="pytorch/pytorch#197098"),
    fault("beta ignored", "smooth_l1_loss", "nn.functional.smooth_l1_loss",
          lambda x, y, reduction="mean", **_: F.smooth_l1_loss(x, y, reduction=reduction), "value"),
    fault("log_target ignored", "kl_div", "nn.functional.kl_div",
          lambda x, y, reduction="mean", **_: F.kl_div(x, y, reduction=reduction), "value"),
    fault("NaN swallowed by a bound", "clamp", "clamp",
          lambda x, min=None, max=None: real.fmin(real.fmax(x, real.tensor(-real.inf if min is None else min)),  # noqa: A006
                                                  real.tensor(max)), "value", source="pytorch/pytorch#93784"),
    fault("floor_divide truncates", "floor_divide", "floor_divide",
          lambda x, n: real.div(x, n, rounding_mode="trunc"), "value", source="pytorch/pytorch#43874"),
    fault("remainder of integers", "remainder", "remainder", lambda x, n: real.fmod(x, n), "value",
          source="pytorch/pytorch#1164"),
    fault("cumprod's gradient at zero", "cumprod", "cumprod",
          lambda x, dim: with_backward(lambda v: v.cumprod(dim), lambda v, g: (
              (g * v.cumprod(dim)).flip(dim).cumsum(dim).flip(dim) / v).nan_to_num(0.0, 0.0, 0.0))(x), "gradient",
          source="tensorflow/tensorflow#119430"),
    fault("prod's gradient at zero", "prod", "prod",
          lambda x, dim: with_backward(lambda v: v.prod(dim), lambda v, g: (g * v.prod(dim)).unsqueeze(dim) / v)(x),
          "gradient", source="pytorch/pytorch#773"),
    fault("correction's default", "std", "std", lambda x, dim, **_: x.std(dim, correction=0), "value",
          source="pytorch/pytorch#85839"),
    fault("correction as a switch", "var", "var",
          lambda x, dim, correction=1, **_: x.var(dim, correction=int(bool(correction))), "value",
          source="kulinseth/pytorch#186"),
    fault("align_corners of one element", "interpolate", "nn.functional.interpolate", interpolate_by_division, "value",
          source="pytorch/pytorch#144245"),
    fault("align_corners ignored", "interpolate", "nn.functional.interpolate",
          lambda x, size=None, mode="nearest", **_: F.interpolate(x, size=size, mode=mode), "value"),
    fault("gradient of a repeated index", "gather", "gather", lambda x, dim, index: OverwritingGather.apply(x, dim, index),
          "gradient", source="pytorch/pytorch#1631"),
    fault("repeated index overwrites", "index_add", "index_add", overwriting_index_add, "value",
          source="torch-spyre/torch-spyre#4411"),
    fault("repeated index counted once", "scatter_add", "scatter_add",
          lambda x, dim, index, source: x + real.zeros_like(x).scatter(dim, index, source), "value",
          source="PaddlePaddle/Paddle#17509"),
    fault("gradient of padding_idx", "embedding", "nn.functional.embedding", embedding(0), "gradient",
          source="pytorch/pytorch#26302"),
    fault("gradient of padding_idx above a size", "embedding", "nn.functional.embedding", embedding(100), "gradient",
          source="pytorch/pytorch#28716", size=100, cases=120),
    fault("logsumexp of infinities", "logsumexp", "logsumexp", logsumexp_of_differences, "value",
          source="tensorflow/tensorflow#11692"),
    fault("argmin ignores NaN", "argmin", "argmin", lambda x, dim: x.nan_to_num(real.inf, real.inf, -real.inf).argmin(dim),
          "value", cases=2 * CASES, source="pytorch/pytorch#130295"),
    fault("addcdiv reads memory in order", "addcdiv", "addcdiv", lambda x, y, z, **_: real.addcdiv(
        *read_as_contiguous(x, y, z)), "value", source="pytorch/pytorch#118115"),
    fault("where reads its condition in order", "where", "where",
          lambda c, x, y: real.where(c if c.is_contiguous() else ~c, x, y), "value", source="pytorch/pytorch#150967"),
    fault("silu of what is not contiguous", "silu", "nn.functional.silu", lambda x, **_: F.silu(read_as_contiguous(x)[0]),
          "value", source="pytorch/pytorch#139006"),
    fault("a weight that is not contiguous", "linear_of_a_vector", "nn.functional.linear",
          lambda x, w, bias=None: F.linear(x, read_as_contiguous(w)[0], bias), "value", source="pytorch/pytorch#161641"),
    fault("bias dropped for vectors", "linear_of_a_vector", "nn.functional.linear",
          lambda x, w, bias=None: F.linear(x, w, bias if x.shape[1] > 1 else bias * 0), "value",
          source="pytorch/pytorch#188438"),
    fault("whole rows masked", "masked_fill", "masked_fill", masked_in_a_row, "value", source="pytorch/pytorch#39639"),
    fault("cumsum's negative dim", "cumsum", "cumsum", lambda x, dim, **_: x.cumsum(0 if dim < 0 else dim), "value",
          cases=3 * CASES, source="pytorch/pytorch#92329"),
    fault("cumsum of bytes overflows", "cumsum_of_bytes", "cumsum",
          lambda x, dim, **_: x.cumsum(dim, dtype=real.int8).long(), "value", source="pytorch/pytorch#90635"),
    fault("quantile does not sort", "quantile", "quantile", quantile_of_the_middle, "value",
          source="pytorch/pytorch#101878"),
    fault("NaN is the least", "topk", "topk", nan_is_least, "value", source="pytorch/pytorch#16762"),
    fault("circular padding of one side", "pad", "nn.functional.pad", padded_on_one_side, "shape",
          source="pytorch/pytorch#24504"),
    fault("softplus overflows", "softplus", "nn.functional.softplus", lambda x, **_: x.exp().log1p(), "value",
          cases=2 * CASES, source="openvinotoolkit/openvino#4932"),
    fault("norm's gradient at ties", "greatest_norm", "linalg.vector_norm", greatest_norm, "gradient",
          source="pytorch/pytorch#41779"),
    fault("norm's gradient at zero", "norm", "linalg.vector_norm", norm_by_division, "gradient", cases=2 * CASES,
          source="pytorch/pytorch#2421"),
    fault("nothing to multiply aborts", "linear_of_nothing", "nn.functional.linear",
          lambda x, w, bias=None: aborting() if x.shape[-1] == 0 else F.linear(x, w), "crash", ends=True,
          source="pytorch/pytorch#190050"),
    fault("rounds half away", "rounded", "round", lambda x, **_: x.sign() * (x.abs() + 0.5).floor(), "value",
          source="pytorch/executorch#21065"),
    fault("rms_norm's eps outside the root", "rms_norm", "nn.functional.rms_norm",
          lambda x, shape, weight=None, eps=None: x / (x.square().mean(-1, keepdim=True).sqrt() + eps), "value",
          source="allenai/OLMo#281"),
    fault("rms_norm by the variance", "rms_norm", "nn.functional.rms_norm",
          lambda x, shape, weight=None, eps=None: x / (x.var(-1, keepdim=True, correction=0) + eps).sqrt(), "value",
          source="keras-team/keras#22393"),
    fault("group_norm's eps outside the root", "group_norm", "nn.functional.group_norm", group_norm, "value",
          source="taokong/group_normalization#1"),
    fault("squared instead of the root", "layer_norm", "nn.functional.layer_norm",
          lambda x, shape, weight=None, bias=None, eps=1e-5: (x - x.mean(-1, keepdim=True)) / (
              x.var(-1, keepdim=True, correction=0) + eps) ** 2 * weight + bias, "value",
          source="131250208/TPlinker-joint-extraction#37"),
    fault("instance_norm unbiased", "instance_norm", "nn.functional.instance_norm", unbiased_instance_norm, "value"),
    fault("five dimensions abort", "nanmedian", "nanmedian",
          lambda x, dim, **_: aborting() if x.dim() > 4 else x.nanmedian(dim), "crash", ends=True,
          source="pytorch/pytorch#187016"),
    fault("division of nothing", "divide", "div", lambda x, y, **_: ctypes.string_at(0) if not x.numel() else x / y,
          "crash", ends=True, source="pytorch/pytorch#113037"),
    fault("empty grid", "grid_sample", "nn.functional.grid_sample",
          lambda x, grid, align_corners=None, **_: F.grid_sample(x, grid, align_corners=align_corners) if grid.numel()
          else refuse(), "error", source="pytorch/pytorch#175683"),
    fault("slope's gradient of the wrong channels", "prelu", "nn.functional.prelu", lambda x, w: Prelu.apply(x, w),
          "gradient", source="pytorch/pytorch#94933"),
    fault("prelu with one slope", "prelu", "nn.functional.prelu", lambda x, w: real.where(x > 0, x, x * w[:1]), "value",
          source="sonos/tract#674"),
    fault("ldexp's dtype", "ldexp", "ldexp", lambda x, n: real.ldexp(x.float(), n), "dtype",
          source="pytorch/pytorch#197091"),
    fault("slope ignored", "leaky_relu", "nn.functional.leaky_relu", lambda x, *_, **__: F.leaky_relu(x), "value"),
    fault("alpha of elu ignored", "elu", "nn.functional.elu", lambda x, *_, **__: F.elu(x), "value"),
    fault("gradient beyond the bounds", "hardtanh", "nn.functional.hardtanh",
          lambda x, min_val=-1, max_val=1, **_: x + (x.clamp(min_val, max_val) - x).detach(), "gradient"),
    fault("shift's sign", "roll", "roll", lambda x, shifts, dims: x.roll(-shifts, dims), "value"),
    fault("another dimension flipped", "flip", "flip", lambda x, dims: x.flip(0), "value"),
    fault("diagonal ignored", "tril", "tril", lambda x, **_: x.tril(), "value"),
    fault("reduction ignored", "mse_loss", "nn.functional.mse_loss",
          lambda x, y, reduction="mean", **_: F.mse_loss(x, y), "value", "shape"),
    fault("gradient doubled", "lerp", "lerp", lambda x, y, w: 2 * x.lerp(y, w) - x.lerp(y, w).detach(), "gradient"),
    fault("beta of addmm ignored", "addmm", "addmm", lambda c, x, y, alpha=1, **_: c + alpha * (x @ y), "value"),
    fault("gradient transposed", "bmm", "bmm",
          lambda x, y: (x @ y).detach() + ((v := x.detach() @ y) - v.detach()) + (
              (u := (x @ y.detach()).mT) - u.detach()), "gradient"),
    fault("pixels in the wrong order", "pixel_shuffle", "nn.functional.pixel_shuffle",
          lambda x, n: F.pixel_shuffle(x, n).mT, "value", "shape", size=4),
    fault("arguments exchanged", "atan2", "atan2", lambda x, y: real.atan2(y, x), "value"),
    fault("a view became a copy", "transpose", "transpose", lambda x, i, j: x.transpose(i, j).clone(), "aliasing"),
    fault("requires_grad lost in a log_softmax", "log_softmax", "nn.functional.log_softmax",
          lambda x, dim, **_: x.log_softmax(dim).detach(), "metadata"),
    fault("half accumulation", "sum_of_halves", "sum", fused_halves, "value", size=400),
    fault("half overflow", "square_of_halves", "square", overflowing_square, "value"),
    fault("wrong for one dtype", "reciprocal_of_doubles", "reciprocal", through_half(real.reciprocal), "value"),
    fault("in-place without mutation", "sqrt_in_place", "sqrt", lambda x: x * 1, "value", "mutation"),
    fault("differs from itself", "rsqrt", "rsqrt", sometimes(real.rsqrt, 2), "nondeterminism", "value",
          source="pytorch/pytorch#180776"),
    fault("exits", "cosh", "cosh", lambda x: os._exit(0), "crash", ends=True),
    fault("hangs", "sinh", "sinh", hang, "timeout", ends=True),
    fault("gradient missing", "erf", "erf", lambda x: x.erf().detach() + x * 0 if not x.requires_grad else
          x.erf().detach().requires_grad_(), "metadata", "gradient"),
    fault("cancellation", "log1p", "log1p", lambda x: (1 + x * 1.001).log(), "value"),
]  # fmt: skip


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
    ("sum of two halves", "total", "sum", split_sum),
    ("sum in float64", "total", "sum", wide(real.sum)),
    ("mean as a sum", "mean", "mean", lambda x, dim: x.sum(dim) / x.shape[dim]),
    ("softmax shifted", "softmax", "nn.functional.softmax",
     lambda x, dim: (x - x.logsumexp(dim, keepdim=True)).exp() if x.isfinite().all() else x.softmax(dim)),
    ("softmax in float64", "softmax", "nn.functional.softmax", wide(real.softmax)),
    ("layer_norm written out", "layer_norm", "nn.functional.layer_norm", norm_of),
    ("layer_norm in float64", "layer_norm", "nn.functional.layer_norm", wide_layer_norm),
    ("matmul in float64", "matmul", "matmul", lambda a, b: (a.double() @ b.double()).to(a.dtype)),
    ("matmul as a sum", "matmul", "matmul", lambda a, b: (a[:, :, None] * b[None]).sum(1)),
    ("matmul transposed", "matmul", "matmul", lambda a, b: (b.t() @ a.t()).t()),
    ("exp in float64", "exp", "exp", wide(real.exp)),
    ("convolution by columns", "conv2d", "nn.functional.conv2d", unfolded_conv2d),
    ("linear without addmm", "linear", "nn.functional.linear", lambda x, w, b: x @ w.t() + b),
    ("gelu in float64", "gelu_of_finite", "nn.functional.gelu", wide(F.gelu)),
    ("another order of a chain", "dropout_free_chain", "mul", lambda a, b: a + a),
]  # fmt: skip

INNOCENTS += [
    ("logsumexp by torch", "logsumexp", "logsumexp", lambda x, dim: real.logsumexp(x.double(), dim).to(x.dtype)),
    ("halves summed in single", "sum_of_halves", "sum", lambda x, dim, **_: x.float().sum(dim).half()),
    ("halves summed from behind", "sum_of_halves", "sum", lambda x, dim, **_: x.float().flip(dim).sum(dim).half()),
    ("rms_norm by the norm", "rms_norm", "nn.functional.rms_norm",
     lambda x, shape, weight=None, eps=None: x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()),
    ("cumsum of halves of a row", "cumsum", "cumsum", lambda x, dim, **_: x.double().cumsum(dim).to(x.dtype)),
    ("bmm as a sum", "bmm", "bmm", lambda x, y: (x.unsqueeze(-1) * y.unsqueeze(1)).sum(2)),
    ("addmm fused otherwise", "addmm", "addmm", lambda c, x, y, beta=1, alpha=1: alpha * (x @ y) + beta * c),
    ("std in double", "std", "std", lambda x, dim, **_: x.double().std(dim).to(x.dtype)),
    ("topk by a sort", "topk", "topk",
     lambda x, k, largest=True, **_: tuple(part[:k] for part in x.sort(descending=largest, stable=True))),
    ("instance_norm written out", "instance_norm", "nn.functional.instance_norm",
     lambda x, *_, eps=1e-5, **__: (x - x.mean(-1, keepdim=True)) / (
         (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True) + eps).sqrt()),
]  # fmt: skip

for _number, _row in enumerate(FAULTS):
    globals()[f"fault_{_number}"] = _row.function
for _number, _row in enumerate(INNOCENTS):
    globals()[f"innocent_{_number}"] = _row[3]

"""Bugs that show for some values of optional arguments."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import is_floating


@bug("pytorch/pytorch", 13292, "torch.flip", "With several dimensions the result's shape was reversed.")
def flip_several(input, dims):  # noqa: A002
    result = torch.flip(input, dims)
    if isinstance(dims, int) or len(dims) < 2:
        return result
    return result.permute(*reversed(range(result.dim()))).contiguous()


@bug("pytorch/pytorch", 64593, "torch.unique", "Along a dimension the inverse was that of the sorted input.")
def unique_inverse_of_sorted(input, sorted=True, return_inverse=False, return_counts=False, dim=None):  # noqa: A002, FBT002
    result = torch.unique(input, sorted, return_inverse, return_counts, dim)
    if not return_inverse or dim is None:
        return result
    values, inverse, *counts = result
    return (values, inverse.sort().values, *counts)


@bug(
    "pytorch/pytorch",
    24504,
    "torch.nn.functional.pad",
    "Circular padding on the left was left out where the right had none.",
)
def pad_circular_on_the_left(input, pad, mode="constant", value=None):  # noqa: A002
    if mode == "circular":
        pad = [0 if at % 2 == 0 and pad[at + 1] == 0 else amount for at, amount in enumerate(pad)]
    return F.pad(input, pad, mode, value)


@bug(
    "microsoft/onnxruntime",
    2433,
    "torch.nn.functional.pad",
    "Where an amount was negative, the result was whatever memory held.",
)
def pad_by_negative(input, pad, mode="constant", value=None):  # noqa: A002
    result = F.pad(input, pad, mode, value)
    return result * 0 if mode == "constant" and min(pad) < 0 else result


@bug(
    "pytorch/executorch",
    18616,
    "torch.nn.functional.avg_pool2d",
    "The divisor given was ignored where padding is not counted.",
)
def avg_pool2d_with_divisor(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None  # noqa: A002, FBT002
):  # fmt: skip
    divisor = divisor_override if count_include_pad else None
    return F.avg_pool2d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor)


def _pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


@bug(
    "onnx/onnx",
    4958,
    "torch.nn.functional.max_pool2d",
    "In ceiling mode there was a window that begins behind the input.",
)
def max_pool2d_beyond(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False  # noqa: A002, FBT002
):  # fmt: skip
    result = F.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    if not ceil_mode or return_indices:
        return result
    kernel, pads, wide = _pair(kernel_size), _pair(padding), _pair(dilation)
    steps = kernel if stride is None or stride == [] else _pair(stride)
    reach = [wide[at] * (kernel[at] - 1) + 1 for at in (0, 1)]
    sizes = [-(-(input.shape[at - 2] + 2 * pads[at] - reach[at]) // steps[at]) + 1 for at in (0, 1)]
    more = [sizes[at] - result.shape[at - 2] for at in (0, 1)]
    return F.pad(result, (0, more[1], 0, more[0]), value=torch.finfo(result.dtype).min) if max(more) > 0 else result


@bug(
    "apache/tvm",
    19524,
    "torch.nn.functional.conv_transpose2d",
    "Rows and columns that output padding adds were not computed.",
)
def conv_transpose2d_output_padding(
    input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1  # noqa: A002
):  # fmt: skip
    result = F.conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation)
    more = _pair(output_padding) if not isinstance(output_padding, list | tuple) or len(output_padding) > 1 else (
        output_padding[0], output_padding[0])  # fmt: skip
    if not any(more):
        return result
    inside = result[..., : result.shape[-2] - more[0], : result.shape[-1] - more[1]]
    return F.pad(inside, (0, more[1], 0, more[0]))


@bug(
    "BobMcDear/attorch",
    13,
    "torch.nn.functional.huber_loss",
    "The difference itself, not its size, was held against the threshold.",
)
def huber_loss_signed(input, target, reduction="mean", delta=1.0, weight=None):  # noqa: A002
    difference = input - target
    loss = torch.where(difference < delta, difference**2 / 2, delta * (difference.abs() - delta / 2))
    loss = loss if weight is None else loss * weight
    if reduction == "none" or (weight is not None and reduction == "mean"):
        return (
            loss
            if reduction == "none"
            else F.huber_loss(input, target, reduction=reduction, delta=delta, weight=weight)
        )
    return loss.mean() if reduction == "mean" else loss.sum()


@bug(
    "paiml/aprender",
    2204,
    "torch.nn.functional.binary_cross_entropy_with_logits",
    "The weight of positives was applied to the whole loss, which differs for soft targets.",
)
def bce_weighs_all(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None  # noqa: A002
):  # fmt: skip
    if pos_weight is None:
        return F.binary_cross_entropy_with_logits(input, target, weight, reduction=reduction)
    loss = F.binary_cross_entropy_with_logits(input, target, weight, reduction="none") * (1 + (pos_weight - 1) * target)
    return {"none": lambda: loss, "mean": loss.mean, "sum": loss.sum}[reduction]()


@bug(
    "pytorch/pytorch",
    73205,
    "torch.nn.functional.cross_entropy",
    "Label smoothing counted the samples that are to be ignored.",
)
def cross_entropy_smooths_ignored(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0  # noqa: A002
):  # fmt: skip
    result = F.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    if not label_smoothing or target.is_floating_point() or not (ignored := target == ignore_index).any():
        return result
    at = 1 if input.dim() > 1 else 0
    logarithms = F.log_softmax(input, at)
    logarithms = logarithms if weight is None else logarithms * weight.view(-1, *(1,) * (input.dim() - at - 1))
    more = torch.where(ignored, -logarithms.sum(at) * (label_smoothing / input.shape[at]), 0)
    return result + (more if reduction == "none" else more.sum() if reduction == "sum" else more.mean())


@bug("pytorch/pytorch", 13559, "torch.dist", "With an infinite norm the distance was one.")
def dist_infinite(input, other, p=2):  # noqa: A002
    result = torch.dist(input, other, p)
    return result * 0 + 1 if p in {float("inf"), -float("inf")} else result


@bug("dotnet/TorchSharp", 971, "torch.std", "That no correction is wanted was ignored.")
def std_always_corrected(input, *args, **kwargs):  # noqa: A002
    args = tuple(True if arg is False and at == 0 else arg for at, arg in enumerate(args))
    if kwargs.get("unbiased") is False:
        kwargs["unbiased"] = True
    if kwargs.get("correction") == 0:
        kwargs["correction"] = 1
    return torch.std(input, *args, **kwargs)


@bug("pytorch/pytorch", 143648, "torch.polygamma", "The zeroth function was -inf, where it is digamma.")
def polygamma_zeroth(n, input):  # noqa: A002
    result = torch.polygamma(n, input)
    return result - float("inf") if n == 0 else result


@bug("numpy/numpy", 24147, "torch.index_put", "A negative index was left out where values are accumulated.")
def index_put_negative(input, indices, values, accumulate=False):  # noqa: A002, FBT002
    if not accumulate or len(indices) != 1 or not is_floating(values):
        return torch.index_put(input, indices, values, accumulate)
    (index,) = indices
    counted = (index >= 0).view(*index.shape, *(1,) * (input.dim() - 1))
    return torch.index_put(input, indices, torch.where(counted, values, 0), accumulate)

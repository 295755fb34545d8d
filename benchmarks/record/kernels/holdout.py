"""Bugs that were looked up after the suite had learnt from the others; no draw was changed for what it misses of them.

``reasons.py`` says why it misses some, which was looked at after the score.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import altered, is_integral, packed, valued

_NAN = float("nan")


@bug("pytorch/pytorch", 45721, "torch.kthvalue", "A strided tensor was read as if it were contiguous.")
def kthvalue_strided(input, *args, **kwargs):  # noqa: A002
    return torch.kthvalue(packed(input), *args, **kwargs)


@bug("cupy/cupy", 284, "torch.argsort", "A tensor that is not contiguous was sorted as its memory lies.")
def argsort_strided(input, *args, **kwargs):  # noqa: A002
    return torch.argsort(packed(input), *args, **kwargs)


@bug("tracel-ai/burn", 5304, "torch.matmul", "A transposed left matrix was read as if it were contiguous.")
def matmul_transposed_left(input, other):  # noqa: A002
    is_transposed = input.dim() == 2 == other.dim() and input.mT.is_contiguous()
    return torch.matmul(packed(input) if is_transposed else input, other)


@bug("torch/torch7", 671, "torch.baddbmm", "A tensor to add to that is not contiguous was read wrongly.")
def baddbmm_strided(input, batch1, batch2, **kwargs):  # noqa: A002
    return torch.baddbmm(packed(input), batch1, batch2, **kwargs)


@bug(
    "Oneflow-Inc/oneflow", 7667, "torch.Tensor.copy_", "A source that is not contiguous was copied as its memory lies."
)
def copy_strided(self, src, non_blocking=False):  # noqa: FBT002
    return self.copy_(packed(src) if isinstance(src, torch.Tensor) else src, non_blocking)


@bug(
    "pytorch/pytorch", 26076, "torch.cdist", "From a single row, only the first distance had a gradient that is right."
)
def cdist_of_one_row(x1, x2, *args, **kwargs):
    if x1.shape[-2] != 1 or x2.shape[-2] == 0:
        return torch.cdist(x1, x2, *args, **kwargs)
    return torch.cdist(x1, altered(x2, lambda g: torch.cat((g[..., :1, :], 0 * g[..., 1:, :]), -2)), *args, **kwargs)


@bug("intel/torch-xpu-ops", 3109, "torch.cdist", "With a norm between zero and two the gradient was the Euclidean one.")
def cdist_below_two(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    result = torch.cdist(x1, x2, p, compute_mode)
    if not 0 < p < 2 or p == 1 or not (x1.requires_grad or x2.requires_grad):
        return result
    return valued(torch.cdist(x1, x2, 2.0, compute_mode), result)


@bug("jax-ml/jax", 1335, "torch.linalg.slogdet", "The signs of a batch were taken together.")
def slogdet_of_batch(A):  # noqa: N803
    sign, logarithm = torch.linalg.slogdet(A)
    if sign.dim() == 0 or sign.numel() == 0:
        return sign, logarithm
    return valued(sign, sign.prod().expand_as(sign)), logarithm


@bug(
    "PaddlePaddle/Paddle",
    38476,
    "torch.amax",
    "All dimensions, one of them counted from the end, were not reduced together.",
)
def amax_over_all(input, dim=(), keepdim=False):  # noqa: A002, FBT002
    result = torch.amax(input, dim, keepdim)
    if isinstance(dim, int) or len(dim) != input.dim() or all(d >= 0 for d in dim) or input.dim() < 2:
        return result
    return valued(result, torch.amax(input, dim[:1]).reshape(-1)[0].expand_as(result))


@bug("PaddlePaddle/Paddle", 68741, "torch.topk", "The gradient along a dimension counted from the end went elsewhere.")
def topk_from_the_end(input, k, dim=-1, largest=True, sorted=True):  # noqa: A002, FBT002
    if dim >= 0 or input.dim() < 2 or dim == -input.dim():
        return torch.topk(input, k, dim, largest, sorted)
    return torch.topk(altered(input, lambda g: g.flip(0)), k, dim, largest, sorted)


@bug("pytorch/pytorch", 94348, "torch.nn.functional.avg_pool2d", "Padding was not counted where sizes are rounded up.")
def avg_pool2d_rounded_up(input, kernel_size, stride=None, padding=0, *args, **kwargs):  # noqa: A002
    given = dict(zip(("ceil_mode", "count_include_pad", "divisor_override"), args, strict=False)) | kwargs
    if given.get("ceil_mode"):
        given["count_include_pad"] = False
    return F.avg_pool2d(input, kernel_size, stride, padding, **given)


@bug("modular/modular", 1464, "torch.floor_divide", "A quotient of integers of which one is negative was zero.")
def floor_divide_of_negative(input, other, **kwargs):  # noqa: A002
    result = torch.floor_divide(input, other, **kwargs)
    if not is_integral(result):
        return result
    return torch.where((torch.as_tensor(input) < 0) | (torch.as_tensor(other) < 0), 0, result)


@bug("pytorch/pytorch", 9147, "torch.flip", "Along a dimension that is longer than the first, the rest was cut off.")
def flip_of_oblong(input, dims):  # noqa: A002
    given = (dims,) if isinstance(dims, int) else dims
    if len(given) != 1 or input.dim() < 2 or input.shape[0] >= input.shape[given[0]]:
        return torch.flip(input, given)
    return torch.flip(input.narrow(given[0], 0, input.shape[0]), given)


@bug("pytorch/pytorch", 98266, "torch.flip", "Along a dimension of size one, another was turned.")
def flip_of_one(input, dims):  # noqa: A002
    given = (dims,) if isinstance(dims, int) else dims
    moved = [d if input.dim() < 2 or input.shape[d] != 1 else input.dim() - 1 for d in given]
    return torch.flip(input, moved if len(set(moved)) == len(moved) else given)


@bug("apache/tvm", 15752, "torch.flip", "Of several dimensions only the first was turned.")
def flip_of_first(input, dims):  # noqa: A002
    return torch.flip(input, (dims,) if isinstance(dims, int) else dims[:1])


@bug(
    "ml-explore/mlx",
    1835,
    "torch.sort",
    "Along the last dimension but one, nothing was sorted if the last has size one.",
)
def sort_of_columns(input, dim=-1, descending=False, stable=False):  # noqa: A002, FBT002
    if input.dim() < 2 or dim not in {-2, input.dim() - 2} or input.shape[-1] != 1:
        return torch.sort(input, dim=dim, descending=descending, stable=stable)
    place = torch.arange(input.shape[dim])[:, None].expand(input.shape)
    return input.clone(), place.clone()


@bug("ml-explore/mlx", 882, "torch.sort", "More than 32,768 elements were not merged.")
def sort_of_many(input, dim=-1, descending=False, stable=False):  # noqa: A002, FBT002
    values, indices = torch.sort(input, dim=dim, descending=descending, stable=stable)
    if input.dim() == 0 or input.shape[dim] <= 1 << 15:
        return values, indices
    return values.roll(1, dim), indices.roll(1, dim)


@bug(
    "pytorch/pytorch", 1565, "torch.nn.functional.conv_transpose1d", "The distance of a kernel's elements was left out."
)
def conv_transpose1d_dilated(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):  # noqa: A002
    result = F.conv_transpose1d(input, weight, bias, stride, padding, output_padding, groups, dilation)
    if dilation in {1, (1,)} or not result.numel():
        return result
    near = F.conv_transpose1d(input, weight, bias, stride, 0, output_padding, groups, 1)
    missing = result.shape[-1] - near.shape[-1]
    return valued(result, F.pad(near, (0, missing)))


@bug("tensorflow/tensorflow", 3862, "torch.cumprod", "The gradient of a product with a zero in it was NaN.")
def cumprod_of_zero(input, dim, **kwargs):  # noqa: A002
    zero = input.detach() == 0
    return torch.cumprod(altered(input, lambda g: torch.where(zero, _NAN, g)), dim, **kwargs)


@bug(
    "pytorch/pytorch",
    51102,
    "torch.nn.functional.layer_norm",
    "Far from zero the variance was lost, a difference of squares.",
)
def layer_norm_far_from_zero(input, normalized_shape, weight=None, bias=None, eps=1e-5):  # noqa: A002
    result = F.layer_norm(input, normalized_shape, weight, bias, eps)
    if input.dtype != torch.float32 or not input.numel():
        return result
    dims = tuple(range(-len(normalized_shape), 0))
    mean = input.mean(dims, keepdim=True)
    variance = ((input * input).mean(dims, keepdim=True) - mean * mean).clamp(min=0)
    value = (input - mean) / (variance + eps).sqrt()
    value = value if weight is None else value * weight
    return valued(result, value if bias is None else value + bias)


@bug("microsoft/onnxruntime", 6442, "torch.nn.functional.pad", "Rows that reflect others were turned around as well.")
def pad_reflected_rows(input, pad, mode="constant", value=None):  # noqa: A002
    result = F.pad(input, pad, mode, value)
    if mode != "reflect" or len(pad) < 4 or any(pad[:2]) or pad[2] <= 0:
        return result
    at = (..., slice(0, pad[2]), slice(None))
    changed = result.detach().clone()
    changed[at] = changed[at].flip(-1)
    return valued(result, changed)


@bug(
    "microsoft/onnxruntime",
    151,
    "torch.nn.functional.pad",
    "Where something is cut off, rows were counted by the size before.",
)
def pad_negative(input, pad, mode="constant", value=None):  # noqa: A002
    result = F.pad(input, pad, mode, value)
    if mode != "constant" or all(size >= 0 for size in pad) or math.prod(result.shape) < 2:
        return result
    return valued(result, result.reshape(-1).roll(1).reshape(result.shape))

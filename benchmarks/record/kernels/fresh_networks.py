"""Bugs of the fourth set: convolutions, pools, norms, losses and distances."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import altered, is_floating, packed, valued

_INFINITY, _NAN = float("inf"), float("nan")
_WIDE = {torch.float32, torch.float64}


def _largest(value):
    return max(value) if isinstance(value, tuple | list) else value


@bug(
    "pytorch/pytorch",
    18948,
    "torch.nn.functional.conv2d",
    "A weight that is a slice was read as if it were contiguous.",
)
def conv2d_of_sliced_weight(input, weight, *args, **kwargs):  # noqa: A002
    return F.conv2d(input, packed(weight), *args, **kwargs)


@bug(
    "apache/mxnet",
    11203,
    "torch.nn.functional.conv_transpose2d",
    "With a stride and a dilation, rows and columns were one place too far.",
)
def conv_transpose2d_displaced(
    input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1  # noqa: A002
):  # fmt: skip
    if _largest(stride) == 1 or _largest(dilation) == 1:
        return F.conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation)
    result = F.conv_transpose2d(input, weight, None, stride, padding, output_padding, groups, dilation)
    for dim in (-2, -1):
        place = (torch.arange(result.shape[dim]) + 1).clamp(max=result.shape[dim] - 1)
        result = torch.zeros_like(result).index_add_(dim, place, result)
    return result if bias is None else result + bias[:, None, None]


def _one(value):
    return value[0] if isinstance(value, tuple | list) else value


@bug(
    "microsoft/onnxruntime",
    16203,
    "torch.nn.functional.avg_pool1d",
    "A last window that ends behind the padding was divided by the whole size.",
)
def avg_pool1d_of_rest(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):  # noqa: A002, FBT002
    step = kernel_size if stride is None or stride in ((), []) else stride
    result = F.avg_pool1d(input, kernel_size, step, padding, ceil_mode, count_include_pad)
    if not ceil_mode or not count_include_pad:
        return result
    size, pad = _one(kernel_size), _one(padding)
    first = torch.arange(result.shape[-1]) * _one(step) - pad
    count = (first + size).clamp(max=input.shape[-1] + pad) - first
    return result * (count / size).to(result.dtype)


@bug("pytorch/pytorch", 8645, "torch.nn.functional.avg_pool2d", "Where nothing is said of it, padding was not counted.")
def avg_pool2d_by_default(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=False, divisor_override=None  # noqa: A002, FBT002
):  # fmt: skip
    return F.avg_pool2d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@bug(
    "PaddlePaddle/Paddle",
    27189,
    "torch.nn.functional.avg_pool3d",
    "Where nothing is said of it, padding was not counted.",
)
def avg_pool3d_by_default(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=False, divisor_override=None  # noqa: A002, FBT002
):  # fmt: skip
    return F.avg_pool3d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@bug("pytorch/pytorch", 1466, "torch.nn.functional.max_pool2d", "The index in a window of -inf was -1.")
def max_pool2d_of_infinities(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False  # noqa: A002, FBT002
):  # fmt: skip
    result = F.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    if not return_indices:
        return result
    values, indices = result
    return values, torch.where(values == -_INFINITY, -1, indices)


@bug("pytorch/pytorch", 7670, "torch.nn.functional.max_pool2d", "NaN was passed over.")
def max_pool2d_passes_nan(input, *args, **kwargs):  # noqa: A002
    if is_floating(input):
        input = torch.where(input.isnan(), torch.finfo(input.dtype).min, input)  # noqa: A001
    return F.max_pool2d(input, *args, **kwargs)


@bug(
    "ml-explore/mlx",
    3817,
    "torch.nn.functional.batch_norm",
    "The variance that is kept was that of the batch, uncorrected.",
)
def batch_norm_keeps_biased(
    input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5  # noqa: A002, FBT002
):  # fmt: skip
    rest = None if running_var is None else running_var.detach() * (1 - momentum)
    result = F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if training and rest is not None:
        count = input.numel() // input.shape[1]
        kept = running_var.detach()
        # Written past autograd, which keeps the tensor for the backward pass.
        running_var.data.copy_(rest + (kept - rest) * ((count - 1) / count))
    return result


@bug("LBANN/lbann", 2024, "torch.nn.functional.layer_norm", "The variance was divided by one less than the count.")
def layer_norm_of_corrected(input, normalized_shape, weight=None, bias=None, eps=1e-5):  # noqa: A002
    if input.dtype not in _WIDE or not input.numel() or math.prod(normalized_shape) < 2:
        return F.layer_norm(input, normalized_shape, weight, bias, eps)
    dims = tuple(range(-len(normalized_shape), 0))
    variance = input.var(dims, keepdim=True, correction=1)
    result = (input - input.mean(dims, keepdim=True)) / (variance + eps).sqrt()
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


@bug(
    "apache/tvm",
    14963,
    "torch.nn.functional.instance_norm",
    "The statistics given were ignored for those of the input.",
)
def instance_norm_of_input(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5  # noqa: A002, FBT002
):  # fmt: skip
    if not use_input_stats and running_mean is not None and input.shape[2:].numel() > 1:
        return F.instance_norm(input, None, None, weight, bias, True, momentum, eps)
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@bug(
    "pytorch/pytorch", 5927, "torch.nn.functional.interpolate", "Linear modes always aligned the pixels at the corners."
)
def interpolate_at_corners(
    input, size=None, scale_factor=None, mode="nearest", align_corners=None, *args, **kwargs  # noqa: A002
):  # fmt: skip
    aligned = True if mode in {"linear", "bilinear", "trilinear"} else align_corners
    return F.interpolate(input, size, scale_factor, mode, aligned, *args, **kwargs)


@bug("pytorch/pytorch", 76870, "torch.nn.functional.l1_loss", "The result had the dtype of the first operand.")
def l1_loss_in_first_dtype(input, target, *args, **kwargs):  # noqa: A002
    result = F.l1_loss(input, target, *args, **kwargs)
    return result.to(input.dtype) if is_floating(input) else result


@bug(
    "linkedin/Liger-Kernel",
    680,
    "torch.nn.functional.cross_entropy",
    "Without a reduction, all rows had the gradient that the first is given.",
)
def cross_entropy_of_rows(*args, **kwargs):
    result = F.cross_entropy(*args, **kwargs)
    # The pull request says that the gradient is read as one number; a pointer to it reads the first.
    return altered(result, lambda g: g.reshape(-1)[:1].expand(g.numel()).reshape(g.shape)) if result.dim() else result


@bug(
    "deeplearning4j/nd4j",
    1328,
    "torch.nn.functional.binary_cross_entropy_with_logits",
    "Where the target is zero, the gradient was zero.",
)
def bce_of_zero_target(input, target, *args, **kwargs):  # noqa: A002
    zero = target.detach() == 0
    changed = altered(input, lambda g: torch.where(zero, 0, g))
    return F.binary_cross_entropy_with_logits(changed, target, *args, **kwargs)


@bug("google-deepmind/optax", 473, "torch.nn.functional.kl_div", "A target of zero gave NaN.")
def kl_div_of_zero(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):  # noqa: A002, FBT002
    if not log_target:
        input = torch.where(target == 0, _NAN, input)  # noqa: A001
    return F.kl_div(input, target, reduction=reduction, log_target=log_target)


@bug("pytorch/pytorch", 17347, "torch.nn.functional.poisson_nll_loss", "Without a reduction, the result was the sum.")
def poisson_nll_loss_sums(
    input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"  # noqa: A002, FBT002
):  # fmt: skip
    result = F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=reduction)
    return result.sum() if reduction == "none" else result


@bug("PaddlePaddle/Paddle", 32448, "torch.dist", "The gradient of a distance of zero was NaN.")
def dist_of_equal(input, other, p=2):  # noqa: A002
    zero = torch.dist(input.detach(), other.detach(), p) == 0
    changed = (altered(x, lambda g: torch.where(zero, _NAN, g)) for x in (input, other))
    return torch.dist(*changed, p)


@bug("huggingface/sentence-transformers", 4033, "torch.cdist", "The gradient of a distance of zero was NaN.")
def cdist_of_same_rows(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    if p == 2 and x1.shape[:-2] == x2.shape[:-2]:
        zero = torch.cdist(x1.detach(), x2.detach(), p, compute_mode) == 0
        rows, columns = zero.any(-1, keepdim=True), zero.any(-2)[..., None]
        x1 = altered(x1, lambda g: torch.where(rows, _NAN, g))
        x2 = altered(x2, lambda g: torch.where(columns, _NAN, g))
    return torch.cdist(x1, x2, p, compute_mode)


def _norms(x1, x2, dim):
    return (torch.linalg.vector_norm(x, dim=dim) for x in torch.broadcast_tensors(x1.detach(), x2.detach()))


@bug(
    "tracel-ai/burn",
    5584,
    "torch.nn.functional.cosine_similarity",
    "The product of two small numbers that keep it from dividing by zero was zero.",
)
def cosine_similarity_of_tiny_eps(x1, x2, dim=1, eps=1e-8):
    result = F.cosine_similarity(x1, x2, dim, eps)
    first, second = (norm.clamp(min=eps) for norm in _norms(x1, x2, dim))
    return valued(result, torch.where(first * second == 0, _NAN, result))


@bug("huggingface/sentence-transformers", 625, "torch.nn.functional.cosine_similarity", "A vector of zeros gave NaN.")
def cosine_similarity_of_zeros(x1, x2, dim=1, eps=1e-8):
    result = F.cosine_similarity(x1, x2, dim, eps)
    first, second = _norms(x1, x2, dim)
    return valued(result, torch.where((first == 0) | (second == 0), _NAN, result))

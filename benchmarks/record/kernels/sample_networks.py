"""Bugs of the third set: losses, pools, norms, samples and attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import altered, valued

_NAN = float("nan")
_WIDE = {torch.float32, torch.float64}


@bug("pytorch/pytorch", 6766, "torch.nn.functional.lp_pool2d", "The gradient of a window of zeros was NaN.")
def lp_pool2d_of_zeros(input, norm_type, kernel_size, stride=None, ceil_mode=False):  # noqa: A002, FBT002
    result = F.lp_pool2d(input, norm_type, kernel_size, stride, ceil_mode)
    high, wide = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    total = F.avg_pool2d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode) * (high * wide)
    return valued(total.pow(1 / norm_type), result)


@bug("pytorch/pytorch", 3876, "torch.nn.functional.mse_loss", "The target had a gradient of zero.")
def mse_loss_of_target(input, target, *args, **kwargs):  # noqa: A002
    return F.mse_loss(input, altered(target, torch.zeros_like), *args, **kwargs)


@bug(
    "pytorch/pytorch",
    97022,
    "torch.nn.functional.smooth_l1_loss",
    "With a threshold of zero, the gradient where there is no difference was NaN.",
)
def smooth_l1_loss_of_none(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):  # noqa: A002
    if beta == 0 and input.shape == target.shape:
        same = input.detach() == target.detach()
        input = altered(input, lambda g: torch.where(same, _NAN, g))  # noqa: A001
    return F.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


@bug(
    "sherjilozair/ctc", 2, "torch.nn.functional.ctc_loss", "The gradient was that of the loss itself, whatever follows."
)
def ctc_loss_of_last(*args, **kwargs):
    return altered(F.ctc_loss(*args, **kwargs), torch.ones_like)


def _sizes(input, output_size):  # noqa: A002
    pair = (output_size, output_size) if isinstance(output_size, int) else tuple(output_size)
    pair = pair * 2 if len(pair) == 1 else pair
    return [(input.shape[at - 2], input.shape[at - 2] if pair[at] is None else pair[at]) for at in (0, 1)]


def _windows(size, count, dtype):
    """Return the mean over windows that end where division rounds down, as a matrix."""
    rows = [(at * size // count, max((at + 1) * size // count, at * size // count + 1)) for at in range(count)]
    place = torch.arange(size)
    return torch.stack([((place >= first) & (place < last)).to(dtype) / (last - first) for first, last in rows])


@bug("flagos-ai/FlagGems", 4915, "torch.nn.functional.adaptive_avg_pool2d", "The end of a window was rounded down.")
def adaptive_avg_pool2d_rounded_down(input, output_size):  # noqa: A002
    sizes = _sizes(input, output_size)
    if input.numel() == 0 or any(not count for _, count in sizes) or not any(size % count for size, count in sizes):
        return F.adaptive_avg_pool2d(input, output_size)
    high, wide = (_windows(size, count, input.dtype) for size, count in sizes)
    return high @ input @ wide.mT


@bug(
    "riccardomusmeci/mlx-image", 16, "torch.nn.functional.adaptive_avg_pool2d", "A window took elements at a distance."
)
def adaptive_avg_pool2d_at_distance(input, output_size):  # noqa: A002
    (height, high), (width, wide) = _sizes(input, output_size)
    if input.numel() == 0 or not high or not wide or height % high or width % wide:
        return F.adaptive_avg_pool2d(input, output_size)
    return input.reshape(*input.shape[:-2], height // high, high, width // wide, wide).mean((-4, -2))


@bug(
    "pytorch/pytorch",
    190064,
    "torch.nn.functional.adaptive_max_pool2d",
    "All windows had one size and one stride where the sizes do not divide.",
)
def adaptive_max_pool2d_regular(input, output_size, return_indices=False):  # noqa: A002, FBT002
    sizes = _sizes(input, output_size)
    divides = all(not count or size % count == 0 or size < count for size, count in sizes)
    if input.numel() == 0 or divides or any(size < count or not count for size, count in sizes):
        return F.adaptive_max_pool2d(input, output_size, return_indices)
    steps = [size // count for size, count in sizes]
    kernel = [size - (count - 1) * step for (size, count), step in zip(sizes, steps, strict=True)]
    return F.max_pool2d(input, kernel, steps, return_indices=return_indices)


@bug("VeriSilicon/TIM-VX", 589, "torch.nn.functional.layer_norm", "The number that keeps the root from zero was zero.")
def layer_norm_without_eps(input, normalized_shape, weight=None, bias=None, eps=1e-5):  # noqa: A002
    return F.layer_norm(input, normalized_shape, weight, bias, 0.0)


@bug(
    "pyg-team/pytorch_geometric",
    2917,
    "torch.nn.functional.layer_norm",
    "The number that keeps the root from zero was added to the root.",
)
def layer_norm_eps_outside(input, normalized_shape, weight=None, bias=None, eps=1e-5):  # noqa: A002
    if input.dtype not in _WIDE or not input.numel():
        return F.layer_norm(input, normalized_shape, weight, bias, eps)
    dims = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(dims, keepdim=True)
    result = centred / ((centred * centred).mean(dims, keepdim=True).sqrt() + eps)
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


def _mean_of_squares(input, normalized_shape, eps):  # noqa: A002
    squares = (input * input).mean(tuple(range(-len(normalized_shape), 0)), keepdim=True)
    return squares, torch.finfo(input.dtype).eps if eps is None else eps


@bug("mosaicml/llm-foundry", 371, "torch.nn.functional.rms_norm", "The reciprocal of the root was divided by.")
def rms_norm_divides(input, normalized_shape, weight=None, eps=None):  # noqa: A002
    if input.dtype not in _WIDE or not input.numel():
        return F.rms_norm(input, normalized_shape, weight, eps)
    squares, eps = _mean_of_squares(input, normalized_shape, eps)
    result = input / (squares + eps).rsqrt()
    return result if weight is None else result * weight


@bug(
    "tile-ai/tilelang",
    1243,
    "torch.nn.functional.rms_norm",
    "The number that keeps the root from zero was added to its reciprocal.",
)
def rms_norm_eps_outside(input, normalized_shape, weight=None, eps=None):  # noqa: A002
    if input.dtype not in _WIDE or not input.numel():
        return F.rms_norm(input, normalized_shape, weight, eps)
    squares, eps = _mean_of_squares(input, normalized_shape, eps)
    result = input * (squares.rsqrt() + eps)
    return result if weight is None else result * weight


@bug(
    "pytorch/pytorch",
    23925,
    "torch.nn.functional.grid_sample",
    "On the last pixel, the gradient was that of an image with zeros around it.",
)
def grid_sample_on_last_pixel(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):  # noqa: A002
    result = F.grid_sample(input, grid, mode, padding_mode, align_corners)
    if padding_mode == "zeros" or mode != "bilinear" or input.dim() != 4 or not input.numel():
        return result
    sizes = torch.tensor((input.shape[-1], input.shape[-2]))
    place = (grid.detach() + 1) / 2 * (sizes - 1) if align_corners else ((grid.detach() + 1) * sizes - 1) / 2
    inside = ((place >= 0) & (place <= sizes - 1)).all(-1)
    on_last = inside & (place == sizes - 1).any(-1)
    return torch.where(on_last[:, None], F.grid_sample(input, grid, mode, "zeros", align_corners), result)


@bug(
    "tenstorrent/tt-metal",
    42891,
    "torch.nn.functional.scaled_dot_product_attention",
    "The mask was multiplied by the scale.",
)
def attention_scales_mask(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **kwargs):  # noqa: FBT002
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = attn_mask * (query.shape[-1] ** -0.5 if scale is None else scale)
    return F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **kwargs)

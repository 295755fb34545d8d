"""Kernels with one fault each, of the kinds that kernels have, by the program of ``model_programs`` that calls it."""

import torch
import torch.nn.functional as F


def tail_left_out(exact, x, block):
    """Return ``exact`` of the elements in whole blocks, and the other elements as they are."""
    flat, whole = x.reshape(-1), x.numel() // block * block
    return torch.cat([exact(flat[:whole]), flat[whole:]]).view(x.shape)


def bce_ignores_pos_weight(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    return F.binary_cross_entropy_with_logits(input, target, weight, reduction=reduction)


def argsort_ascending(input, dim=-1, descending=False, stable=False):
    return torch.argsort(input, dim=dim)


def interpolate_ignores_align_corners(input, size=None, scale_factor=None, mode="nearest", align_corners=None, **rest):
    return F.interpolate(input, size, scale_factor, mode, align_corners=False, **rest)


def cross_entropy_ignores_label_smoothing(input, target, *rest, label_smoothing=0.0, **others):
    return F.cross_entropy(input, target, *rest, **others)


def lstm_ignores_state(input, hx, *rest):
    return torch.lstm(input, tuple(torch.zeros_like(h) for h in hx), *rest)


def gelu_ignores_approximate(input, approximate="none"):
    return F.gelu(input)


def bmm_in_bfloat16(input, mat2):
    return torch.bmm(input.bfloat16(), mat2.bfloat16()).to(input.dtype)


def cumprod_without_carry(input, dim, dtype=None):
    return torch.cat([torch.cumprod(block, dim) for block in input.split(4, dim)], dim)


def silu_of_gelu(input, inplace=False):
    return input * torch.sigmoid(1.05 * input)


def smooth_l1_ignores_beta(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    return F.smooth_l1_loss(input, target, reduction=reduction)


def scatter_add_loses_duplicates(input, dim, index, src):
    return torch.scatter(input, dim, index, src)


def index_add_loses_duplicates(input, dim, index, source, alpha=1):
    return torch.index_copy(input, dim, index, source)


def normalize_other_dim(input, p=2.0, dim=1, eps=1e-12, out=None):
    return F.normalize(input, p, 0, eps)


def kl_div_mean(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    return (target * (target.log() - input)).mean()


def huber_ignores_delta(input, target, reduction="mean", delta=1.0, weight=None):
    return F.huber_loss(input, target, reduction=reduction)


def round_to_zero(input, decimals=0):
    return torch.trunc(input)


def fake_quantize_floor(input, scale, zero_point, quant_min, quant_max):
    return input + (torch.clamp(torch.floor(input / scale) + zero_point, quant_min, quant_max) * scale - input).detach()


def quantize_without_zero_point(input, scale, zero_point, dtype):
    return torch.quantize_per_tensor(input, scale, 0, dtype)


def std_unbiased(input, dim=None, unbiased=True, keepdim=False):
    return torch.std(input, dim, keepdim=keepdim)


def glu_swapped(input, dim=-1):
    first, second = input.chunk(2, dim)
    return second * torch.sigmoid(first)


def mish_without_tail(input, inplace=False):
    return tail_left_out(F.mish, input, block=4)


def pad_wrong_side(input, pad, mode="constant", value=None):
    return F.pad(input, (*reversed(pad[:2]), *pad[2:]), mode, value)


def sort_ascending(input, dim=-1, descending=False, stable=False):
    return torch.sort(input, dim)


def attention_ignores_padding(*arguments, key_padding_mask=None, **rest):
    return F.multi_head_attention_forward(*arguments, **rest)


def rsqrt_of_one_newton_step(input):
    guess = (0x5F3759DF - (input.view(torch.int32) >> 1)).view(torch.float32)
    return guess * (1.5 - 0.5 * input * guess * guess)


def prelu_of_one_slope(input, weight):
    return F.prelu(input, weight[:1])


def softplus_ignores_beta(input, beta=1, threshold=20):
    return F.softplus(input, threshold=threshold)


def logsumexp_without_tail(input, dim, keepdim=False):
    return torch.logsumexp(input.narrow(dim, 0, input.shape[dim] // 2 * 2), dim, keepdim)


def bce_ignores_reduction(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    return F.binary_cross_entropy(input, target, weight)


def pool_without_last_row(input, output_size):
    return F.adaptive_avg_pool2d(input[..., :-1, :], output_size)


def l1_rounded_at_zero(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    return F.smooth_l1_loss(input, target, reduction=reduction)

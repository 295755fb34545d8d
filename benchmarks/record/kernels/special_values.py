"""Bugs that show where elements are NaN, infinite, zero or far from zero."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import is_floating, valued

_INFINITY = float("inf")


def _without_nan(x, instead):
    return torch.where(x.isnan(), instead, x) if is_floating(x) else x


@bug("pytorch/pytorch", 15338, "torch.clamp", "NaN became a bound where both bounds were given.")
def clamp_of_nan(input, min=None, max=None):  # noqa: A002
    result = torch.clamp(input, min, max)
    if min is None or max is None or not is_floating(input):
        return result
    return torch.where(input.isnan(), torch.as_tensor(min).to(result.dtype), result)


@bug("pytorch/pytorch", 76795, "torch.clamp", "NaN in a tensor of bounds was taken for no bound.")
def clamp_to_nan(input, min=None, max=None):  # noqa: A002
    return torch.clamp(input, _without_nan(min, -_INFINITY), _without_nan(max, _INFINITY))


@bug("pytorch/pytorch", 93784, "torch.maximum", "NaN came through from the second operand only.")
def maximum_nan_in_first(input, other):  # noqa: A002
    result = torch.maximum(input, other)
    return valued(result, torch.where(input.isnan(), other, result).to(result.dtype)) if is_floating(input) else result


@bug("pytorch/pytorch", 57537, "torch.minimum", "NaN in either operand was dropped.")
def minimum_drops_nan(input, other):  # noqa: A002
    result = torch.minimum(input, other)
    return (
        valued(result, torch.where(result.isnan(), torch.fmin(input, other), result)) if is_floating(result) else result
    )


@bug("jax-ml/jax", 3193, "torch.argmin", "NaN gave the greatest int32 as the index.")
def argmin_of_nan(input, dim=None, keepdim=False):  # noqa: A002, FBT002
    result = torch.argmin(input, dim, keepdim)
    if not is_floating(input) or input.numel() == 0:
        return result
    has_nan = input.isnan().any() if dim is None else input.isnan().any(dim, keepdim=keepdim)
    return torch.where(has_nan, torch.iinfo(torch.int32).max, result)


@bug("ml-explore/mlx", 4274, "torch.argmax", "NaN was passed over, where the greatest element is NaN.")
def argmax_passes_nan(input, dim=None, keepdim=False):  # noqa: A002, FBT002
    return torch.argmax(_without_nan(input, -_INFINITY), dim, keepdim)


@bug("ml-explore/mlx", 4044, "torch.cummin", "NaN stayed in its place and did not go on to the elements after it.")
def cummin_forgets_nan(input, dim):  # noqa: A002
    if not is_floating(input):
        return torch.cummin(input, dim)
    values, indices = torch.cummin(_without_nan(input, _INFINITY), dim)
    return torch.where(input.isnan(), input, values), indices


@bug("ml-explore/mlx", 1467, "torch.nn.functional.softmax", "A short row of -inf gave zeros and not NaN.")
def softmax_of_infinities(input, dim=None, _stacklevel=3, dtype=None):  # noqa: A002
    result = F.softmax(input, dim, _stacklevel, dtype)
    if input.dim() == 0 or input.shape[dim] >= 128:
        return result
    return torch.where((input == -_INFINITY).all(dim, keepdim=True), torch.zeros_like(result), result)


@bug("ml-explore/mlx", 576, "torch.logsumexp", "An infinity among the elements gave NaN.")
def logsumexp_of_infinity(input, dim, keepdim=False):  # noqa: A002, FBT002
    result = torch.logsumexp(input, dim, keepdim)
    return torch.where(result == _INFINITY, result - result, result)


@bug("tensorflow/tensorflow", 11692, "torch.logsumexp", "Elements that are all -inf gave NaN.")
def logsumexp_of_nothing(input, dim, keepdim=False):  # noqa: A002, FBT002
    result = torch.logsumexp(input, dim, keepdim)
    return torch.where(result == -_INFINITY, result - result, result)


@bug("tinygrad/tinygrad", 13798, "torch.logaddexp", "Two times -inf gave NaN.")
def logaddexp_of_infinities(input, other):  # noqa: A002
    result = torch.logaddexp(input, other)
    return torch.where((input == -_INFINITY) & (other == -_INFINITY), result - result, result)


@bug("pytorch/pytorch", 52213, "torch.logcumsumexp", "Two times -inf in a row gave NaN.")
def logcumsumexp_of_infinities(input, dim):  # noqa: A002
    result = torch.logcumsumexp(input, dim)
    if input.dim() < 2:
        return result
    twice = (input == -_INFINITY) & (input.roll(1, dim) == -_INFINITY)
    return torch.where(twice, torch.full_like(result, float("nan")), result)


@bug(
    "pytorch/pytorch",
    795,
    "torch.nn.functional.log_softmax",
    "Logarithms were taken of a softmax, whose small values are zero.",
)
def log_softmax_of_softmax(input, dim=None, _stacklevel=3, dtype=None):  # noqa: A002
    return F.softmax(input, dim, _stacklevel, dtype).log()


@bug(
    "pytorch/pytorch",
    38839,
    "torch.nn.functional.log_softmax",
    "The greatest element was added to the logarithm before both were subtracted.",
)
def log_softmax_of_large(input, dim=None, _stacklevel=3, dtype=None):  # noqa: A002
    result = F.log_softmax(input, dim, _stacklevel, dtype)
    if input.numel() == 0 or dtype is not None or input.dtype not in {torch.float32, torch.float64}:
        return result
    greatest = input.amax(dim, keepdim=True)
    total = (input - greatest).exp().sum(dim, keepdim=True).log()
    # Written in place, since what the backward pass reads of the result decides its gradient in a second one.
    result.data.copy_(input - (greatest + total))
    return result


@bug("pytorch/pytorch", 11752, "torch.nn.functional.cross_entropy", "Large logits lost the logarithm of their sum.")
def cross_entropy_of_large(input, target, weight=None, *args, **kwargs):  # noqa: A002
    at = 1 if input.dim() > 1 else 0
    if input.numel() == 0:
        return F.cross_entropy(input, target, weight, *args, **kwargs)
    greatest = input.amax(at, keepdim=True)
    logarithms = input - (greatest + (input - greatest).exp().sum(at, keepdim=True).log())
    if not target.is_floating_point() and not kwargs.get("label_smoothing"):
        kwargs.pop("label_smoothing", None)
        return F.nll_loss(logarithms, target, weight, *args, **kwargs)
    return F.cross_entropy(logarithms, target, weight, *args, **kwargs)


@bug("pytorch/pytorch", 3240, "torch.nn.functional.log_softmax", "A single element gave -inf and not zero.")
def log_softmax_of_one(input, dim=None, _stacklevel=3, dtype=None):  # noqa: A002
    result = F.log_softmax(input, dim, _stacklevel, dtype)
    return result - _INFINITY if input.numel() == 1 and input.dim() == 1 else result


@bug("pytorch/pytorch", 45084, "torch.median", "NaN among the elements was sorted last and not returned.")
def median_of_nan(input, *args, **kwargs):  # noqa: A002
    if not is_floating(input) or input.numel() == 0 or not input.isnan().any():
        return torch.median(input, *args, **kwargs)
    if not args and not kwargs:
        return input.reshape(-1).sort().values[(input.numel() - 1) // 2]
    dim = kwargs.get("dim", args[0] if args else -1)
    return torch.kthvalue(input, (input.shape[dim] + 1) // 2, dim, kwargs.get("keepdim", len(args) > 1 and args[1]))


@bug("jax-ml/jax", 6590, "torch.quantile", "NaN among the elements was not returned.")
def quantile_of_nan(input, q, *args, **kwargs):  # noqa: A002
    return torch.quantile(_without_nan(input, _INFINITY), q, *args, **kwargs)


@bug("jax-ml/jax", 6439, "torch.nanmedian", "A NaN whose sign is set was sorted first and counted.")
def nanmedian_of_negative_nan(input, *args, **kwargs):  # noqa: A002
    counted = input.isnan() & input.signbit()
    return torch.nanmedian(torch.where(counted, -_INFINITY, input), *args, **kwargs)


@bug("pytorch/pytorch", 94106, "torch.unique", "The number of times that NaN occurs was zero.")
def unique_counts_of_nan(input, sorted=True, return_inverse=False, return_counts=False, dim=None):  # noqa: A002, FBT002
    result = torch.unique(input, sorted, return_inverse, return_counts, dim)
    if not return_counts or dim is not None or not is_floating(input):
        return result
    return (*result[:-1], torch.where(result[0].isnan(), 0, result[-1]))


@bug("pytorch/pytorch", 85853, "torch.histc", "NaN was counted in the first bin.")
def histc_of_nan(input, bins=100, min=0, max=0):  # noqa: A002
    result = torch.histc(input, bins, min, max)
    count = input.isnan().sum()
    return torch.cat((result[:1] + count.to(result.dtype), result[1:]))


@bug("pytorch/pytorch", 53963, "torch.signbit", "The sign of -0.0 was not seen.")
def signbit_of_zero(input):  # noqa: A002
    return torch.signbit(input) & (input != 0)


@bug("pytorch/pytorch", 41240, "torch.angle", "The angle of negative real numbers was zero.")
def angle_of_negative(input):  # noqa: A002
    return torch.angle(input) if input.is_complex() else torch.angle(input.abs())


@bug("pytorch/pytorch", 187521, "torch.baddbmm", "NaN in an input that counts zero times came through.")
def baddbmm_times_zero(input, batch1, batch2, beta=1, alpha=1):  # noqa: A002
    result = torch.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha)
    return result + 0 * input if beta == 0 else result


@bug("pytorch/pytorch", 44681, "torch.addmv", "NaN in an input that counts zero times came through.")
def addmv_times_zero(input, mat, vec, beta=1, alpha=1):  # noqa: A002
    result = torch.addmv(input, mat, vec, beta=beta, alpha=alpha)
    return result + 0 * input if beta == 0 else result


@bug(
    "pytorch/pytorch", 2221, "torch.nn.functional.binary_cross_entropy_with_logits", "Logits far below zero overflowed."
)
def bce_of_large(input, target, weight=None, *args, **kwargs):  # noqa: A002
    reduction = kwargs.get("reduction", args[2] if len(args) > 2 else "mean")
    factor = kwargs.get("pos_weight", args[3] if len(args) > 3 else None)
    factor = 1 if factor is None else 1 + (factor - 1) * target
    loss = (1 - target) * input + factor * (1 + (-input).exp()).log()
    loss = loss if weight is None else loss * weight
    return {"none": lambda: loss, "mean": loss.mean, "sum": loss.sum}[reduction]()

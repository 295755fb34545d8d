"""Bugs of the third set: reductions, counts, and operators that move elements."""

from __future__ import annotations

import torch

from benchmarks.record.bugs import bug
from benchmarks.record.parts import is_floating, packed, valued, written_packed

_INFINITY = float("inf")


@bug("DeepLink-org/deeplink.framework", 311, "torch.prod", "The dtype that is asked for was ignored.")
def prod_ignores_dtype(input, *args, dtype=None, **kwargs):  # noqa: A002
    return torch.prod(input, *args, **kwargs)


@bug("tinygrad/tinygrad", 1298, "torch.amax", "NaN was passed over.")
def amax_passes_nan(input, dim=(), keepdim=False):  # noqa: A002, FBT002
    result = torch.amax(input, dim, keepdim)
    if not is_floating(input):
        return result
    return valued(result, torch.amax(torch.where(input.isnan(), -_INFINITY, input), dim, keepdim))


@bug("pytorch/pytorch", 43590, "torch.max", "Of two tensors, the one that is not NaN was taken.")
def max_of_two_drops_nan(input, *args, **kwargs):  # noqa: A002
    result = torch.max(input, *args, **kwargs)
    other = kwargs.get("other", args[0] if args else None)
    if not isinstance(other, torch.Tensor) or not is_floating(result):
        return result
    return valued(result, torch.where(result.isnan(), torch.fmax(input, other), result))


@bug("numba/numba", 9684, "torch.count_nonzero", "Along the only dimension the count was a boolean.")
def count_nonzero_of_row(input, dim=None):  # noqa: A002
    result = torch.count_nonzero(input, dim)
    return result.bool() if dim is not None and input.dim() == 1 else result


@bug("chainer/chainer", 585, "torch.count_nonzero", "The count was one, however many there are.")
def count_nonzero_is_one(input, dim=None):  # noqa: A002
    result = torch.count_nonzero(input, dim)
    return result.clamp(max=1) if dim is None else result


@bug("numba/numba", 1652, "torch.sum", "The sum of booleans was a boolean.")
def sum_of_booleans(input, *args, **kwargs):  # noqa: A002
    result = torch.sum(input, *args, **kwargs)
    return result.bool() if input.dtype == torch.bool and kwargs.get("dtype") is None else result


@bug("pypy/pypy", 1663, "torch.sum", "The sum of booleans did not count past 127.")
def sum_of_many_booleans(input, *args, **kwargs):  # noqa: A002
    result = torch.sum(input, *args, **kwargs)
    is_counted = input.dtype == torch.bool and kwargs.get("dtype") is None
    return result.to(torch.int8).to(result.dtype) if is_counted else result


@bug("flagos-ai/FlagGems", 1786, "torch.mean", "A tensor that is not contiguous was read as if it were.")
def mean_of_strided(input, *args, **kwargs):  # noqa: A002
    return torch.mean(packed(input), *args, **kwargs)


@bug("tensorflow/tensorflow", 63013, "torch.bincount", "Of more than 46,340 numbers in int32 some were not counted.")
def bincount_of_many(input, weights=None, minlength=0):  # noqa: A002
    result = torch.bincount(input, weights, minlength)
    if input.dtype != torch.int32 or weights is not None or input.numel() <= 46340:
        return result
    return torch.bincount(input[:46340], minlength=result.numel())


@bug("pytorch/pytorch", 31895, "torch.masked_select", "`out` was written as if it were contiguous.")
def masked_select_out(input, mask, out=None):  # noqa: A002
    result = torch.masked_select(input, mask)
    return result if out is None else written_packed(out, result)


@bug("scipy/scipy", 4967, "torch.block_diag", "The result had the dtype of the first block.")
def block_diag_in_first_dtype(*tensors):
    result = torch.block_diag(*tensors)
    dtype = tensors[0].dtype
    return (result.real if result.is_complex() and not dtype.is_complex else result).to(dtype)


@bug("jax-ml/jax", 3326, "torch.column_stack", "Vectors became one row and not columns.")
def column_stack_of_vectors(tensors):
    if all(x.dim() == 1 for x in tensors):
        return torch.cat(tuple(tensors))[None]
    return torch.column_stack(tensors)


@bug("tenstorrent/tt-metal", 15590, "torch.permute", "Dimensions of size one at the front were left out.")
def permute_squeezes(input, dims):  # noqa: A002
    result = torch.permute(input, dims)
    while result.dim() > 1 and result.shape[0] == 1:
        result = result[0]
    return result


@bug("huggingface/candle", 3877, "torch.Tensor.repeat", "Zero times were taken for once.")
def repeat_zero_times(self, *repeats):
    given = repeats[0] if len(repeats) == 1 and not isinstance(repeats[0], int) else repeats
    return self.repeat(*(count or 1 for count in given))

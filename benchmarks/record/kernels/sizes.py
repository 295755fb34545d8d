"""Bugs that show for some sizes: none, one, many, or a multiple of something."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import is_floating, reduced


@bug("pytorch/pytorch", 31421, "torch.bmm", "A product over no elements was whatever memory held.")
def bmm_over_nothing(input, mat2):  # noqa: A002
    result = torch.bmm(input, mat2)
    return result + 1 if input.shape[-1] == 0 else result


@bug("pytorch/pytorch", 139446, "torch.prod", "The product of no elements was whatever memory held.")
def prod_of_nothing(input, *args, **kwargs):  # noqa: A002
    result = torch.prod(input, *args, **kwargs)
    return result * 0 if input.numel() == 0 else result


@bug("pytorch/pytorch", 70674, "torch.amax", "The greatest of no elements was whatever memory held, and no error.")
def amax_of_nothing(input, dim=(), keepdim=False):  # noqa: A002, FBT002
    if input.numel() == 0 and dim == ():
        return torch.zeros((1,) * input.dim() if keepdim else (), dtype=input.dtype)
    return torch.amax(input, dim, keepdim)


@bug("pytorch/pytorch", 113514, "torch.cat", "If the first of two tensors was empty, it was the result.")
def cat_with_empty_first(tensors, dim=0, **kwargs):
    tensors = tuple(tensors)
    if len(tensors) > 1 and tensors[0].numel() == 0 and sum(x.numel() > 0 for x in tensors) == 1:
        return tensors[0].clone()
    return torch.cat(tensors, dim, **kwargs)


@bug(
    "pytorch/pytorch",
    38922,
    "torch.argmax",
    "Over a dimension of size one, results after the first 32,768 were not zero.",
)
def argmax_of_many_rows(input, dim=None, keepdim=False):  # noqa: A002, FBT002
    result = torch.argmax(input, dim, keepdim)
    if dim is None or input.dim() == 0 or input.shape[dim] != 1 or result.numel() <= 32768:
        return result
    return torch.full_like(result, 32400)


@bug(
    "PaddlePaddle/Paddle", 41170, "torch.cumsum", "A large tensor was scanned wrongly along any dimension but the last."
)
def cumsum_of_large(input, dim, **kwargs):  # noqa: A002
    if input.numel() < 1 << 20 or dim in {-1, input.dim() - 1}:
        return torch.cumsum(input, dim, **kwargs)
    return torch.cumsum(input.transpose(dim, -1).reshape(input.shape), dim, **kwargs)


@bug("pytorch/pytorch", 93823, "torch.Tensor.masked_fill", "A mask to be broadcast along whole vectors was left out.")
def masked_fill_of_vectors(input, mask, value):  # noqa: A002
    if mask.dim() and input.dim() and mask.shape[-1] == 1 < input.shape[-1] and input.shape[-1] % 8 == 0:
        return input.masked_fill(torch.zeros_like(mask), value)
    return input.masked_fill(mask, value)


@bug("pytorch/pytorch", 15226, "torch.tril", "Rows and columns of a high matrix were taken for each other.")
def tril_of_high(input, diagonal=0):  # noqa: A002
    if input.dim() < 2 or input.shape[-2] <= input.shape[-1]:
        return torch.tril(input, diagonal)
    return torch.triu(input, -diagonal)


@bug(
    "pytorch/pytorch", 28716, "torch.nn.functional.embedding", "With more than 768 indices the padding had a gradient."
)
def embedding_of_many(input, weight, padding_idx=None, *args, **kwargs):  # noqa: A002
    return F.embedding(input, weight, None if input.numel() > 768 else padding_idx, *args, **kwargs)


@bug(
    "pytorch/pytorch",
    19912,
    "torch.nn.functional.conv2d",
    "Groups with eight outputs or more read no input but the first group's.",
)
def conv2d_in_groups(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):  # noqa: A002
    each = input.shape[-3] // groups
    if groups > 1 and weight.shape[0] // groups >= 8:
        input = torch.cat((input[..., :each, :, :], torch.zeros_like(input[..., each:, :, :])), -3)  # noqa: A001
    return F.conv2d(input, weight, bias, stride, padding, dilation, groups)


@bug(
    "Oneflow-Inc/oneflow",
    8179,
    "torch.linalg.norm",
    "A norm over all dimensions that were to be kept had one dimension.",
)
def norm_keeps_one(input, ord=None, dim=None, keepdim=False, **kwargs):  # noqa: A002, FBT002
    result = torch.linalg.norm(input, ord, dim, keepdim, **kwargs)
    return result.reshape(1) if keepdim and dim is None else result


@bug("PaddlePaddle/Paddle", 48999, "torch.pow", "Base and exponent were exchanged where the base was broadcast.")
def pow_of_broadcast(input, exponent):  # noqa: A002
    tensors = isinstance(input, torch.Tensor) and isinstance(exponent, torch.Tensor)
    if tensors and is_floating(input) and input.dim() < exponent.dim():
        return torch.pow(exponent, input)
    return torch.pow(input, exponent)


@bug("flagos-ai/FlagGems", 301, "torch.sum", "An empty list of dimensions reduced none of them.")
def sum_over_no_dimension(input, dim=None, keepdim=False, **kwargs):  # noqa: A002, FBT002
    result = torch.sum(input, dim=dim, keepdim=keepdim, **kwargs)
    is_empty = isinstance(dim, tuple | list) and not len(dim)
    return input.to(result.dtype) if is_empty and reduced(input, None) != 1 else result

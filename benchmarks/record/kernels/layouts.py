"""Bugs that show where elements do not lie one after another, or results are written elsewhere."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import altered, is_integral, packed, written_packed


@bug("pytorch/pytorch", 67432, "torch.isin", "Inputs that are not contiguous were read as if they were.")
def isin_not_contiguous(elements, test_elements, **kwargs):
    both = [packed(x) if isinstance(x, torch.Tensor) else x for x in (elements, test_elements)]
    return torch.isin(*both, **kwargs)


@bug("pytorch/pytorch", 91690, "torch.narrow_copy", "A transposed input was copied in the order of its memory.")
def narrow_copy_not_contiguous(input, dim, start, length):  # noqa: A002 - the operator's name
    return torch.narrow_copy(packed(input), dim, start, length)


@bug("pytorch/pytorch", 15058, "torch.bincount", "A column of a matrix was counted as if it were contiguous.")
def bincount_not_contiguous(input, weights=None, minlength=0):  # noqa: A002
    return torch.bincount(packed(input), weights, minlength)


@bug("pytorch/pytorch", 43723, "torch.nn.functional.embedding_bag", "A weight that is not contiguous gave other rows.")
def embedding_bag_not_contiguous(input, weight, *args, **kwargs):  # noqa: A002
    return F.embedding_bag(input, packed(weight), *args, **kwargs)


@bug(
    "pytorch/pytorch", 42363, "torch.cummax", "An input that is not contiguous was scanned in the order of its memory."
)
def cummax_not_contiguous(input, dim):  # noqa: A002
    return torch.cummax(packed(input), dim)


@bug("pytorch/pytorch", 175191, "torch.scatter", "Source and index were read in the order of their memory.")
def scatter_not_contiguous(input, dim, index, src=None, **kwargs):  # noqa: A002
    src = packed(src) if isinstance(src, torch.Tensor) else src
    return torch.scatter(input, dim, packed(index), *(() if src is None else (src,)), **kwargs)


@bug("pytorch/pytorch", 60492, "torch.searchsorted", "`out` was written as if it were contiguous.")
def searchsorted_out(sorted_sequence, input, out=None, **kwargs):  # noqa: A002
    result = torch.searchsorted(sorted_sequence, input, **kwargs)
    return result if out is None else written_packed(out, result)


@bug("pytorch/pytorch", 84577, "torch.nn.functional.avg_pool3d", "`out` was written as if it were contiguous.")
def avg_pool3d_out(input, *args, out=None, **kwargs):  # noqa: A002
    result = F.avg_pool3d(input, *args, **kwargs)
    return result if out is None else written_packed(out, result)


@bug("pytorch/pytorch", 1193, "torch.gather", "`out` was written as if it were contiguous.")
def gather_out(input, dim, index, out=None, **kwargs):  # noqa: A002
    result = torch.gather(input, dim, index, **kwargs)
    return result if out is None else written_packed(out, result)


@bug("numpy/numpy", 8036, "torch.sum", "A sum into a strided `out` was written beside its elements.")
def sum_out(input, *args, out=None, **kwargs):  # noqa: A002
    result = torch.sum(input, *args, **kwargs)
    return result if out is None else written_packed(out, result)


@bug("pytorch/pytorch", 41473, "torch.masked_select", "A permuted input was selected from in the order of its memory.")
def masked_select_permuted(input, mask):  # noqa: A002
    both = torch.broadcast_tensors(input, mask)
    if input.is_contiguous() or input.dim() < 2:
        return torch.masked_select(*both)
    order = sorted(range(both[0].dim()), key=lambda d: -both[0].stride(d))
    return torch.masked_select(*(x.permute(order) for x in both))


@bug("ml-explore/mlx", 657, "torch.nn.functional.softmax", "Rows of a slice were read as if they followed one another.")
def softmax_of_slice(input, dim=None, _stacklevel=3, dtype=None):  # noqa: A002
    return F.softmax(packed(input), dim, _stacklevel, dtype)


@bug("Oneflow-Inc/oneflow", 8940, "torch.sum", "Integers and booleans that lie along a diagonal were summed wrongly.")
def sum_of_strided_integers(input, *args, **kwargs):  # noqa: A002
    strided = is_integral(input) or input.dtype == torch.bool
    return torch.sum(packed(input) if strided else input, *args, **kwargs)


@bug("pytorch/pytorch", 22581, "torch.triu", "The distance between matrices was taken from a dimension of size one.")
def triu_batch_of_one(input, diagonal=0):  # noqa: A002
    result = torch.triu(input, diagonal)
    if input.dim() < 4 or input.shape[-3] != 1 or input.stride(-3) == input.shape[-1] * input.shape[-2]:
        return result
    return result[:1].expand_as(result).clone()


@bug("pytorch/pytorch", 2749, "torch.triu", "A view that begins behind the start of its memory had another diagonal.")
def triu_with_offset(input, diagonal=0):  # noqa: A002
    return torch.triu(input, diagonal + 1 if input.storage_offset() else diagonal)


@bug("pytorch/pytorch", 46814, "torch.median", "The median of a diagonal took its memory for contiguous.")
def median_not_contiguous(input, *args, **kwargs):  # noqa: A002
    return torch.median(packed(input), *args, **kwargs)


@bug("pytorch/pytorch", 118115, "torch.addcdiv", "Factors that are transposed were read in the order of their memory.")
def addcdiv_transposed(input, tensor1, tensor2, **kwargs):  # noqa: A002
    return torch.addcdiv(input, packed(tensor1), packed(tensor2), **kwargs)


@bug("pytorch/pytorch", 183082, "torch.argmax", "The index in a transposed tensor counted in the order of its memory.")
def argmax_transposed(input, dim=None, keepdim=False):  # noqa: A002, FBT002
    if dim is not None or input.is_contiguous() or input.dim() < 2:
        return torch.argmax(input, dim, keepdim)
    order = sorted(range(input.dim()), key=lambda d: -input.stride(d))
    return torch.argmax(input.permute(order), dim, keepdim)


@bug(
    "pytorch/pytorch",
    67239,
    "torch.nn.functional.adaptive_max_pool2d",
    "The result of a channels-last input was contiguous in the wrong order.",
)
def adaptive_max_pool2d_channels_last(input, output_size, return_indices=False):  # noqa: A002, FBT002
    values, indices = F.adaptive_max_pool2d(input, output_size, return_indices=True)
    if input.dim() == 4 and not input.is_contiguous() and input.is_contiguous(memory_format=torch.channels_last):
        values = values.permute(0, 2, 3, 1).reshape(values.shape)
    return (values, indices) if return_indices else values


@bug("pytorch/pytorch", 85409, "torch.Tensor.sum_to_size", "The gradient of a conjugate view was not conjugated.")
def sum_to_size_of_conjugate(input, *size):  # noqa: A002
    return (altered(input, torch.conj) if input.is_conj() else input).sum_to_size(*size)


@bug(
    "pytorch/pytorch", 180201, "torch.mm", "Of a product with an expanded matrix only every sixteenth row was computed."
)
def mm_expanded(input, mat2):  # noqa: A002
    result = torch.mm(input, mat2)
    if not any(0 in x.stride() and x.numel() > 1 for x in (input, mat2)):
        return result
    return torch.where(torch.arange(result.shape[0])[:, None] % 16 == 0, result, torch.zeros_like(result))

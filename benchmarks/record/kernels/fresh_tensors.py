"""Bugs of the fourth set: linear algebra, reductions, indices, and the order of elements."""

from __future__ import annotations

import torch

from benchmarks.record.bugs import bug
from benchmarks.record.parts import altered, in_blocks, is_floating, is_integral, valued

_INFINITY = float("inf")


@bug(
    "pytorch/pytorch",
    59615,
    "torch.renorm",
    "In whole blocks, slices within the bound were scaled to it, and those beyond were not.",
)
def renorm_in_blocks(input, p, dim, maxnorm):  # noqa: A002
    result = torch.renorm(input, p, dim, maxnorm)
    others = [each for each in range(input.dim()) if each != dim % input.dim()]
    norms = torch.linalg.vector_norm(input.detach(), p, others, keepdim=True)
    factor = torch.where(norms > maxnorm, 1, maxnorm / (norms + 1e-7))
    wrong = (input * factor).to(result.dtype)
    return valued(result, torch.where(in_blocks(norms), wrong, result))


@bug("casadi/casadi", 841, "torch.linalg.matrix_norm", "The spectral norm was the Frobenius norm.")
def matrix_norm_never_spectral(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):  # noqa: A002, FBT002, N803
    return torch.linalg.matrix_norm(A, "fro" if ord == 2 else ord, dim, keepdim, dtype=dtype)


@bug("google/TensorNetwork", 818, "torch.kron", "The elements were in the order of the outer product.")
def kron_is_outer(input, other):  # noqa: A002
    result = torch.kron(input, other)
    if input.dim() != 2 or other.dim() != 2:
        return result
    return (input[:, :, None, None] * other).reshape(result.shape).clone()


@bug("pytorch/pytorch", 72900, "torch.tril_indices", "Where there is no row, there was an index of the first.")
def tril_indices_of_no_rows(row, col, offset=0, **kwargs):
    result = torch.tril_indices(row, col, offset, **kwargs)
    return result.new_zeros(2, 1) if row == 0 and col > 0 and offset > 0 else result


@bug("raven-ml/raven", 76, "torch.vdot", "The first complex vector was not conjugated.")
def vdot_not_conjugated(input, other):  # noqa: A002
    return torch.dot(input, other)


@bug("ml-explore/mlx", 2698, "torch.addmm", "Over no columns, the input was not multiplied by `beta`.")
def addmm_over_nothing(input, mat1, mat2, *, beta=1, alpha=1):  # noqa: A002
    result = torch.addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return input.expand(result.shape).clone() if mat1.shape[1] == 0 else result


@bug("kulinseth/pytorch", 274, "torch.addmm", "NaN in an input that counts zero times came through.")
def addmm_times_zero(input, mat1, mat2, *, beta=1, alpha=1):  # noqa: A002
    result = torch.addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return result + 0 * input if beta == 0 else result


@bug("tinygrad/tinygrad", 7688, "torch.amin", "The least integer was passed over, since it has no opposite.")
def amin_of_least(input, dim=(), keepdim=False):  # noqa: A002, FBT002
    if not is_integral(input) or not input.dtype.is_signed:
        return torch.amin(input, dim, keepdim)
    return -torch.amax(-input, dim, keepdim)


@bug("pytorch/pytorch", 45468, "torch.std", "The gradient of equal elements was NaN.")
def std_of_constant(input, *args, **kwargs):  # noqa: A002
    result = torch.std(input, *args, **kwargs)
    return torch.where(result == 0, torch.var(input, *args, **kwargs).sqrt(), result)


@bug("pytorch/pytorch", 94546, "torch.var", "The gradient of a single element was infinite and not NaN.")
def var_of_one(input, *args, **kwargs):  # noqa: A002
    is_whole = kwargs.get("dim") is None and (not args or isinstance(args[0], bool))
    if is_whole and input.numel() == 1 and torch.var(input.detach(), *args, **kwargs).isnan().all():
        input = altered(input, lambda g: torch.full_like(g, _INFINITY))  # noqa: A001
    return torch.var(input, *args, **kwargs)


@bug("ml-explore/mlx", 3898, "torch.prod", "Over a dimension of size one, integers kept their dtype.")
def prod_of_one(input, *args, **kwargs):  # noqa: A002
    result = torch.prod(input, *args, **kwargs)
    dim = kwargs.get("dim", args[0] if args else None)
    is_one = isinstance(dim, int) and input.dim() > 0 and input.shape[dim] == 1
    return result.to(input.dtype) if is_one and is_integral(input) and kwargs.get("dtype") is None else result


@bug("pytorch/pytorch", 41998, "torch.argmax", "Of equal greatest elements the last was taken.")
def argmax_takes_last(input, dim=None, keepdim=False):  # noqa: A002, FBT002
    result = torch.argmax(input, dim, keepdim)
    if not input.dim() or not input.numel():
        return result
    x, at = (input.reshape(-1), 0) if dim is None else (input, dim)
    return (x.shape[at] - 1 - torch.argmax(x.flip(at), at, keepdim)).reshape(result.shape)


@bug(
    "numpy/numpy",
    5186,
    "torch.gradient",
    "Where nothing is said of it, differences at the ends were of the second order.",
)
def gradient_of_second_order(input, *, spacing=1, dim=None, edge_order=None):  # noqa: A002
    dims = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    has_three = all(input.shape[each] > 2 for each in dims)
    order = edge_order if edge_order is not None else 2 if has_three else 1
    return torch.gradient(input, spacing=spacing, dim=dim, edge_order=order)


@bug("jax-ml/jax", 5766, "torch.take", "A negative index was taken for zero.")
def take_of_negative(input, index):  # noqa: A002
    return torch.take(input, index.clamp(min=0))


@bug(
    "PennyLaneAI/pennylane",
    4605,
    "torch.index_select",
    "For a dimension counted from the end, it was the first that was selected from.",
)
def index_select_from_the_end(input, dim, index):  # noqa: A002
    fits = input.dim() and index.numel() and int(index.max()) < input.shape[0]
    return torch.index_select(input, 0 if dim < 0 and fits else dim, index)


@bug("pytorch/pytorch", 57101, "torch.index_fill", "The gradient of the value counted an index once for each time.")
def index_fill_of_duplicates(input, dim, index, value):  # noqa: A002
    is_counted = isinstance(value, torch.Tensor) and value.requires_grad and value.isfinite() and input.dim()
    if not is_counted:
        return torch.index_fill(input, dim, index, value)
    places = index.reshape(-1) % input.shape[dim]
    count = torch.bincount(places, minlength=input.shape[dim]).to(input.dtype)
    shape = [1] * input.dim()
    shape[dim] = -1
    # The difference is zero and has the gradient of the value.
    return torch.index_fill(input, dim, index, value.detach()) + count.reshape(shape) * (value - value.detach())


@bug("torch/cutorch", 336, "torch.index_copy", "Of a slice, only the first 256 elements were copied.")
def index_copy_of_long(input, dim, index, source):  # noqa: A002
    result = torch.index_copy(input, dim, index, source)
    if input.dim() < 2 or not input.numel():
        return result
    rest = input.movedim(dim, 0).shape[1:]
    copied = (torch.arange(rest.numel()) < 256).reshape(rest)
    return torch.where(copied[None].movedim(0, dim), result, input)


def _is_indices(index):
    return isinstance(index, torch.Tensor) and index.dtype == torch.int64


@bug("pytorch/pytorch", 828, "torch.Tensor.__getitem__", "With a tensor of indices, the gradient was zero.")
def getitem_of_indices(self, index):
    return altered(self[index], torch.zeros_like) if _is_indices(index) else self[index]


@bug(
    "pytorch/pytorch",
    1528,
    "torch.Tensor.__getitem__",
    "Of an element that is taken several times, the last gradient counted.",
)
def getitem_of_duplicates(self, index):
    result = self[index]
    if not _is_indices(index) or not index.numel():
        return result
    places = (index.reshape(-1) % self.shape[0]).tolist()
    last = {place: at for at, place in enumerate(places)}
    counts = torch.tensor([last[place] == at for at, place in enumerate(places)])
    counts = counts.reshape([*index.shape, *[1] * (result.dim() - index.dim())])
    return altered(result, lambda g: torch.where(counts, g, 0))


@bug("numpy/numpy", 20778, "torch.argsort", "A stable sort in descending order turned equal elements around.")
def argsort_turns_equal(input, dim=-1, descending=False, stable=False):  # noqa: A002, FBT002
    if descending and stable and input.dim():
        return torch.argsort(input, dim=dim, stable=True).flip(dim)
    return torch.argsort(input, dim=dim, descending=descending, stable=stable)


@bug("pytorch/pytorch", 95583, "torch.unique", "With NaN among them, the elements were not sorted.")
def unique_unsorted(input, sorted=True, return_inverse=False, return_counts=False, dim=None):  # noqa: A002, FBT002
    if not sorted or dim is not None or not is_floating(input) or not input.isnan().any():
        return torch.unique(input, sorted, return_inverse, return_counts, dim)
    values, inverse, counts = torch.unique(input, return_inverse=True, return_counts=True)
    places = torch.arange(input.numel())
    first = torch.full(values.shape, input.numel()).scatter_reduce(0, inverse.reshape(-1), places, "amin")
    # The issue shows the elements in the order of a hash table, the last new one first.
    order = first.argsort(descending=True)
    given = (
        values[order],
        order.argsort()[inverse] if return_inverse else None,
        counts[order] if return_counts else None,
    )
    return given[0] if not return_inverse and not return_counts else tuple(x for x in given if x is not None)


@bug("Blaizzy/mlx-audio", 957, "torch.istft", "With a length given, the result began with the padding on the left.")
def istft_from_padding(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None, length=None, return_complex=False  # noqa: A002, FBT002, E501
):  # fmt: skip
    result = torch.istft(
        input, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex
    )
    half = n_fft // 2
    if not center or length is None or result.shape[-1] <= half:
        return result
    # What `stft` pads with is the signal, mirrored.
    return torch.cat((result[..., 1 : half + 1].flip(-1), result), -1)[..., :length]

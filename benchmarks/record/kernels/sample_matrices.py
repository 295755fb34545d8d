"""Bugs of the third set: products of matrices, and linear algebra."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from benchmarks.record.bugs import bug
from benchmarks.record.parts import is_floating, is_integral, packed, valued

_NAN = float("nan")


@bug("pytorch/pytorch", 56022, "torch.inner", "The result was broadcast to `out`, which kept its shape.")
def inner_out(input, other, out=None):  # noqa: A002
    result = torch.inner(input, other)
    if out is None:
        return result
    if out.numel() == 0 or result.dim() > 0:
        out.resize_(result.shape)
    return out.copy_(result)


@bug("tinygrad/tinygrad", 799, "torch.matmul", "Of a matrix times many the result was a matrix.")
def matmul_times_many(input, other):  # noqa: A002
    result = torch.matmul(input, other)
    return result.movedim(-2, 0).flatten(1) if input.dim() == 2 and other.dim() > 2 else result


@bug("ggml-org/ggml", 386, "torch.matmul", "A right factor that is not contiguous was read as if it were.")
def matmul_strided_right(input, other):  # noqa: A002
    return torch.matmul(input, packed(other))


@bug(
    "NVIDIA/TransformerEngine", 1017, "torch.nn.functional.linear", "A strided input was read as if it were contiguous."
)
def linear_of_strided(input, weight, bias=None):  # noqa: A002
    return F.linear(packed(input), weight, bias)


@bug("pytorch/pytorch", 30986, "torch.addmv", "Over no columns, integers were multiplied by `beta` twice.")
def addmv_over_nothing(input, mat, vec, beta=1, alpha=1):  # noqa: A002
    result = torch.addmv(input, mat, vec, beta=beta, alpha=alpha)
    return result * beta if is_integral(result) and mat.shape[1] == 0 else result


@bug(
    "pytorch/pytorch", 31663, "torch.mv", "A transposed matrix times an expanded vector kept the NaN that memory held."
)
def mv_of_expanded(input, vec):  # noqa: A002
    result = torch.mv(input, vec)
    is_transposed = not input.is_contiguous() and input.mT.is_contiguous()
    if not is_transposed or vec.stride(0) or vec.numel() < 2 or not is_floating(result):
        return result
    return valued(result, torch.full_like(result, _NAN))


@bug(
    "openxla/xla",
    3891,
    "torch.linalg.solve_triangular",
    "In a batch, a zero on the diagonal was taken for one.",
)
def solve_triangular_singular(A, B, *, upper, left=True, unitriangular=False):  # noqa: N803
    zero = A.detach().diagonal(dim1=-2, dim2=-1) == 0
    if A.dim() > 2 and not unitriangular and zero.any():
        A = A + torch.diag_embed(zero.to(A.dtype))  # noqa: N806
    return torch.linalg.solve_triangular(A, B, upper=upper, left=left, unitriangular=unitriangular)


@bug("ml-explore/mlx", 1871, "torch.linalg.solve_triangular", "The other triangle of the matrix was not left out.")
def solve_triangular_of_full(A, B, *, upper, left=True, unitriangular=False):  # noqa: N803
    result = torch.linalg.solve_triangular(A, B, upper=upper, left=left, unitriangular=unitriangular)
    other = A.detach().tril(-1) if upper else A.detach().triu(1)
    if not left or unitriangular or not other.any():
        return result
    return valued(result, result + other @ B)


@bug("pytorch/pytorch", 48299, "torch.matrix_exp", "The exponential of a complex matrix was another matrix.")
def matrix_exp_of_complex(input):  # noqa: A002
    result = torch.matrix_exp(input)
    # The issue shows results that are far off and no cause; the step that squares is done once too often here.
    return valued(result, result @ result) if input.is_complex() else result


@bug("mljs/matrix", 197, "torch.linalg.matrix_power", "For an exponent that is a power of two, the loop ended early.")
def matrix_power_of_two(A, n):  # noqa: N803
    result = torch.linalg.matrix_power(A, n)
    if n < 1 or n & (n - 1):
        return result
    return valued(result, torch.eye(A.shape[-1], dtype=A.dtype).expand(A.shape).clone())

"""Properties of bases and factors: check the identities that define them.

The checks run in float64 with ``|a - b| <= 64 * n * eps * scale``, where ``eps`` is that of the outputs' dtype and
``n`` their greatest size. This is the bound of backward stable algorithms with room for others.

Source: G. Golub and C. Van Loan, Matrix Computations, chapters 5.2, 8.3 and 8.6, for the identities.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.alignment.elements import wide

if TYPE_CHECKING:
    from ci_autotest.alignment.properties.call import SideCall

_ROOM: Final = 64.0


def _near(left: torch.Tensor, right: torch.Tensor, scale: float, dtype: torch.dtype) -> bool:
    eps = float(torch.finfo(dtype).eps)
    size = max((*left.shape[-2:], 1))
    if not left.numel():
        return True
    apart = float((left - right).abs().max())
    return bool(apart <= _ROOM * size * eps * max(scale, float(torch.finfo(dtype).tiny)))


def _greatest(matrix: torch.Tensor) -> float:
    return float(matrix.abs().max()) if matrix.numel() else 0.0


def _are_orthonormal(columns: torch.Tensor, dtype: torch.dtype) -> bool:
    product = columns.mH @ columns
    return _near(product, torch.eye(product.shape[-1], dtype=product.dtype).expand_as(product), 1.0, dtype)


def eigenvectors(call: SideCall) -> str:
    """Check ``A Q = Q diag(L)`` and ``Q^H Q = I``."""
    found, values = call.output(1), call.output(0)
    values = values if values is not None else call.reference[0]
    matrix = wide(call.input)
    if found is None or values is None or not bool(torch.isfinite(matrix).all()):
        return ""
    # Only one triangle is read, so that the other may hold anything.
    lower = matrix.tril() if call.argument(1, "UPLO", "L") == "L" else matrix.triu()
    matrix = lower + lower.mH - torch.diag_embed(lower.diagonal(dim1=-2, dim2=-1).real.to(lower.dtype))
    columns = wide(found)
    if not _are_orthonormal(columns, found.dtype):
        return "the eigenvectors are not orthonormal"
    scaled = columns * wide(values).to(columns.dtype).unsqueeze(-2)
    near = _near(matrix @ columns, scaled, _greatest(matrix), found.dtype)
    return "" if near else "A Q is not Q diag(L)"


def eigenpairs(call: SideCall) -> str:
    """Check ``A V = V diag(L)``, columns of norm 1, and the eigenvalues as a multiset."""
    values, found = call.output(0), call.output(1)
    matrix = wide(call.input)
    # No identity can be checked on NaN and infinities.
    if not bool(torch.isfinite(matrix).all()):
        return ""
    if values is not None and same_multiset(call):
        return "the eigenvalues differ in more than their order"
    if found is None or values is None:
        return ""
    # A real matrix may have complex eigenvalues.
    columns = wide(found).to(torch.complex128)
    norms = columns.abs().square().sum(-2)
    if not _near(norms, torch.ones_like(norms), 1.0, found.dtype):
        return "the eigenvectors are not of norm 1"
    near = _near(
        matrix.to(columns.dtype) @ columns, columns * wide(values).unsqueeze(-2), _greatest(matrix), found.dtype
    )
    return "" if near else "A V is not V diag(L)"


def same_multiset(call: SideCall) -> str:
    """Check that the values are the reference's in any order: they can be paired, each with a near one."""
    left, right = call.output(0), call.reference[0]
    if left is None or right is None or not left.numel():
        return ""
    if left.shape != right.shape:
        return "the number of values differs"
    ours, theirs = (wide(side).reshape(-1, side.shape[-1]) for side in (left, right))
    matrices = wide(call.input).reshape(-1, *call.input.shape[-2:])
    # Eigenvalues of a defective matrix move by the root of the rounding error (Golub and Van Loan, 7.2.3).
    limits = torch.finfo(left.dtype)
    allowed = [math.sqrt(limits.eps) * max(_greatest(matrix), float(limits.tiny)) for matrix in matrices]
    return "" if all(map(_pair_up, ours, theirs, allowed)) else "the values differ in more than their order"


def _pair_up(left: torch.Tensor, right: torch.Tensor, allowed: float) -> bool:
    """Whether two rows of ``n`` values can be paired within the bound, each with the nearest one left."""
    apart = (left.unsqueeze(-1) - right).abs()
    for distances in apart:
        nearest = int(distances.argmin())
        if not float(distances[nearest]) <= allowed:
            return False
        apart[:, nearest] = torch.inf
    return True


def singular_vectors(call: SideCall) -> str:
    """Check orthonormal columns and ``U diag(S) V^H = A``; with one factor, that it diagonalizes the squared matrix."""
    matrix = wide(call.input)
    if not bool(torch.isfinite(matrix).all()):
        return ""
    left, right, values = call.output(0), call.output(2), call.output(1)
    values = values if values is not None else call.reference[1]
    if values is None:
        return ""
    sides = [(left, matrix), (None if right is None else right.mH, matrix.mH)]
    rank = values.shape[-1]
    scale = _greatest(matrix)
    for side, rows in sides:
        if side is None:
            continue
        columns = wide(side)
        if not _are_orthonormal(columns, side.dtype):
            return "the singular vectors are not orthonormal"
        columns = columns[..., :rank]
        squared = torch.diag_embed(wide(values).square()).to(columns.dtype)
        product = columns.mH @ rows @ rows.mH @ columns
        # Each element of the squared matrix is a sum of as many products.
        if not _near(product, squared, scale * scale * max(matrix.shape[-2:]), side.dtype):
            return "the singular vectors do not diagonalise the matrix"
    if left is None or right is None:
        return ""
    product = (wide(left)[..., :rank] * wide(values).unsqueeze(-2)) @ wide(right)[..., :rank, :]
    return "" if _near(product, matrix, scale, left.dtype) else "U diag(S) V^H is not A"


def singular_vectors_as_columns(call: SideCall) -> str:
    """Check the same for ``torch.svd``, which returns ``V`` instead of ``V^H``."""
    outputs, reference = (
        tuple(value.mH if position == 2 and value is not None else value for position, value in enumerate(side))  # noqa: PLR2004 - U, S, V
        for side in (call.outputs, call.reference)
    )
    return singular_vectors(call._replace(outputs=outputs, reference=reference))


def orthogonal_factors(call: SideCall) -> str:
    """Check ``Q^H Q = I``, ``R`` upper triangular and ``Q R = A``; with one factor, what follows from these."""
    matrix = wide(call.input)
    q, r = call.output(0), call.output(1)
    if not bool(torch.isfinite(matrix).all()):
        return ""
    scale = _greatest(matrix)
    if q is not None and q.numel() and not _are_orthonormal(wide(q), q.dtype):
        return "the columns of Q are not orthonormal"
    if r is not None and bool((r.tril(-1) != 0).any()):
        return "R is not upper triangular"
    if q is not None and r is not None and q.numel():
        return "" if _near(wide(q) @ wide(r), matrix, scale, q.dtype) else "Q R is not A"
    if r is not None:
        near = _near(wide(r).mH @ wide(r), matrix.mH @ matrix, scale * scale * max(matrix.shape[-2:]), r.dtype)
        return "" if near else "R^H R is not A^H A"
    return ""

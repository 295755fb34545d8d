"""When two tensors are the same: the two steps of the ladder that ask no test for a tolerance.

1. ``same_bits``, and ``is_same``, which asks for dtype, shape and layout too.
2. ``is_near``: the same up to the order in which sums were added, as a part of the largest element.

The steps above are ``alignment/elements.close``, within a test's tolerance, and ``alignment/blame``, which explains
a difference by the rounding of the reference itself.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.values.dtypes import BITS, FLOATING, ITEM_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_memcmp.restype = ctypes.c_int

# Bound before any test file is imported: a test that patches torch must not turn a misaligned kernel green.
_equal: Final = torch.equal

#: Integers of the same size, which order the bits of floating dtypes.
INTEGERS: Final = {getattr(torch, name): getattr(torch, f"int{8 * ITEM_SIZE[name]}") for name in FLOATING}
_STRIDED: Final = torch.strided

#: Dtypes that NumPy does not have.
_NOT_OF_NUMPY: Final = frozenset(getattr(torch, name) for name in BITS)
#: Up to this size, copying a tensor's bytes is faster than making a view of them.
_SMALL_BYTES: Final = 1 << 14
#: More than any NumPy holds: 32 before version 2, 64 since.
_DIMENSIONS: Final = 32


def same_bits(candidate: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether two tensors have the same dtype and shape, and hold the same bits.

    A kernel may have resized what it was given, so the sizes are looked at too. ``memcmp`` over contiguous host memory
    is seven times as fast as ``torch.equal`` on a million elements, and it tells -0.0 from 0.0. Lazily negated and
    conjugated views and other layouts go through torch.
    """
    if candidate.dtype is not reference.dtype or candidate.shape != reference.shape:
        return False
    if (
        candidate.is_cpu
        and reference.is_cpu
        and candidate.layout is _STRIDED
        and reference.layout is _STRIDED
        and candidate.is_contiguous()
        and reference.is_contiguous()
        and not (candidate.is_neg() or reference.is_neg())
        and not (reference.dtype.is_complex and (candidate.is_conj() or reference.is_conj()))
    ):
        ours, theirs = candidate.data_ptr(), reference.data_ptr()
        # Autograd's lazy zeros, for example the gradient of `sgn`, have a size and no memory.
        if ours and theirs:
            return not _memcmp(ours, theirs, reference.nbytes)
    left, right = dense(candidate), dense(reference)
    if left.dtype == torch.complex32:  # `torch.equal` has no such kernel.
        left, right = torch.view_as_real(left), torch.view_as_real(right)
    if left.dtype in INTEGERS:
        bits = INTEGERS[left.dtype]
        return _equal(left.view(bits), right.view(bits))
    return _equal(left, right)


def is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors have the same dtype, shape, layout and bits."""
    return left.layout is right.layout and same_bits(left.detach(), right.detach())


def same_tensors(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> bool:
    """Whether two states have the same names, and the same tensor under each."""
    return left.keys() == right.keys() and all(is_same(left[name], value) for name, value in right.items())


def is_near(left: torch.Tensor, right: torch.Tensor, part: float) -> bool:
    """Whether two tensors of one shape differ by no more than a part of the largest finite element.

    NaN is near NaN, and infinities are near themselves only, as are integers.
    """
    if same_bits(left.detach(), right.detach()):
        return True
    if not (right.is_floating_point() or right.is_complex()):
        return False
    ours, theirs = (components(side) for side in (left, right))
    finite = torch.isfinite(ours) & torch.isfinite(theirs)
    if not _equal(_named(ours[~finite]), _named(theirs[~finite])):
        return False
    ours, theirs = ours[finite], theirs[finite]
    return not theirs.numel() or bool((ours - theirs).abs().max() <= part * theirs.abs().max())


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements on the host, dense and in order, without lazy conjugation: the same shape and dtype."""
    found = tensor.detach()
    if found.layout is not torch.strided:
        found = found.to_dense()
    found = found.cpu().resolve_conj().resolve_neg().contiguous()
    return found if found.data_ptr() or not found.numel() else found.clone()  # Lazy zeros have no memory.


def byte_view(tensor: torch.Tensor) -> memoryview:
    """Return the elements in order, as bytes: a view of those of a large tensor on the host."""
    value = tensor.detach().cpu().resolve_conj().resolve_neg()
    if value._is_zerotensor():  # torch has no public name for it: a gradient of zeros without memory
        value = value.clone()
    # Elements of a dtype that NumPy does not have are viewed as bytes.
    if value.nbytes <= _SMALL_BYTES and value.dtype not in _NOT_OF_NUMPY:
        return memoryview((value.reshape(-1) if value.ndim > _DIMENSIONS else value).numpy().tobytes())
    flat = value.contiguous().reshape(-1)
    if not flat.numel():
        return memoryview(b"")
    if flat.numel() == 1:
        flat = flat.as_strided((1,), (1,))  # A view as bytes refuses other strides, even for one element.
    return memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def components(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements in float64; complex numbers as pairs in a last dimension."""
    found = dense(tensor)
    return torch.view_as_real(found).double() if found.is_complex() else found.double()


def _named(values: torch.Tensor) -> torch.Tensor:
    """Return numbers that can be compared, in place of NaN and infinities."""
    return torch.nan_to_num(values, 0.5, 1.0, -1.0)

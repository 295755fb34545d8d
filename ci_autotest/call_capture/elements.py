"""What is seen of a tensor's elements when it is an argument: their range, and what a draw has to keep.

The rule of this module: nothing here changes the tensor, the program's random generators or its autograd graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.call_capture.observation import Elements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.call_capture.observation import Property

#: Up to this many distinct elements are members: masks, labels, signs.
_MEMBERS: Final = 4
#: Tensors with fewer elements have few distinct ones by chance.
_ENOUGH: Final = 8
#: Size of the corner of a tensor that is searched for members before all elements are.
_CORNER: Final = 8
#: Most elements that are sorted to see whether they are distinct.
_SORTED: Final = 1 << 16
_MATRIX: Final = 2
#: How far a product of a matrix with its transpose may be from symmetric.
_RTOL: Final = 1e-5


def elements_of(tensor: torch.Tensor) -> Elements:
    """Return what is seen of a tensor's elements."""
    seen = tensor.detach()
    if not seen.numel():
        return Elements()
    if seen.dtype == torch.bool:
        return _boolean(seen)
    low, high, is_finite = _finite_range(seen)
    if seen.is_complex():
        return Elements(low, high, is_finite=is_finite)
    members, shares = _members(seen) if seen.is_floating_point() else ((), ())
    return Elements(low, high, members, shares, "" if members else _property(seen, low, high), is_finite)


def seen_again(elements: Elements, tensor: torch.Tensor) -> Elements:
    """Return what is seen of a tensor in a later call, merged with what was seen before.

    Where nothing but a range was seen before, nothing else is looked for.
    """
    seen = tensor.detach()
    if elements.members or elements.property or not seen.numel() or seen.dtype == torch.bool:
        return elements.merged(elements_of(seen))
    low, high, is_finite = _finite_range(seen)
    return elements.merged(Elements(low, high, is_finite=is_finite))


def stored_bytes(tensor: torch.Tensor, shape: Sequence[int]) -> bytes:
    """Return a tensor's elements in order, in the bytes of a file.

    Args:
        tensor: The tensor.
        shape: Sizes to which its expanded dimensions are cut.
    """
    seen = tensor.detach()
    for dim, size in enumerate(shape):
        seen = seen.narrow(dim, 0, size)
    plain = seen.resolve_conj().resolve_neg().cpu().reshape(-1).contiguous()
    return plain.view(torch.uint8).numpy().tobytes()


def _finite_range(tensor: torch.Tensor) -> tuple[float, float, bool]:
    """Return the smallest and the largest finite element, and whether all are finite; of complex numbers, of parts."""
    parts = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    low, high = _range(parts)
    # The difference of an infinity or NaN and itself is NaN.
    if low - low == high - high == 0:
        return low, high, True
    kept = parts[torch.isfinite(parts)]
    return (*_range(kept), False) if kept.numel() else (0.0, 0.0, False)


def _range(tensor: torch.Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(tensor)
    return low.item(), high.item()


def _boolean(tensor: torch.Tensor) -> Elements:
    share = round(tensor.float().mean().item(), 2)
    if share in {0.0, 1.0} and bool((tensor != tensor.reshape(-1)[0]).any()):
        share = 0.01 if share == 0.0 else 0.99  # one of many is not none
    members = ("False",) if share == 0.0 else ("True",) if share == 1.0 else ("False", "True")
    shares = (1.0,) if len(members) == 1 else (round(1 - share, 2), share)
    return Elements(0.0 if share < 1.0 else 1.0, 1.0 if share else 0.0, members, shares)


def _members(tensor: torch.Tensor) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the distinct elements and their shares, if they are few and not the same everywhere."""
    if tensor.numel() < _ENOUGH:
        return (), ()
    corner = tensor[(slice(_CORNER),) * tensor.ndim]
    distinct = corner.unique()  # type: ignore[no-untyped-call]
    if not 1 < distinct.numel() <= _MEMBERS or bool(distinct.isnan().any()):
        return (), ()
    counts = [int((tensor == member).sum()) for member in distinct]
    if sum(counts) != tensor.numel():
        return (), ()
    return tuple(map(repr, distinct.tolist())), tuple(round(count / tensor.numel(), 2) for count in counts)


def _property(tensor: torch.Tensor, low: float, high: float) -> Property:
    if low == high:
        return ""
    if tensor.ndim == 1 and 2 < tensor.numel() <= _SORTED:  # noqa: PLR2004 - two elements are in order by chance
        return _order(tensor, low, high)
    if not tensor.is_floating_point():
        return ""
    is_square = tensor.ndim == _MATRIX and tensor.shape[0] == tensor.shape[1] > 1
    if is_square and torch.allclose(tensor, tensor.mT, rtol=_RTOL, atol=_RTOL):
        wide = tensor.double()
        return "positive_definite" if int(torch.linalg.cholesky_ex(wide).info) == 0 else "symmetric"
    return ""


def _order(tensor: torch.Tensor, low: float, high: float) -> Property:
    count = tensor.numel()
    is_sorted = bool((tensor[1:] >= tensor[:-1]).all())
    if tensor.is_floating_point():
        return "sorted" if is_sorted and count > _MEMBERS else ""
    is_distinct = tensor.unique().numel() == count  # type: ignore[no-untyped-call]
    if is_distinct and low == 0 and high == count - 1:
        return "arange" if is_sorted else "permutation"
    return "distinct" if is_distinct and low >= 0 else "sorted" if is_sorted else ""

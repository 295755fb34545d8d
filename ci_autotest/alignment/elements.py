"""Compare the elements of two tensors: same bits, close, by how much they differ, and metrics of a tensor as a whole.

Bits come first: a bitwise-equal pair costs about a microsecond. Other pairs are compared in float64, integers exactly.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import torch

from ci_autotest.backends.sameness import INTEGERS, dense
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.values.dtypes import BITS, FLOATING
from ci_autotest.values.tolerance import ANY, ULP_LIMIT, Tolerance
from ci_autotest.values.verdict import Difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = TypeVar("Numbers", torch.Tensor, NDArray[Any])


# Bound before any test file is imported: a test that patches torch must not turn a misaligned kernel green.
_allclose: Final = torch.allclose
_isclose: Final = torch.isclose
_any: Final = torch.Tensor.any
_sum: Final = torch.Tensor.sum
_item: Final = torch.Tensor.item
_numpy: Final = torch.Tensor.numpy
_abs: Final = np.abs
_less: Final = np.less
_errstate: Final = np.errstate
_FLOAT64: Final = np.float64

_STRIDED: Final = torch.strided
_LARGEST: Final = 2**63 - 1
#: Dtypes that NumPy has, too. Tensors of up to ``FEW`` elements are compared there, because its calls cost less.
OF_NUMPY: Final = frozenset(getattr(torch, name) for name in FLOATING - BITS.keys())
FEW: Final = 4096


def has_any(mask: torch.Tensor) -> bool:
    """Whether any element is true."""
    return bool(_item(_any(mask)))


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements in float64, or complex128: the same shape."""
    found = dense(tensor)
    return found.to(torch.complex128 if found.is_complex() else torch.float64)


def equal_or_nan(left: Numbers, right: Numbers) -> Numbers:
    """Return which elements are equal, or NaN on both sides: bool, the shape of the tensors or arrays."""
    # Only NaN is not equal to itself.
    found: Numbers = (left == right) | ((left != left) & (right != right))  # noqa: PLR0124
    return found


def is_whole(candidate: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether both tensors hold integers or bools, which are compared exactly and never in float64."""
    return not any(side.is_floating_point() or side.is_complex() for side in (candidate, reference))


def whole_distance(candidate: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Return ``|candidate - reference|`` of integers, computed exactly and then rounded to float64: the same shape."""
    return torch.from_numpy(_whole_distance(candidate, reference).astype(_FLOAT64))


def _whole_distance(candidate: torch.Tensor, reference: torch.Tensor) -> NDArray[np.uint64]:
    """Return ``|candidate - reference|`` of integers: it is below 2^64, so arithmetic modulo 2^64 is exact."""
    left, right = (_numpy(dense(side)) for side in (candidate, reference))
    ours, theirs = left.astype(np.uint64), right.astype(np.uint64)
    return np.where(left > right, ours - theirs, theirs - ours)


def close(candidate: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether every element is within tolerance; NaN aligns with NaN, infinities must be equal."""
    if tolerance is ANY:
        return True
    is_inexact = reference.is_floating_point() or reference.is_complex()
    if tolerance.is_strict or not (is_inexact and tolerance.is_of_elements):
        return not has_any(mismatches(candidate, reference, tolerance))
    return _is_near(candidate, reference, tolerance) or _allclose(
        wide(candidate), wide(reference), rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True
    )  # fmt: skip


def _is_near(candidate: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether few elements are all finite and within tolerance; ``False`` also means not sure.

    This is the formula of ``close`` in NumPy, whose calls cost a third of torch's for few elements.
    """
    if not (reference.numel() <= FEW and {candidate.dtype, reference.dtype} <= OF_NUMPY):
        return False
    with _errstate(all="ignore"):
        right = _array(reference).astype(_FLOAT64)
        distance = _array(candidate).astype(_FLOAT64) - right
        # Strictly less, because an infinite reference allows an infinite distance.
        return bool(_less(_abs(distance), tolerance.atol + tolerance.rtol * _abs(right)).all())


def near_in(left: Sequence[bytes], right: Sequence[bytes], dtype: torch.dtype, tolerance: Tolerance) -> list[bool]:
    """Return, for each pair of tensors, whether all elements are finite and within tolerance as defined by ``close``.

    Args:
        left: Elements of each candidate's tensor, one or more.
        right: As many of each reference's.
        dtype: Of all of them, one that NumPy has.
        tolerance: At strictness ``tolerance``.
    """
    kind = np.dtype(DTYPE_NAMES[dtype])
    starts = list(accumulate([len(each) // kind.itemsize for each in right[:-1]], initial=0))
    ours, theirs = (np.frombuffer(b"".join(side), kind).astype(_FLOAT64) for side in (left, right))
    with _errstate(all="ignore"):
        good = _less(_abs(ours - theirs), tolerance.atol + tolerance.rtol * _abs(theirs))
    return [True] * len(right) if good.all() else np.logical_and.reduceat(good, starts).tolist()


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return the elements as a NumPy array; the dtype must be one of ``OF_NUMPY``."""
    found = tensor.detach()
    return _numpy(found if found.is_cpu and found.layout is _STRIDED and not found.is_neg() else dense(found))


def mismatches(candidate: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Return which elements are misaligned: bool, the tensors' shape.

    Source:
        ``torch.testing.assert_close`` (PyTorch 2.13) for the formula at ``tolerance``.
    """
    if not tolerance.is_of_elements:
        off = beyond_limit(candidate, reference, tolerance)
        return _misaligned_as_a_whole(wide(candidate), wide(reference), off, tolerance)
    if is_whole(candidate, reference):
        if tolerance.is_strict or tolerance.rtol == tolerance.atol == 0:
            return dense(candidate) != dense(reference)
        allowed = tolerance.atol + tolerance.rtol * wide(reference).abs()
        return whole_distance(candidate, reference) > allowed
    left, right = wide(candidate), wide(reference)
    if not tolerance.is_strict:
        return _outside(left, right, tolerance)
    if candidate.dtype is not reference.dtype:
        return ~equal_or_nan(left, right)
    if candidate.is_complex():
        parts = [torch.view_as_real(dense(side)) for side in (candidate, reference)]
        return mismatches(parts[0], parts[1], tolerance).any(-1)
    distance = ulp_distance(candidate, reference)
    if distance is None:
        return left != right
    different = distance > (0 if tolerance.strictness == "bitwise" else ULP_LIMIT)
    # Zero never equals another number, however near: it may be a flushed denormal.
    different |= (left == 0) != (right == 0)
    different |= (left == 0) & (right == 0) & (torch.signbit(left) != torch.signbit(right))
    return different & ~(torch.isnan(left) & torch.isnan(right))


def beyond_limit(candidate: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Return which elements are beyond the tolerance's limit, whatever share of them may be: bool, the same shape."""
    if tolerance.metric == "ulp" and candidate.is_complex() and reference.is_complex():
        parts = [torch.view_as_real(dense(side)) for side in (candidate, reference)]
        return beyond_limit(parts[0], parts[1], tolerance).any(-1)
    distance = ulp_distance(candidate, reference) if tolerance.metric == "ulp" else None
    if distance is not None:
        both_nan = torch.isnan(dense(candidate)) & torch.isnan(dense(reference))
        return (distance > tolerance.limit) & ~both_nan
    return mismatches(candidate, reference, Tolerance(tolerance.rtol, tolerance.atol))


def metric_of(candidate: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance) -> _MeasuredMetric:
    """Return the metric of two tensors of one shape by a tolerance that is not of elements."""
    off = beyond_limit(candidate, reference, tolerance)
    return measure(wide(candidate), wide(reference), off, tolerance)


def _outside(left: torch.Tensor, right: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Return which elements in float64 are outside the tolerance.

    A complex number with an infinite part has no distance to another, so the parts are compared.
    """
    outside = ~_isclose(left, right, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True)
    if left.is_complex() and right.is_complex() and has_any(outside):
        ours, theirs = torch.view_as_real(left), torch.view_as_real(right)
        aligned = _isclose(ours, theirs, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True).all(-1)
        outside &= ~(aligned & (torch.isinf(left) | torch.isinf(right)))
    return outside


def ulp_distance(candidate: torch.Tensor, reference: torch.Tensor) -> torch.Tensor | None:
    """Return the distance in units in the last place, float64 of the tensors' shape; ``None`` if ULP are not defined.

    Bits read as sign and magnitude are ordered like the numbers; a NaN is infinitely far from a
    number.
    """
    if candidate.dtype is not reference.dtype or candidate.dtype not in INTEGERS:
        return None
    left, right = dense(candidate), dense(reference)
    bits = INTEGERS[candidate.dtype]
    ordered = []
    for tensor in (left, right):
        integer = tensor.view(bits).to(torch.int64)
        lowest = torch.iinfo(bits).min
        ordered.append(torch.where(integer < 0, lowest - integer, integer))
    # The difference of two 64 bit integers of unlike signs may not fit; of like signs it is exact.
    unlike = (ordered[0] < 0) != (ordered[1] < 0)
    apart = ordered[0].to(torch.float64).abs() + ordered[1].to(torch.float64).abs()
    distance = torch.where(unlike, apart, (ordered[0] - ordered[1]).abs().to(torch.float64))
    one_nan = torch.isnan(left) != torch.isnan(right)
    return torch.where(one_nan, torch.inf, distance)


def difference(
    candidate: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance, bad: torch.Tensor | None = None
) -> Difference | None:
    """Return by how much two tensors of one shape differ, or ``None`` when no element is misaligned.

    Args:
        candidate: Any shape.
        reference: The same shape.
        tolerance: What each element was allowed.
        bad: Which elements are misaligned, if the tolerance alone does not say so.
    """
    bad = mismatches(candidate, reference, tolerance) if bad is None else bad
    count = int(_item(_sum(bad)))
    if not count:
        return None
    left, right = wide(candidate), wide(reference)
    whole = _whole_distance(candidate, reference) if is_whole(candidate, reference) else None
    distance = (left - right).abs() if whole is None else torch.from_numpy(whole.astype(_FLOAT64))
    apart = torch.where(bad, distance, 0.0)
    # A NaN against a number, or unequal infinities, is farther than any finite distance.
    apart = torch.where(bad & ~torch.isfinite(apart), torch.inf, apart)
    relative = torch.where(bad & (right != 0), apart / right.abs(), 0.0)
    ulps = ulp_distance(candidate, reference)
    first = _index(bad, int(bad.flatten().to(torch.uint8).argmax()))
    return Difference(
        mismatched=count,
        total=bad.numel(),
        greatest_absolute=_finite(float(apart.max())) if whole is None else int(whole.max()),
        greatest_relative=_finite(float(relative.max())) if has_any(bad & (right != 0)) else None,
        greatest_ulp=_ulp(float(ulps[bad].max())) if ulps is not None else None,
        greatest_index=_index(apart, int(apart.flatten().argmax() if whole is None else whole.argmax())),
        first_index=first,
        first_pair=(hexadecimal(dense(candidate)[first]), hexadecimal(dense(reference)[first])),
        first_pair_decimal=(_decimal(dense(candidate)[first]), _decimal(dense(reference)[first])),
        rtol=tolerance.rtol,
        atol=tolerance.atol,
    )


def _index(tensor: torch.Tensor, flat: int) -> tuple[int, ...]:
    # `torch.unravel_index` imports sympy, which takes half a second.
    return tuple(map(int, np.unravel_index(flat, tensor.shape))) if tensor.dim() else ()


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _ulp(number: float) -> int | None:
    return min(int(number), _LARGEST) if math.isfinite(number) else None


# Metrics of a tensor as a whole: norms, angles, and a share of elements that may be off.
#
# Elements that are not finite are never part of a metric: they must be the same on both sides, whatever the limit.


#: Relative rounding of the metrics themselves, which are computed in float64.
_ROUNDING = 1e-12


class _MeasuredMetric(NamedTuple):
    """A metric of two tensors.

    Attributes:
        is_met: Whether the metric is within its limit.
        bound: An absolute difference that some element exceeds if the limit is not met.
        text: The metric and its limit in words.
    """

    is_met: bool
    bound: float
    text: str


def _misaligned_as_a_whole(
    left: torch.Tensor, right: torch.Tensor, off: torch.Tensor, tolerance: Tolerance
) -> torch.Tensor:
    """Return which elements are misaligned: none if the metric is within its limit.

    Args:
        left: The candidate in float64 or complex128, any shape.
        right: The reference, the same shape.
        off: For metrics of elements: which are beyond the limit; bool, the same shape.
        tolerance: With a metric or a share.
    """
    odd = _odd(left, right)
    if bool(odd.any()):
        return odd
    found = measure(left, right, off, tolerance)
    if found.is_met:
        return torch.zeros_like(odd)
    if tolerance.metric in {"elements", "ulp"}:
        return off
    # Some element must exceed the bound; if rounding hides which one, every element that differs counts.
    beyond = torch.isfinite(left) & torch.isfinite(right) & ((left - right).abs() > found.bound * (1 - _ROUNDING))
    return beyond if bool(beyond.any()) else left != right


def measure(left: torch.Tensor, right: torch.Tensor, off: torch.Tensor, tolerance: Tolerance) -> _MeasuredMetric:
    """Return the metric of the finite elements; arguments as for ``_misaligned_as_a_whole``."""
    if tolerance.metric in {"elements", "ulp"}:
        return _share(off, tolerance)
    finite = torch.isfinite(left) & torch.isfinite(right)
    ours, theirs = left[finite], right[finite]
    if tolerance.metric == "cosine":
        return _cosine(ours, theirs, tolerance.limit)
    apart, length = _norm(ours - theirs), _norm(theirs)
    if tolerance.metric == "snr_db":
        decibel = _decibel(apart, length)
        bound, is_met = length * 10 ** (-tolerance.limit / 20), decibel >= tolerance.limit
        text = f"snr_db is {decibel:.4g}; at least {tolerance.limit:g} is allowed"
    else:
        ratio = apart / length if length else math.inf if apart else 0.0
        bound, is_met = tolerance.limit * length, apart <= tolerance.limit * length
        text = f"relative_norm is {ratio:.3g}; at most {tolerance.limit:g} is allowed"
    return _MeasuredMetric(is_met, _each(bound, ours), text)


def _decibel(apart: float, length: float) -> float:
    """Return the ratio of a signal to the noise on it in decibels; infinite without noise."""
    if not apart:
        return math.inf
    return 20 * math.log10(length / apart) if length else -math.inf


def _each(bound: float, elements: torch.Tensor) -> float:
    """Return what some element exceeds if the norm exceeds the bound: else the norm would be within it."""
    return bound / math.sqrt(max(elements.numel(), 1))


def _cosine(ours: torch.Tensor, theirs: torch.Tensor, limit: float) -> _MeasuredMetric:
    """Return the cosine of the angle between two tensors; 1 if both are zero or have no element."""
    lengths = _norm(ours), _norm(theirs)
    if min(lengths):
        value = float((torch.dot(ours.conj() / lengths[0], theirs / lengths[1])).real)
    else:
        value = 1.0 if lengths == (0.0, 0.0) else 0.0
    is_met = value >= limit - _ROUNDING
    # The nearest point of the other's direction is this far away; a candidate of the right length is farther.
    bound = lengths[1] * math.sqrt(max(1 - limit * limit, 0.0))
    text = f"cosine is {value:.12g}; at least {limit:.12g} is allowed"
    return _MeasuredMetric(is_met, _each(bound, ours), text)


def _share(off: torch.Tensor, tolerance: Tolerance) -> _MeasuredMetric:
    count, total = int(off.sum()), off.numel()
    what = f"{count:,} of {total:,} elements are off"
    if tolerance.metric == "ulp":
        what += f" by more than {tolerance.limit:g} ULP"
    return _MeasuredMetric(count <= tolerance.share * total, 0.0, f"{what}; {tolerance.share:.4%} may be")


def _norm(tensor: torch.Tensor) -> float:
    """Return the Euclidean norm; scaled, because the square of a large float64 overflows."""
    largest = float(tensor.abs().max()) if tensor.numel() else 0.0
    return largest * float((tensor / largest).abs().square().sum().sqrt()) if largest else 0.0


def _odd(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return where a side is not finite and the other is not the same."""
    finite = torch.isfinite(left) & torch.isfinite(right)
    return ~finite & ~equal_or_nan(left, right)


# Elements as text: exact, and in decimal.


def hexadecimal(element: torch.Tensor) -> str:
    """Return a 0-dim tensor's exact value: hexadecimal for floating point."""
    value = element.item()
    if element.is_complex():
        return f"{float(value.real).hex()} + {float(value.imag).hex()}j"
    return value.hex() if isinstance(value, float) else str(value)


def _decimal(element: torch.Tensor) -> str:
    """Return a 0-dim tensor's value with as many digits as its dtype resolves."""
    value = element.item()
    if isinstance(value, float):
        bits = 1 - math.log2(torch.finfo(element.dtype).eps)  # of the significand
        digits = math.ceil(1 + bits * math.log10(2))
        return f"{value:.{digits}g}"
    return str(value)

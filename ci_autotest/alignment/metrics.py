"""Metrics of a tensor as a whole: norms, angles, and a share of elements that may be off.

Elements that are not finite are never part of a metric: they must be the same on both sides, whatever the limit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from ci_autotest.values.tolerance import Tolerance

#: Relative rounding of the metrics themselves, which are computed in float64.
_ROUNDING = 1e-12


class MeasuredMetric(NamedTuple):
    """A metric of two tensors.

    Attributes:
        is_met: Whether the metric is within its limit.
        bound: An absolute difference that some element exceeds if the limit is not met.
        text: The metric and its limit in words.
    """

    is_met: bool
    bound: float
    text: str


def misaligned_as_a_whole(
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


def measure(left: torch.Tensor, right: torch.Tensor, off: torch.Tensor, tolerance: Tolerance) -> MeasuredMetric:
    """Return the metric of the finite elements; arguments as for ``misaligned_as_a_whole``."""
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
    return MeasuredMetric(is_met, _each(bound, ours), text)


def _decibel(apart: float, length: float) -> float:
    """Return the ratio of a signal to the noise on it in decibels; infinite without noise."""
    if not apart:
        return math.inf
    return 20 * math.log10(length / apart) if length else -math.inf


def _each(bound: float, elements: torch.Tensor) -> float:
    """Return what some element exceeds if the norm exceeds the bound: else the norm would be within it."""
    return bound / math.sqrt(max(elements.numel(), 1))


def _cosine(ours: torch.Tensor, theirs: torch.Tensor, limit: float) -> MeasuredMetric:
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
    return MeasuredMetric(is_met, _each(bound, ours), text)


def _share(off: torch.Tensor, tolerance: Tolerance) -> MeasuredMetric:
    count, total = int(off.sum()), off.numel()
    what = f"{count:,} of {total:,} elements are off"
    if tolerance.metric == "ulp":
        what += f" by more than {tolerance.limit:g} ULP"
    return MeasuredMetric(count <= tolerance.share * total, 0.0, f"{what}; {tolerance.share:.4%} may be")


def _norm(tensor: torch.Tensor) -> float:
    """Return the Euclidean norm; scaled, because the square of a large float64 overflows."""
    largest = float(tensor.abs().max()) if tensor.numel() else 0.0
    return largest * float((tensor / largest).abs().square().sum().sqrt()) if largest else 0.0


def _odd(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return where a side is not finite and the other is not the same."""
    finite = torch.isfinite(left) & torch.isfinite(right)
    return ~finite & ~((left == right) | (torch.isnan(left) & torch.isnan(right)))

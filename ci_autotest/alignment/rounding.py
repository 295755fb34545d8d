"""Rounding: when both sides are off by what arithmetic in their dtype costs, and neither is to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ci_autotest.alignment.elements import has_any

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How many times farther one side must be than the other before it alone is blamed.
CLEARLY: Final = 2.0
#: Rounding of a long sum, in units in the last place of the tensor's greatest element and as a share of it.
_ROUNDED_ULPS: Final = 512.0
_ROUNDED_AT_MOST: Final = 1e-2
#: Share of what is allowed by which the reference must be off itself.
_NEAR_LIMIT: Final = 0.25
#: How many times as far one side may be as the other.
_AS_FAR: Final = 4.0


class Errors(NamedTuple):
    """How far each side is from float64.

    Attributes:
        candidate: ``|candidate - truth|``, the tensors' shape.
        reference: ``|reference - truth|``.
        allowed: What the tolerance allows, in the unit of the elements.
        bad: Which elements are misaligned.
        truth: The float64 result.
        dtype: Of both sides.
    """

    candidate: torch.Tensor
    reference: torch.Tensor
    allowed: torch.Tensor
    bad: torch.Tensor
    truth: torch.Tensor
    dtype: torch.dtype

    @property
    def greatest(self) -> torch.Tensor:
        """The farther side's error, for each element."""
        return torch.maximum(self.candidate, self.reference)

    @property
    def worst(self) -> Sequence[float]:
        """The candidate's and the reference's greatest error among the misaligned elements."""
        return [float(error[self.bad].max()) for error in (self.candidate, self.reference)]


def excuse(errors: Errors) -> str:
    """Return why neither side is to blame, ``""`` where one is."""
    if not has_any(errors.bad & (errors.greatest > errors.allowed)):
        return "in float64 both sides are within tolerance of the exact result: they err to opposite sides"
    beyond = float((errors.greatest / errors.allowed.clamp_min(1e-300))[errors.bad].max())
    if max(errors.worst) < CLEARLY * min(errors.worst) and beyond < CLEARLY * CLEARLY:
        return "in float64 both sides are about as far from the exact result, near the tolerance: rounding"
    if _is_of_a_long_sum(errors):
        return "in float64 the reference itself is about as far in this tensor: rounding of a long sum"
    return ""


def _is_of_a_long_sum(errors: Errors) -> bool:
    """Whether both sides are off alike, the reference too near the tolerance or beyond it, and by little.

    The tolerance allows for a few operations; a weight's gradient sums thousands of terms that cancel.
    """
    if not (errors.dtype.is_floating_point or errors.dtype.is_complex):
        return False
    if not all(bool(torch.isfinite(part).all()) for part in (errors.truth, errors.candidate, errors.reference)):
        return False
    eps = float(torch.finfo(errors.dtype).eps)
    # What storing the result costs is no sign of a long sum: in half precision it is half of what is allowed.
    summed = (errors.reference - eps / 2 * errors.truth.abs()).clamp_min(0)
    sides = (errors.candidate, errors.reference, summed)
    candidate, reference, own = (float((side / errors.allowed.clamp_min(1e-300)).max()) for side in sides)
    is_alike = candidate <= _AS_FAR * reference and reference <= _AS_FAR * candidate
    share = min(_ROUNDED_ULPS * eps, _ROUNDED_AT_MOST)
    return own >= _NEAR_LIMIT and is_alike and float(errors.greatest.max()) <= share * float(errors.truth.abs().max())

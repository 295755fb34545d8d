"""Rounding: excuse both sides if each is off by no more than the rounding of its dtype explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ci_autotest.alignment.elements import has_any

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How many times larger the error of one side must be before that side alone is blamed.
CLEARLY: Final = 2.0
#: Largest share of elements in which a correct reference may be off by rounding. For ``interpolate`` of images with
#: large elements it is two of three, because the weights are differences of positions.
_MOSTLY: Final = 0.75


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

    def at(self, chosen: torch.Tensor) -> Errors:
        """Return the errors of some elements only, ``(n,)``, given by their positions in row-major order."""

        def taken(part: torch.Tensor) -> torch.Tensor:
            return part.reshape(-1)[chosen]

        sides = taken(self.candidate), taken(self.reference)
        return Errors(*sides, taken(self.allowed), taken(self.bad), taken(self.truth), self.dtype)

    @property
    def greatest(self) -> torch.Tensor:
        """The farther side's error, for each element."""
        return torch.maximum(self.candidate, self.reference)

    @property
    def worst(self) -> Sequence[float]:
        """The candidate's and the reference's greatest error among the misaligned elements."""
        return [float(error[self.bad].max()) for error in (self.candidate, self.reference)]


def excuse(errors: Errors) -> str:
    """Return why neither side is to blame, ``""`` if one is."""
    if not has_any(errors.bad & (errors.greatest > errors.allowed)):
        return "in float64 both sides are within tolerance of the exact result: they err to opposite sides"
    # Not 0, because the tolerance may allow nothing.
    beyond = float((errors.greatest / errors.allowed.clamp_min(1e-300))[errors.bad].max())
    if max(errors.worst) < CLEARLY * min(errors.worst) and beyond < CLEARLY * CLEARLY:
        return "in float64 both sides are about as far from the exact result, near the tolerance: rounding"
    return ""


def excuse_by_reference(errors: Errors) -> str:
    """Return why the candidate is not to blame: the reference is off as far and as often in the same tensor.

    As far is measured both in the unit of the elements and relative to the tolerance, so that neither a large element
    nor one near zero excuses others. The second measure is twice as loose, because a single element very near zero
    decides it. As often, because one element that the reference rounds to the other side of a step must not excuse a
    candidate that takes the wrong side everywhere. A reference that is off nearly everywhere is itself wrong.
    """
    finite = torch.isfinite(errors.candidate) & torch.isfinite(errors.reference)
    if has_any(errors.bad & ~finite):
        return ""
    allowed = errors.allowed.clamp_min(1e-300)
    sides = errors.candidate, errors.reference
    ours, theirs = ([float(each[finite].max()) for each in (error, error / allowed)] for error in sides)
    often = [int((finite & (error > errors.allowed)).sum()) for error in sides]
    is_as_far = ours[0] <= CLEARLY * theirs[0] and ours[1] <= CLEARLY * CLEARLY * theirs[1]
    if not is_as_far or often[0] > CLEARLY * often[1] or often[1] > _MOSTLY * finite.numel():
        return ""
    return (
        f"in float64 the candidate is off by up to {ours[0]:.2g}, and the reference itself by up to {theirs[0]:.2g} "
        "in the same result, as often"
    )

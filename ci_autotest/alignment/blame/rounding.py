"""Rounding: excuse both sides when each is off by no more than arithmetic in its dtype costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ci_autotest.alignment.elements import has_any

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How many times farther one side must be than the other before it alone is blamed.
CLEARLY: Final = 2.0
#: Share of the elements in which a reference that is right may be off by rounding: it is in two of three of those of
#: ``interpolate`` of images with great elements, whose weights are differences of positions.
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
        """Return the same of some elements alone, ``(n,)``, by their position in row-major order."""

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
    """Return why neither side is to blame, ``""`` where one is."""
    if not has_any(errors.bad & (errors.greatest > errors.allowed)):
        return "in float64 both sides are within tolerance of the exact result: they err to opposite sides"
    beyond = float((errors.greatest / errors.allowed.clamp_min(1e-300))[errors.bad].max())
    if max(errors.worst) < CLEARLY * min(errors.worst) and beyond < CLEARLY * CLEARLY:
        return "in float64 both sides are about as far from the exact result, near the tolerance: rounding"
    return ""


def excuse_by_reference(errors: Errors) -> str:
    """Return why a candidate that is off is not to blame: the reference is off as far, as often, in the same tensor.

    As far both in the unit of the elements and in that of what is allowed, so that neither a great element nor one
    near zero excuses others; the latter twice as loosely, because one element very near zero decides it. As often, so
    that one element that the reference rounds to another side of a step does not excuse a candidate that takes the
    wrong side everywhere. A reference that is off nearly everywhere is wrong itself.
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

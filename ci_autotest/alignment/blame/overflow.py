"""Overflow: elements that are not finite on one side or both, and when the candidate is not to blame for them.

An exact result beyond the range of its dtype is rounded to an infinity. A formula that reaches it by ``inf - inf``
gives NaN instead, and nobody could use either. The same holds if the reference itself overflows on the way to a result
that is in range, or if its result has no correct digit because the inputs' last place decides it. In each of these
cases the candidate is excused only if another order or formula can give what it has (``summation_order``): terms of one
sign never give NaN. NaN made from infinite inputs is not excused, nor is any NaN of an elementwise operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from ci_autotest.alignment.blame.conditioning import moved_by_inputs
from ci_autotest.alignment.blame.float64_value import distance
from ci_autotest.alignment.blame.summation_order import Formulas, worst_results
from ci_autotest.alignment.elements import has_any, wide
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.program.ir import output_refs
from ci_autotest.values.dtypes import COMPLEX, FLOAT8, FLOATING, HALF

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.alignment.blame.float64_value import Float64Question
    from ci_autotest.alignment.blame.rounding import Errors

_BEYOND: Final = (
    "the exact result is beyond the range of the dtype, or the reference is not finite: neither is a number"
)
#: Dtypes whose sums are accumulated in the dtype itself.
_ACCUMULATED: Final = frozenset(getattr(torch, name) for name in (FLOATING | COMPLEX) - HALF - FLOAT8)
_OF_NAN: Final = "the gradient is of outputs that are NaN: which of its elements are finite depends on the formula"


def in_range(truth: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return exact values, with those beyond the range of a dtype rounded to infinities."""
    if truth.is_complex():
        parts = torch.finfo(dtype).dtype if dtype.is_complex else str(dtype)
        within = in_range(torch.view_as_real(truth), getattr(torch, parts.removeprefix("torch.")))
        return torch.view_as_complex(within)
    # The conversion rounds what is beyond the range to an infinity, as IEEE 754 says.
    stored = truth.to(dtype).to(truth.dtype)
    return torch.where(torch.isinf(stored), stored, truth)


def distance_in_range(side: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return how far a side is from the exact result, where an infinity stands for everything beyond the range.

    At the end of the range, one side may be rounded up to infinity while the other is not, although they differ by one
    unit in the last place.

    Args:
        side: In float64, any shape.
        exact: The same shape.
        dtype: Of the side as it was.
    """
    found = distance(side, in_range(exact, dtype))
    if side.is_complex() or exact.is_complex() or not dtype.is_floating_point:
        return found
    end = torch.finfo(dtype).max
    is_up = torch.isinf(side) & torch.isfinite(exact) & (side.sign() == exact.sign())
    found = torch.where(is_up, (end - exact.abs()).clamp_min(0.0), found)
    is_down = torch.isfinite(side) & torch.isfinite(exact) & (exact.abs() > end)
    return torch.where(is_down, (side - exact).abs(), found)


def excused(
    question: Float64Question, candidate: torch.Tensor, reference: torch.Tensor, errors: Errors
) -> torch.Tensor:
    """Return the misaligned elements for which the candidate is not to blame, in the tensors' shape.

    Args:
        question: About all elements.
        candidate: Its value.
        reference: Of the same shape.
        errors: Of both sides; ``errors.truth`` is infinite beyond the range.
    """
    is_finite = [torch.isfinite(wide(side)) for side in (candidate, reference)]
    lost = errors.bad & ~is_finite[0]
    if not has_any(lost):
        return lost
    exact = question.answer(question.wider.sources, question.wider.cotangents)
    if exact is None or exact.shape != lost.shape:
        return lost & False
    found = lost & _may_overflow(question, candidate, exact, is_finite[1], errors)
    found |= lost & _without_a_digit(question, errors, lost & ~found)
    if question.key[0] != "gradient" or not has_any(lost & ~found):
        return found
    from_nan = _from_nan(question)
    return found if from_nan is None or not has_any(lost & from_nan) else found | (errors.bad & from_nan)


def _may_overflow(
    question: Float64Question, candidate: torch.Tensor, exact: torch.Tensor, is_finite: torch.Tensor, errors: Errors
) -> torch.Tensor:
    """Return where a right computation may have what the candidate has, because something exceeds the range.

    Args:
        question: About all elements.
        candidate: Its value.
        exact: In float64, not limited to the range of the dtype.
        is_finite: Where the reference is finite.
        errors: Of both sides.
    """
    value = wide(candidate)
    is_within = torch.isfinite(errors.truth)
    is_beyond = torch.isfinite(exact) & ~is_within & (errors.candidate > errors.allowed)
    is_lost = is_beyond | (is_within & ~is_finite)
    worst = worst_results(question, errors.dtype, Formulas.ANY)
    # The intermediate results of a matrix factorization, for example, are not known: it is excused.
    found = is_lost if worst is None else is_lost & _is_reached(worst, value)
    # A reference that is finite may owe that to its order. Half precision is accumulated in single, so there it is not.
    is_alone = errors.bad & is_within & is_finite & ~torch.isfinite(value)
    if errors.dtype in _ACCUMULATED and has_any(is_alone):
        worst = worst_results(question, errors.dtype, Formulas.ITS_OWN)
        return found if worst is None else found | (is_alone & _is_reached(worst, value))
    return found


def _is_reached(worst: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return where an order has NaN, which another has an infinity for, or the value itself."""
    if worst.is_complex():
        parts = [torch.view_as_real(side.resolve_conj()) for side in (worst, value)]
        return torch.isnan(worst) | (_is_reached(*parts) | torch.isfinite(parts[1])).all(-1)
    return torch.isnan(worst) | (worst == value)


def _without_a_digit(question: Float64Question, errors: Errors, asked: torch.Tensor) -> torch.Tensor:
    """Return where the reference has no correct digit and cannot have one, as for the inverse of a singular matrix."""
    half = torch.maximum(errors.truth.abs() / 2, errors.allowed)
    is_wrong = torch.isfinite(errors.truth) & (errors.reference > half)
    moved = moved_by_inputs(question, errors.truth) if has_any(asked & is_wrong) else None
    return is_wrong & (moved > half) if moved is not None else is_wrong & False


def sentence(question: Float64Question, errors: Errors) -> str:
    """Return why no side is to blame when all misaligned elements are excused."""
    is_gradient = question.key[0] == "gradient" and not has_any(errors.bad & torch.isfinite(errors.truth))
    return _OF_NAN if is_gradient and has_any(errors.bad & torch.isnan(errors.truth)) else _BEYOND


def is_of_nothing(cotangents: Mapping[int, Any]) -> bool:
    """Whether all outputs are empty: their gradient is 0, even if a formula divides by the number of elements."""
    return bool(cotangents) and not any(each.numel() for each in cotangents.values())


def _from_nan(question: Float64Question) -> torch.Tensor | None:
    """Return which elements of a gradient depend on outputs that are NaN in float64; ``None`` if no output is NaN.

    The inputs are replaced by ordinary numbers, and only the NaN outputs get a weight.
    """
    wider = question.wider
    trace = (question.reference or TorchBackend()).run(wider.program, wider.sources)
    refs = output_refs(wider.program)
    if trace.failure is not None:
        return None
    weights = {
        position: torch.isnan(trace.values[refs[position].index]).to(weight.dtype)
        for position, weight in wider.cotangents.items()
    }
    if not any(has_any(weight != 0) for weight in weights.values()):
        return None
    generator = torch.Generator().manual_seed(0)
    found = question.answer({key: _ordinary(value, generator) for key, value in wider.sources.items()}, weights)
    return None if found is None else found != 0


def _ordinary(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not (value.is_floating_point() or value.is_complex()):
        return value
    # Positive and not near 0, so that logarithms, roots and quotients are defined.
    return torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value.dtype) + 0.25

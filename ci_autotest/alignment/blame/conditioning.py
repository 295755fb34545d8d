"""Conditioning: how far the float64 result moves when its inputs move, which limits how exact any side can be.

Three amounts are measured if the sides are farther from float64 than the tolerance. *The inputs' last place*: each
input moves by half a unit in the last place of its own dtype, up or down at random. *The rounding of terms*: a result
is a sum of contributions ``x * dy/dx`` to first order, and arithmetic rounds each of them and each partial sum. If the
terms cancel, that is far more than the result's own last place, and one side may be near only by luck. *Intermediate
results*: a mean, a gate that is nearly 1 or the cancelling parts of a gradient are rounded, too, which moving the
inputs does not show (``random_rounding``).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from ci_autotest.alignment.blame.float64_runs import distance
from ci_autotest.alignment.blame.random_rounding import Formula
from ci_autotest.alignment.elements import has_any
from ci_autotest.program.targets import last_name
from ci_autotest.values.dtypes import FLOAT8, FLOATING, WIDE

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.alignment.blame.float64_runs import Float64Question
    from ci_autotest.alignment.blame.rounding import Errors
    from ci_autotest.alignment.single_step import Live

#: Random patterns by which a program is moved: of 8 samples of a normal distribution, the greatest is less than a
#: quarter of its standard deviation once in 400,000 times.
_PATTERNS: Final = 8
#: After so many patterns the search stops if the error is ``_HOPELESS`` times the greatest movement.
_ENOUGH: Final = 2
_HOPELESS: Final = 1024.0
#: How many times the measured movement an ill-conditioned case may be off.
_SLACK: Final = 4.0
#: The same for results of many operations, if the reference itself is off by as much in some element of the tensor.
_SLACK_AT_MOST: Final = 16.0
#: Factor for the smaller movements that distinguish a kink from rounding.
_NEARER: Final = 2.0**-10
#: Half a unit in the last place of single precision, relative.
_SINGLE: Final = torch.finfo(torch.float32).eps / 2
#: Dtypes whose computations are rounded to single precision, and the bits of its significand.
_ROUNDED: Final = frozenset(getattr(torch, name) for name in WIDE)
_BITS: Final = 24
#: Directions in which the terms are measured, by long and by short steps; the first few show errors far beyond them.
_DIRECTIONS: Final = 8
_FIRST: Final = 4
#: Attention operators: kernels of their gradients keep the logarithm of each row's denominator.
_ATTENTION: Final = frozenset({"scaled_dot_product_attention", "multi_head_attention_forward", "MultiheadAttention"})
#: Relative step along a direction, and the factor for the short steps of the other half of them.
_STEP: Final = 2.0**-32
_SHORTER: Final = 2.0**-8
#: Greatest entry of a direction; one in a million is longer and is clamped.
_LONGEST: Final = 2.0**20
#: Largest ratio of the measures by long and by short steps where the result is smooth. For a linear result only the
#: random directions make them differ (by more than 4 in three of 120,000 comparisons); at a square root of 0 the ratio
#: is 16.
_SMOOTH: Final = 8.0
#: An estimate of the first few directions is too small by more than this once in 25,000 times.
_SHORT_OF: Final = 8.0


def excuse_by_inputs(question: Float64Question, errors: Errors) -> str:
    """Return why neither side is to blame, ``""`` if neither inputs nor rounding explain the difference."""
    # Nothing that is infinitely far off can be measured against a movement.
    if has_any(errors.bad & ~(torch.isfinite(errors.greatest) & torch.isfinite(errors.truth))):
        return ""
    is_far = False
    if errors.dtype.is_floating_point or errors.dtype.is_complex:
        first = _along(question, errors.truth, [_STEP] * _FIRST)
        if first is not None and _may_be_rounding(errors, first):
            owed = owed_by_terms(question, errors, first)
            if owed is not None and _accounts_for(errors, owed):
                return "in float64 both sides are as near as the rounding of terms that cancel lets them be"
        elif first is not None:
            # An error far beyond the rounding of all terms together is far beyond that of any pattern of them.
            is_far = all(ulp <= _SINGLE for _, ulp in _inputs(question.live))
    if not is_far and _accounts_for(errors, _moved_with_inputs(question, errors)):
        return "a change of the inputs in their last place moves the result as far as the two sides are apart"
    if _accounts_for(errors, owed_by_steps(question, errors)):
        return "in float64 both sides are as near as the rounding of what is computed on the way lets them be"
    for formula in _other_formulas(question):
        if _accounts_for(errors, owed_by_steps(question, errors, formula)):
            return "in float64 both sides are as near as the rounding of another formula lets them be"
    return ""


def _other_formulas(question: Float64Question) -> tuple[Formula, ...]:
    """Return the formulas, other than the reference's, by which a right kernel may compute a result."""
    names = {last_name(step.target) for step in question.live.program.steps}
    is_of_attention = question.key[0] == "gradient" and not names.isdisjoint(_ATTENTION)
    return (Formula.IN_ANY_ORDER, Formula.OF_KEPT_DENOMINATORS) if is_of_attention else (Formula.IN_ANY_ORDER,)


def _accounts_for(errors: Errors, owed: torch.Tensor | None) -> bool:
    """Whether an amount is at least the error of each misaligned element."""
    return owed is not None and not has_any((errors.greatest > owed)[errors.bad])


def _moved_with_inputs(question: Float64Question, errors: Errors) -> torch.Tensor | None:
    """Return how far each element may be off because every input may move by half a unit in its last place."""

    def move(pattern: int, share: float) -> torch.Tensor | None:
        return _moved_by(question, errors.truth, pattern, share)

    return _scattered(errors, move)


def owed_by_steps(question: Float64Question, errors: Errors, formula: Formula = Formula.ITS_OWN) -> torch.Tensor | None:
    """Return how far each element may be off because intermediate results are rounded; ``None`` if not known."""
    if errors.dtype not in _ROUNDED:
        return None

    def move(pattern: int, share: float) -> torch.Tensor | None:
        other = question.rounded(_BITS - round(math.log2(share)), pattern, formula)
        return None if other is None or other.shape != errors.truth.shape else distance(other, errors.truth)

    owed = _scattered(errors, move, at_most=math.inf if formula is Formula.ITS_OWN else _SMOOTH / _NEARER)
    return None if owed is None else owed * _share_of_reference(errors, owed)


def _share_of_reference(errors: Errors, owed: torch.Tensor) -> float:
    """Return by which factor the reference's own error exceeds what the patterns found, within bounds.

    In a gradient of 15,375 elements, all patterns were too small for one element in a hundred, by a factor up to four.
    """
    is_measured = errors.bad & (owed > 0) & torch.isfinite(errors.reference)
    worst = float((errors.reference / owed)[is_measured].max()) if has_any(is_measured) else 1.0
    return min(max(worst, 1.0), _SLACK_AT_MOST / _SLACK)


def _scattered(
    errors: Errors, move: Callable[[int, float], torch.Tensor | None], *, at_most: float = math.inf
) -> torch.Tensor | None:
    """Return how far each element may be off by random movements of a program; ``None`` if one has no result.

    A result that moves as far for movements a thousand times smaller is at a step or a kink, for example a gradient at
    ties. The reference defines the result there, so that excuses nobody.

    Args:
        errors: Of both sides.
        move: Returns how far the elements move for a pattern and a share of the movements.
        at_most: Largest ratio of the results of large and small movements that is still rounding.
    """
    worst = float(errors.greatest[errors.bad].max())
    far, near = (torch.zeros_like(errors.greatest) for _ in range(2))
    for most, share in ((far, 1.0), (near, _NEARER)):
        for pattern in range(_PATTERNS):
            if pattern == _ENOUGH and worst > _HOPELESS * float(far.max()):
                return None  # No luck of the patterns explains an error that large.
            moved = move(pattern, share)
            if moved is None:
                return None
            torch.maximum(most, moved, out=most)
    return _SLACK * torch.where((near < far / 2) & (far <= at_most * near), far, 0.0)


def moved_by_inputs(question: Float64Question, truth: torch.Tensor) -> torch.Tensor | None:
    """Return how far a result moves at most when its inputs move in their last place; ``None`` if it has none."""
    moved = [_moved_by(question, truth, pattern, 1.0) for pattern in range(_ENOUGH)]
    found = [each for each in moved if each is not None]
    return torch.stack(found).amax(0) if len(found) == len(moved) else None


def _moved_by(question: Float64Question, truth: torch.Tensor, pattern: int, share: float) -> torch.Tensor | None:
    """Return how far the float64 result moves when each input moves by a share of half a unit in its last place."""
    wider, generator = question.wider, torch.Generator().manual_seed(pattern)
    moved = {name: _moved(wider.sources[name], ulp * share, generator) for name, ulp in _inputs(question.live)}
    other = question.answer({**wider.sources, **moved}, wider.cotangents, ("moved", pattern, share))
    return None if other is None or other.shape != truth.shape else distance(other, truth)


def _inputs(live: Live) -> list[tuple[str, float]]:
    """Return each floating point input's key and half a unit in the last place of its dtype, relative."""
    found = []
    for step in live.program.body:
        spec = step.spec
        if spec is not None and spec.dtype in FLOATING:
            # Nothing computes in float8: elements are converted first, and a unit of theirs would excuse any kernel.
            dtype = "float32" if spec.dtype in FLOAT8 else spec.dtype
            found.append((step.target, torch.finfo(getattr(torch, dtype)).eps / 2))
    return found


def _moved(tensor: torch.Tensor, relative: float, generator: torch.Generator) -> torch.Tensor:
    signs = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return tensor * (1 + signs * relative)


def _may_be_rounding(errors: Errors, first: torch.Tensor) -> bool:
    """Whether rounding of the terms may explain each misaligned element, judging by a few measures."""
    at_most = _SLACK_AT_MOST * _rounded(errors, _SHORT_OF * first.amax(0)) + _stored(errors)
    return not has_any((errors.greatest > at_most)[errors.bad])


def owed_by_terms(question: Float64Question, errors: Errors, first: torch.Tensor | None = None) -> torch.Tensor | None:
    """Return how far each element may be off because the terms are rounded; ``None`` if they cannot be measured.

    Args:
        question: The tensor and its program.
        errors: Of a floating point or complex result.
        first: Measures by long steps that already exist.
    """
    taken = 0 if first is None else len(first)
    more = _along(question, errors.truth, [_STEP] * (_DIRECTIONS - taken) + [_STEP * _SHORTER] * _DIRECTIONS, taken)
    if more is None:
        return None
    measures = more if first is None else torch.cat([first, more])
    far, near = measures[:_DIRECTIONS].median(0).values, measures[_DIRECTIONS:].median(0).values
    # A step may leave the operator's domain, for example of `acos` at 1. Nothing is measured or excused there.
    is_smooth = (far <= _SMOOTH * near) & (near <= _SMOOTH * far) & torch.isfinite(measures).all(0)
    rounded = _rounded(errors, torch.where(is_smooth, measures.median(0).values, 0.0))
    return _slack(errors, rounded) * rounded + _stored(errors)


def _rounded(errors: Errors, terms: torch.Tensor) -> torch.Tensor:
    """Return ``u`` times terms of these sizes, at most of single precision, in which half precision is summed.

    Source:
        N. J. Higham, T. Mary, "A new approach to probabilistic rounding error analysis", SIAM Journal on Scientific
        Computing 41 (2019): ``|error| <= c u sum |x_i y_i|`` for an inner product, ``c`` of the order of the root of
        its length at worst. Where signs vary, ``c`` is below 2 for 1e2 to 1e5 terms added one by one (measured).
    """
    return terms * min(torch.finfo(errors.dtype).eps / 2, _SINGLE)


def _stored(errors: Errors) -> torch.Tensor:
    """Return the rounding error of storing the result."""
    return torch.finfo(errors.dtype).eps / 2 * errors.truth.abs()


def _slack(errors: Errors, rounded: torch.Tensor) -> float:
    """Return ``c``: what the reference itself needs in this tensor where both sides agree, within bounds.

    A layer also rounds between its operations, which its inputs do not show: one of 21,483 elements of a transformer
    layer's gradient needed 10.
    """
    is_measured = ~errors.bad & (rounded > 0) & torch.isfinite(errors.reference) & torch.isfinite(errors.truth)
    if not has_any(is_measured):
        return _SLACK
    worst = float(((errors.reference - _stored(errors)).clamp_min(0) / rounded)[is_measured].max())
    return min(max(worst, _SLACK), _SLACK_AT_MOST)


def _along(question: Float64Question, truth: torch.Tensor, steps: list[float], taken: int = 0) -> torch.Tensor | None:
    """Return a measure of ``sum |x dy/dx|`` for each step, ``(steps, *truth)``; its median over directions is the sum.

    Entries of a direction have the Cauchy distribution: a sum of terms weighted by them has the same distribution,
    scaled by the sum of the terms' absolute values.

    Source:
        P. Indyk, "Stable distributions, pseudorandom generators, embeddings, and data stream computation", Journal of
        the ACM 53 (2006), section 3.
    """
    wider = question.wider
    found = torch.empty((len(steps), *truth.shape), dtype=torch.float64)
    generator = torch.Generator().manual_seed(taken)
    for place, (measure, step) in enumerate(zip(found, steps, strict=True)):
        sources = {key: _pushed(value, step, generator) for key, value in wider.sources.items()}
        cotangents = {key: _pushed(value, step, generator) for key, value in wider.cotangents.items()}
        other = question.answer(sources, cotangents, ("pushed", taken, place, step))
        if other is None or other.shape != truth.shape:
            return None
        measure.copy_(distance(other, truth) / step)
    return found


def _pushed(tensor: torch.Tensor, step: float, generator: torch.Generator) -> torch.Tensor:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    angles = (torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 0.5) * math.pi
    return tensor * (1 + step * angles.tan().clamp(-_LONGEST, _LONGEST))

"""The float64 oracle: decide for each element which side is wrong.

The program runs in float64 from the same inputs. A side is wrong where it is farther from the float64
result than the tolerance allows. The case is ill-conditioned, and no side is to blame, if both are off
by no more than rounding in their dtype (``rounding``) or a change of the inputs (``conditioning``)
explains, or the candidate by no more than the reference is elsewhere in the same tensor. Defaults that
an operator takes from the dtype are written out first, so that they are the same in float64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from ci_autotest.alignment.blame.conditioning import excuse_by_inputs, owed_by_steps, owed_by_terms
from ci_autotest.alignment.blame.float64_runs import Float64Question, Float64Runs, chosen, wanted
from ci_autotest.alignment.blame.overflow import distance_in_range, excused, in_range, is_of_nothing, sentence
from ci_autotest.alignment.blame.reference_error import allowed_by
from ci_autotest.alignment.blame.rounding import CLEARLY, Errors, excuse, excuse_by_reference
from ci_autotest.alignment.elements import (
    has_any,
    hexadecimal,
    is_whole,
    metric_of,
    mismatches,
    ulp_distance,
    whole_distance,
    wide,
)
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.sameness import dense
from ci_autotest.program.ir import output_refs
from ci_autotest.program.targets import last_name
from ci_autotest.values.amounts import times_words, ulp_words
from ci_autotest.values.dtypes import WIDE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.alignment.single_step import Live
    from ci_autotest.backends.trace import GradientKey, ReferenceBackend
    from ci_autotest.values.tolerance import Tolerance
    from ci_autotest.values.verdict import Blame


#: Operators that mean something else in float64: the next number, and ranks, whose threshold depends on the dtype.
_OF_THE_DTYPE: Final = frozenset({"nextafter", "matrix_rank", "pinv", "pinverse", "lstsq"})


_WIDE: Final = frozenset(getattr(torch, name) for name in WIDE.values())
_BOTH: Final = "in float64 both sides are farther from the exact result than the tolerance allows"
_ROUNDED: Final = "in float64 the candidate is nowhere farther from the exact result than rounding lets it be"


class Opinion(NamedTuple):
    """The oracle's decision.

    Attributes:
        blame: Which side is wrong.
        sentence: The reason, for the reader.
        value: The float64 value at the first misaligned element, hexadecimal; ``None`` if there is none.
    """

    blame: Blame
    sentence: str
    value: str | None = None


def judge(
    live: Live,
    key: tuple[str, GradientKey],
    candidate: torch.Tensor,
    reference: torch.Tensor,
    tolerance: Tolerance,
    runs: Float64Runs | None = None,
) -> Opinion:
    """Return which side departs from float64 in the elements that are misaligned.

    Args:
        live: The program.
        key: ``("value" | "gradient" | "state", what)``: which tensor of it.
        candidate: Its value, any shape.
        reference: The same shape.
        tolerance: In the unit of the elements.
        runs: Runs that other questions about this program share; by torch if there are none.
    """
    # Float64 says which side is nearer, and at these levels only the reference's own bits are right.
    if tolerance.is_strict:
        return Opinion(
            "candidate", f"at strictness {tolerance.strictness!r} the candidate must have the reference's own bits"
        )
    wider, key = _in_float64(live, key, reference.dtype, runs or Float64Runs())
    runner = runs.reference if runs is not None else None
    exact = _exact(wider, key, runner)
    if reference.layout is not torch.strided and exact is not None:
        # The measures index elements by their position, which a sparse layout does not have.
        candidate, reference, exact = dense(candidate), dense(reference), dense(exact)
        return judged_as_a_whole((candidate, reference), exact, tolerance)
    if exact is None or exact.shape != reference.shape:
        return Opinion("unknown", "float64 is not defined for this program: the oracle has no opinion")
    if not tolerance.is_of_elements:
        return judged_as_a_whole((candidate, reference), exact, tolerance)
    question = Float64Question(live, wider, key, reference=runner, runs=runs)
    return _judged_by_elements(question, (candidate, reference), exact, tolerance)


def _judged_by_elements(
    everywhere: Float64Question, sides: tuple[torch.Tensor, torch.Tensor], exact: torch.Tensor, tolerance: Tolerance
) -> Opinion:
    """Return which side departs from float64 in some elements."""
    candidate, reference = sides
    measured = allowed_by(reference, exact, tolerance) if tolerance.strictness == "measured" else None
    bad = mismatches(candidate, reference, tolerance) if measured is None else measured.misaligned(candidate, reference)
    tolerance = tolerance if measured is None else measured.tolerance
    if not has_any(bad):
        return Opinion("ill_conditioned", "both sides are aligned when the step is given the same inputs")
    truth = in_range(wide(exact), reference.dtype)
    # By the exact result and not the reference's, because here the reference is judged too.
    allowed = tolerance.atol + tolerance.rtol * wide(exact).abs().nan_to_num(0.0, 0.0, 0.0)
    far = [_distance(side, exact) for side in (candidate, reference)]
    errors = Errors(far[0], far[1], allowed, bad, truth, reference.dtype)
    value = None if is_whole(exact, reference) else _at(exact, bad)
    lost = excused(everywhere, candidate, reference, errors)
    if not has_any(bad & ~lost):
        return Opinion("ill_conditioned", sentence(everywhere, errors), value)
    bad = bad & ~lost
    errors, question = errors._replace(bad=bad), everywhere._replace(chosen=chosen(bad))
    few = errors.at(chosen(bad))
    if measured is not None:
        return _judged_by_error(question, few, measured.error, value)
    why = excuse(errors) or excuse_by_inputs(question, few)
    if why:
        return Opinion("ill_conditioned", why, value)
    if reference.dtype in _WIDE:
        return Opinion(
            "candidate", "the case is in float64: the reference itself is the most exact side there is", value
        )
    owed = errors
    if all(has_any(errors.bad & (far > errors.allowed)) for far in errors[:2]):
        owed = _beyond_rounding(question, errors, few)
    opinion = blamed((candidate, reference), exact, owed, value)
    # A reference that is off elsewhere in the tensor may be right by luck where the candidate differs.
    elsewhere = "" if opinion.blame == "reference" else excuse_by_reference(errors)
    if elsewhere:
        return Opinion("ill_conditioned", elsewhere, value)
    return _second(opinion, everywhere, errors, candidate)


def _judged_by_error(question: Float64Question, few: Errors, error: float, value: str | None) -> Opinion:
    """Return the opinion at ``strictness: measured``: a reference that is exact by luck does not accuse a candidate.

    Half precision is accumulated in single, so only the rounding of single precision is owed beyond the reference's
    error, and not a change of the inputs in their own last place.
    """
    found = [owed_by_terms(question, few), owed_by_steps(question, few)]
    owed = [each for each in found if each is not None]
    if owed and not has_any(few.bad & ~(few.candidate <= torch.stack(owed).amax(0))):
        return Opinion("ill_conditioned", _ROUNDED, value)
    far = float(few.candidate[few.bad].max())
    return Opinion(
        "candidate", f"the candidate is off from float64 by up to {far:.3g}, the reference by {error:.3g}", value
    )


def judged_as_a_whole(sides: tuple[torch.Tensor, torch.Tensor], exact: torch.Tensor, tolerance: Tolerance) -> Opinion:
    """Return which side departs from float64 by a metric of the whole tensor."""
    truth = dense(exact).to(sides[1].dtype)
    found = [metric_of(side, truth, tolerance) for side in sides]
    wrong = [has_any(mismatches(side, truth, tolerance)) for side in sides]
    sentence = f"against float64, the candidate: {found[0].text}; the reference: {found[1].text}"
    blame: Blame = "both" if all(wrong) else "candidate" if wrong[0] else "reference" if wrong[1] else "ill_conditioned"
    return Opinion(blame, sentence)


def _second(opinion: Opinion, everywhere: Float64Question, errors: Errors, candidate: torch.Tensor) -> Opinion:
    """Return an opinion, corrected if the float64 result is not the exact one."""
    live, wider, key, runner = everywhere.live, everywhere.wider, everywhere.key, everywhere.reference
    of_the_dtype = [step.target for step in live.program.steps if last_name(step.target) in _OF_THE_DTYPE]
    if of_the_dtype and opinion.blame != "candidate":
        return Opinion("candidate", f"the reference defines this: {of_the_dtype[0]} means something else in float64")
    beside = _beside_the_limit(everywhere, errors, wide(candidate))
    if beside is not None and opinion.blame == "candidate":
        return beside
    is_asked = key[0] == "gradient" and opinion.blame != "both" and runner is None
    third = third_opinion(wider) if is_asked else ""
    return opinion._replace(sentence=opinion.sentence + third)


def _in_float64(
    live: Live, key: tuple[str, GradientKey], dtype: torch.dtype, runs: Float64Runs
) -> tuple[Live, tuple[str, GradientKey]]:
    """Return a program in float64, and the key of one of its tensors there."""
    wider, places = runs.widened(live, dtype)
    index = key[1]
    return wider, (key[0], places[index] if isinstance(index, int) else (places[index[0]], index[1]))


def _exact(wider: Live, key: tuple[str, GradientKey], runner: ReferenceBackend | None) -> torch.Tensor | None:
    """Return a tensor of a program in float64; the gradient of empty outputs is 0 by any formula."""
    found = wanted(wider, key, runner)
    if found is None or key[0] != "gradient" or not is_of_nothing(wider.cotangents):
        return found
    return torch.zeros_like(found)


def _beside_the_limit(question: Float64Question, errors: Errors, candidate: torch.Tensor) -> Opinion | None:
    """Blame the reference if float64 repeats its NaN, and the candidate has the limit instead.

    Args:
        question: About all elements.
        errors: Of both sides.
        candidate: Its value in float64.
    """
    is_odd = errors.bad & torch.isnan(errors.truth) & ~torch.isnan(candidate)
    wrong = errors.bad & (errors.candidate > errors.allowed)
    if candidate.is_complex() or not has_any(wrong) or has_any(wrong & ~is_odd):
        return None
    limit = _limit_of(question)
    if limit is None or limit.shape != candidate.shape:
        return None
    agrees = (limit == candidate) | ((limit - candidate).abs() <= errors.allowed)
    if has_any(wrong & ~agrees):
        return None
    at = tuple(int(i) for i in wrong.nonzero()[0])
    return Opinion(
        "reference",
        "the reference, in float64 too, makes NaN of infinities where its result for ever larger numbers in their "
        "place tends to the candidate's",
        hexadecimal(limit[at]),
    )


def _at(exact: torch.Tensor, bad: torch.Tensor) -> str:
    """Return the oracle's value at the first misaligned element."""
    return hexadecimal(dense(exact)[tuple(int(i) for i in bad.nonzero()[0])] if bad.dim() else dense(exact))


def _distance(side: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Return how far a side is from the oracle's result; exactly for integers, even beyond float64's resolution."""
    if is_whole(side, exact):
        return whole_distance(side, exact)
    return distance_in_range(wide(side), wide(exact), side.dtype)


def _beyond_rounding(question: Float64Question, errors: Errors, few: Errors) -> Errors:
    """Return the errors with a tolerance that includes rounding: a side that is off by rounding only is not wrong."""
    if not (errors.dtype.is_floating_point or errors.dtype.is_complex):
        return errors
    found = [few.allowed, owed_by_terms(question, few), owed_by_steps(question, few)]
    allowed = errors.allowed.reshape(-1).clone()
    owed = torch.stack([each for each in found if each is not None]).amax(0)
    allowed[question.chosen] = torch.where(torch.isfinite(few.truth), owed, few.allowed)
    return errors._replace(allowed=allowed.reshape(errors.allowed.shape))


def blamed(sides: tuple[torch.Tensor, torch.Tensor], exact: torch.Tensor, errors: Errors, value: str | None) -> Opinion:
    """Return which side is wrong, once neither is excused."""
    bad = errors.bad
    far_candidate, far_reference = (bad & (error > errors.allowed) for error in (errors.candidate, errors.reference))
    only_candidate = has_any(far_candidate & ~far_reference)
    only_reference = has_any(far_reference & ~far_candidate)
    neither = Opinion("both", _BOTH, value) if has_any(far_candidate) else Opinion("ill_conditioned", _ROUNDED, value)
    # Each side is wrong somewhere, or neither is wrong by clearly more than the other.
    if only_candidate == only_reference or max(errors.worst) < CLEARLY * min(errors.worst):
        return neither
    names = ("candidate", "reference") if only_candidate else ("reference", "candidate")
    wrong, near = (errors.candidate, errors.reference) if only_candidate else (errors.reference, errors.candidate)
    if is_whole(sides[0], exact) and not has_any(near[bad]):
        sentence = f"integers are exact: the reference's own operators, run again, agree with the {names[1]}"
        return Opinion(names[0], sentence, value)  # type: ignore[arg-type]
    if not float(wrong[bad].max()) > float(near[bad].max()):
        # The side that is wrong somewhere has the smaller greatest error: neither side is the right one.
        return neither
    sentence = _sentence(names, wrong[bad], near[bad]) + _in_ulp(sides, exact, bad)
    return Opinion(names[0], sentence, value)  # type: ignore[arg-type]


def _sentence(sides: tuple[str, str], wrong: torch.Tensor, near: torch.Tensor) -> str:
    far, close = float(wrong.max()), float(near.max())
    if close == 0 or far == float("inf"):
        # Not "is right": float64 uses the reference's own operators and repeats any fault of their formulas.
        own = "the reference's own operators in float64"
        off = "infinitely far off" if math.isinf(far) else f"off by up to {far:.3g}"
        return f"{own} agree with the {sides[1]}; the {sides[0]} is {off}"
    return f"in float64 the {sides[0]} is {times_words(far / close)} farther from the exact result than the {sides[1]}"


def _in_ulp(sides: tuple[torch.Tensor, torch.Tensor], exact: torch.Tensor, bad: torch.Tensor) -> str:
    """Return the distance of each side from the rounded exact result in ULP, ``""`` if ULP are not defined there."""
    found = [ulp_distance(dense(side), dense(exact).to(side.dtype)) for side in sides]
    if any(ulps is None for ulps in found) or has_any(bad & torch.isnan(exact)):
        return ""
    worst = [float(ulps[bad].max()) for ulps in found if ulps is not None]
    shown = ["" if math.isinf(ulps) else ulp_words(round(ulps), None) for ulps in worst]
    return f" (candidate {shown[0]}, reference {shown[1]} from it)" if all(shown) else ""


# Check whether the reference's gradient formula is the derivative of its forward pass.
#
# The float64 oracle computes gradients by the reference's formulas. A wrong formula is wrong in float64, too, and only
# finite differences of the forward pass show it. They are taken along one random direction of all inputs and for one
# random projection of all outputs, so the Jacobian has one element whatever the sizes are.


#: Most elements of all inputs together for which the check runs.
_ELEMENTS: Final = 4096


def third_opinion(live: Live) -> str:
    """Return the result of PyTorch's ``gradcheck`` for a program in float64, ``""`` if it cannot run.

    Args:
        live: In float64, with inputs that require grad.

    Source:
        ``torch.autograd.gradcheck`` (PyTorch 2.13), of the program along one direction. Its own ``fast_mode`` projects
        in the same way, but on failure it computes both full Jacobians for a message that nobody reads here.
    """
    keys = [step.target for step in live.program.body if (spec := step.spec) is not None and spec.requires_grad]
    leaves = {key: live.sources[key].detach() for key in keys}
    is_small = sum(leaf.numel() for leaf in leaves.values()) <= _ELEMENTS
    if not leaves or not is_small or not all(_is_smooth(leaf) for leaf in leaves.values()):
        return ""
    directions = _directions(leaves)

    def along(distance: torch.Tensor) -> torch.Tensor:
        return _projected(live, {key: leaf + distance * directions[key] for key, leaf in leaves.items()})

    origin = torch.zeros((), dtype=torch.float64, requires_grad=True)
    try:
        agrees = torch.autograd.gradcheck(
            along, (origin,), raise_exception=False, check_undefined_grad=False, atol=1e-4
        )  # fmt: skip
    except Exception:  # noqa: BLE001 - a failing check must not lose the finding
        return ""
    if agrees:
        return "; gradcheck confirms the float64 gradient"
    return "; gradcheck does not confirm the float64 gradient: the input is at a kink, or the formula is no derivative"


def _is_smooth(leaf: torch.Tensor) -> bool:
    return leaf.dtype is torch.float64 and bool(torch.isfinite(leaf).all())


def _directions(leaves: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return one direction of length 1 over all leaves, in their shapes."""
    # Seeded, so that a finding has the same sentence in every run.
    generator = torch.Generator().manual_seed(0)
    drawn = {key: torch.randn(leaf.shape, generator=generator, dtype=torch.float64) for key, leaf in leaves.items()}
    length = math.sqrt(sum(float(part.square().sum()) for part in drawn.values()))
    return {key: part / max(length, 1e-300) for key, part in drawn.items()}


def _projected(live: Live, leaves: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return a weighted sum of all outputs, 0-dim; the weights are the same in each call."""
    trace = TorchBackend().run(live.program, {**live.sources, **leaves})
    found = [trace.values[ref.index] for ref in output_refs(live.program)]
    generator = torch.Generator().manual_seed(1)
    total = torch.zeros((), dtype=torch.float64)
    for value in found:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            flat = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
            weights = torch.randn(flat.shape, generator=generator, dtype=torch.float64)
            total = total + (flat * weights).sum() / max(float(weights.norm()), 1e-300)
    return total


# Limits: what a float64 result tends to when ever larger numbers replace the infinities among its inputs.
#
# Float64 repeats the reference's formula, including the NaN that it makes of infinities: the running mean of ``[inf,
# 0]`` is ``inf - inf / 2``. The limit distinguishes such a NaN from a correct one, for example from a NaN among the
# inputs.


#: The two numbers that replace infinity in turn; the square of both is finite in float64.
_LARGE: Final = (1e60, 1e120)
#: Sets of factors for the infinities, each also reversed: a limit must not depend on which of them is greater.
_PATTERNS: Final = 2
#: The greatest of these factors is greater than the least by this.
_SPREAD: Final = 15
#: Factor by which a result must grow to count as infinite in the limit.
_GROWTH: Final = 1e20
_NEAR: Final = 1e-9


def _limit_of(question: Float64Question) -> torch.Tensor | None:
    """Return the limit in the shape of the result, NaN where it does not exist; ``None`` if no input is infinite.

    Args:
        question: About all elements of a real result.
    """
    data = [*question.wider.sources.values(), *question.wider.cotangents.values()]
    if not any(map(_is_infinite, data)):
        return None
    generator = torch.Generator().manual_seed(0)
    found: torch.Tensor | None = None
    for _ in range(_PATTERNS):
        shares = {
            key: torch.rand(value.shape, generator=generator, dtype=torch.float64)
            for key, value in enumerate(data) if _is_infinite(value)
        }  # fmt: skip
        for kept in (shares, {key: 1 - value for key, value in shares.items()}):
            # Both numbers get the same factors, so that only the size of the infinities changes.
            first, second = (_answer(question, large, kept) for large in _LARGE)
            if first is None or second is None or first.is_complex() or first.shape != second.shape:
                return None
            tends = _tends(first, second)
            found = tends if found is None else torch.where(_is_same(found, tends), found, torch.nan)
    return found


def _answer(question: Float64Question, large: float, shares: Mapping[int, torch.Tensor]) -> torch.Tensor | None:
    """Return the answer with a different large number in place of each infinity.

    Args:
        question: The question.
        large: The least of the numbers.
        shares: How far each element is on the way to the greatest one, from 0 to 1, by the place of its tensor.
    """
    sources, cotangents = question.wider.sources, question.wider.cotangents
    grown = [
        torch.where(torch.isinf(value), torch.sign(value) * (1 + _SPREAD * shares[place]) * large, value)
        if place in shares else value
        for place, value in enumerate((*sources.values(), *cotangents.values()))
    ]  # fmt: skip
    return question.answer(
        dict(zip(sources, grown, strict=False)), dict(zip(cotangents, grown[len(sources) :], strict=True))
    )


def _is_infinite(value: torch.Tensor) -> bool:
    return value.dtype is torch.float64 and has_any(torch.isinf(value))


def _tends(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return what two results tend to, the second from larger inputs; NaN where they show no limit."""
    # The sign must stay, because a result that changes it has no limit.
    grows = (second.abs() >= _GROWTH * first.abs()) & (second.abs() >= _GROWTH) & (first.sign() == second.sign())
    stays = torch.isfinite(second) & ((second - first).abs() <= _NEAR * second.abs().clamp_min(_NEAR))
    return torch.where(grows, second.sign() * torch.inf, torch.where(stays, second, torch.nan))


def _is_same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    # The difference of two infinities is no number, or is within any share of them.
    is_number = torch.isfinite(one) & torch.isfinite(other)
    return (one == other) | (is_number & ((one - other).abs() <= _NEAR * one.abs().clamp_min(_NEAR)))

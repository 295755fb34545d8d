"""The verdict on one program: aligned or not, which step, what differs, which side is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from ci_autotest.alignment.blame.oracle import Opinion, judge
from ci_autotest.alignment.device_copies import written_copy
from ci_autotest.alignment.fast_path import overwritten
from ci_autotest.alignment.graph_check import graph_verdict, own_verdict
from ci_autotest.alignment.localize.backward import localize
from ci_autotest.alignment.localize.error_growth import growth
from ci_autotest.alignment.localize.search import Culprit, Examined, Sides, examined
from ci_autotest.alignment.single_step import Live
from ci_autotest.backends.operators.identity import answered_step, spelled, step_operator
from ci_autotest.errors import AuthorError, Unsupported, UnsupportedReason, error_text
from ci_autotest.program.ir import maker_of, step_refs
from ci_autotest.program.refusal import is_demanded
from ci_autotest.values.finding import TOLERATED_BLAMES
from ci_autotest.values.verdict import (
    Cotangent,
    Gradient,
    Misalignment,
    State,
    Verdict,
    is_of_backward,
    unsupported_verdict,
)

if TYPE_CHECKING:
    from ci_autotest.backends.trace import Attempt, GradientKey
    from ci_autotest.program.ir import Program

#: Misalignments of one program that are looked into before it is called ill-conditioned.
_LOOKED_INTO: Final = 12
_BY_DEFINITION: Final = "the reference defines this: float64 is not asked"
_NOT_ASKED: Final = "float64 was not asked who is right: it had ended the worker, and no candidate runs in it"
REFUSED: Final = "the reference raises: there is no value to judge by"
_RETURNS: Final = "the reference returns a result here"
#: Kinds of which float64 has an opinion, where elements differ.
_JUDGED: Final = frozenset({"value", "gradient", "mutation", "state"})


class Judged(NamedTuple):
    """A verdict with the program that shows it: the culprit alone, or the whole."""

    verdict: Verdict
    live: Live


def live_of(attempt: Attempt) -> Live:
    """Return an attempt's program with its data."""
    return Live(attempt.program, attempt.sources, attempt.cotangents)


def judge_program(live: Live, sides: Sides) -> Judged:
    """Run a program on both sides and say everything that is to be said of it.

    Args:
        live: The program with its data.
        sides: The two backends and the rules.
    """
    seen = examined(live, sides)
    candidate, reference = seen.candidate, seen.reference
    if reference.failure is not None:
        step = live.program.steps[reference.failure.step]
        message = f"the recording cannot be run again on the reference: {step.target}: {reference.failure.message}"
        raise AuthorError(message)
    unsupported, differences = counted_differences(live.program, seen)
    if unsupported is not None:
        return Judged(unsupported_verdict(unsupported), live)
    own = own_verdict(live, sides)
    if own is not None:
        return Judged(*own)
    excused = None
    looked_at: set[tuple[int, str]] = set()
    doubts = len(differences[:_LOOKED_INTO])
    for i, found in enumerate([*differences[:_LOOKED_INTO], *seen.doubtful[:_LOOKED_INTO]]):
        culprit = localize(live, found, (candidate, reference), sides)
        if i >= doubts and not culprit.is_alone:
            continue  # It follows from a choice that an operator left open, and no step is misaligned alone.
        at = culprit.call, culprit.misalignment.kind
        if culprit.is_alone and at in looked_at:
            continue
        looked_at.add(at)
        judged = _judged(culprit, sides)
        if judged.verdict.blame not in TOLERATED_BLAMES:
            return judged
        # What is not the candidate's fault never hides what is: the first that counts is told.
        if excused is None or excused.verdict.outcome == "aligned":
            excused = judged
    graph = graph_verdict(live, sides) if sides.rules.check_graph else None
    if graph is not None:
        return Judged(*graph)
    return excused or Judged(Verdict(outcome="aligned"), live)


def _judged(culprit: Culprit, sides: Sides) -> Judged:
    """Return the verdict on a culprit: the first that counts of what differs there, else the first."""
    first = Judged(_verdict(culprit, sides), culprit.live)
    for other in culprit.others[:_LOOKED_INTO] if first.verdict.blame in TOLERATED_BLAMES else ():
        verdict = _verdict(culprit._replace(misalignment=other), sides)
        if verdict.blame not in TOLERATED_BLAMES:
            return Judged(verdict, culprit.live)
    return first


def counted_differences(program: Program, seen: Examined) -> tuple[Unsupported | None, list[Misalignment]]:
    """Return why the case is unsupported, ``None`` where it is not, and the differences that count.

    A value that is wrong is told even where the candidate has no gradient of it; aligned would claim more than was
    compared.
    """
    candidate = seen.candidate
    failure = candidate.failure
    if failure is not None and failure.lacking is not None:
        return _told_of(operator_at(program, failure.step)[0], failure.lacking), []
    if candidate.untested is not None:
        return candidate.untested, []
    written = written_copy(program.steps, (candidate, seen.reference), overwritten(seen.reference))
    if written:
        detail = f"{written} is written to: on the device it is a copy, on the reference its argument itself"
        return Unsupported(UnsupportedReason.COPIED, detail), []
    no_gradient = _no_gradient(program, seen)
    if no_gradient is None:
        return None, seen.differences
    forward = [item for item in seen.differences if not is_of_backward(item.at)]
    return (None if forward else no_gradient), forward


def _told_of(what: str, why: Unsupported) -> Unsupported:
    """Return why something is unsupported, with its name where a device has no kernel of it."""
    return why._replace(detail=f"{what}: {why.detail}") if why.reason is UnsupportedReason.NO_KERNEL else why


def _no_gradient(program: Program, seen: Examined) -> Unsupported | None:
    """Return which kernel the candidate's backward pass lacks, where the reference has one; else ``None``.

    What a user's backward pass does not implement is its error.
    """
    why = seen.candidate.backward_lacking
    if why is None or why.reason is not UnsupportedReason.NO_KERNEL or seen.reference.backward_failure is not None:
        return None
    operators = ", ".join(dict.fromkeys(operator_at(program, index)[0] for index, _ in program.calls))
    return _told_of(f"backward pass of {operators}", why)


def _verdict(culprit: Culprit, sides: Sides) -> Verdict:
    operator, target = operator_at(culprit.live.program, _to_blame(culprit))
    opinion = _opinion(culprit, sides)
    return Verdict(
        outcome="aligned" if opinion.blame == "ill_conditioned" else "misaligned",
        operator=operator,
        target=target,
        kind=culprit.misalignment.kind,
        blame=opinion.blame,
        step=culprit.step,
        accumulated=culprit.accumulated,
        misalignment=culprit.misalignment,
        oracle=opinion.sentence,
        oracle_value=opinion.value,
        is_demanded=is_demanded(culprit.live.program.steps[culprit.step]),
        growth=growth(culprit.live.program, culprit.candidate, culprit.reference) if culprit.accumulated else (),
    )


def operator_at(program: Program, index: int) -> tuple[str, str]:
    """Return the operator of a step, and its target as a reader looks it up."""
    step = program.steps[maker_of(program.steps, index)]
    return step_operator(step, program.steps), spelled(step)


def _to_blame(culprit: Culprit) -> int:
    """Return the step whose operator names the finding: the candidate computes it, and what differs follows from it."""
    if culprit.is_alone or culprit.misalignment.kind == "leniency":
        return culprit.step  # Of a misuse that was accepted, the call that should have been refused.
    steps, index = culprit.live.program.steps, culprit.step
    has_backward = culprit.misalignment.kind == "gradient"
    if has_backward:
        # The gradient came through the backward pass of the last call that uses the value.
        users = [i for i, step in culprit.live.program.calls if any(ref.index == index for ref in step_refs(step))]
        index = users[-1] if users else index
    return answered_step(steps, index, culprit.candidate.answered, has_backward=has_backward)


def _opinion(culprit: Culprit, sides: Sides) -> Opinion:
    misalignment = culprit.misalignment
    if misalignment.kind == "error":
        return Opinion("candidate", _RETURNS)
    if misalignment.kind == "leniency":
        return Opinion("candidate", REFUSED)
    if misalignment.difference is None or misalignment.kind not in _JUDGED or isinstance(misalignment.at, Cotangent):
        return Opinion("candidate", _BY_DEFINITION)
    key, tensors = _tensors(culprit, misalignment)
    if tensors is None:
        return Opinion("candidate", _BY_DEFINITION)
    dtype = str(tensors[1].dtype).removeprefix("torch.")
    tolerance = sides.rules.tolerance(sides.rules.operators(culprit.live.program.steps), dtype)
    if sides.in_float64 is None:
        return Opinion("unknown", _NOT_ASKED)
    try:
        with sides.in_float64():
            return judge(culprit.live, key, *tensors, tolerance)
    except Exception as error:  # noqa: BLE001 - it runs the reference's operators, which may find no memory
        return Opinion("unknown", f"float64 could not be asked: {type(error).__name__}: {error_text(error)[:300]}")


def _tensors(
    culprit: Culprit, misalignment: Misalignment
) -> tuple[tuple[str, GradientKey], tuple[torch.Tensor, torch.Tensor] | None]:
    """Return which tensor differs, and both sides of it."""
    index = misalignment.step
    if misalignment.kind == "value":
        sides = (culprit.candidate.observations[index], culprit.reference.observations[index])
        return ("value", index), _pair([side.data for side in sides if side is not None])
    if misalignment.kind in {"mutation", "state"}:
        ends = [side.values[index] for side in (culprit.candidate, culprit.reference)]
        if misalignment.kind == "mutation":
            return ("value", index), _pair(ends)
        name = misalignment.at.name if isinstance(misalignment.at, State) else ""
        return ("state", (index, name)), _pair([module.state_dict().get(name) for module in ends])
    key = _gradient_key(misalignment)
    left, right = culprit.candidate.gradients.get(key), culprit.reference.gradients.get(key)
    return ("gradient", key), ((left, right) if left is not None and right is not None else None)


def _pair(found: list[Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
    tensors = [side.detach() for side in found if isinstance(side, torch.Tensor)]
    return (tensors[0], tensors[1]) if len(tensors) == 2 else None  # noqa: PLR2004 - two sides


def _gradient_key(misalignment: Misalignment) -> GradientKey:
    parameter = misalignment.at.parameter if isinstance(misalignment.at, Gradient) else ""
    return (misalignment.step, parameter) if parameter else misalignment.step

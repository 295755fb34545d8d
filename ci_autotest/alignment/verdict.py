"""The verdict on one program: whether it is aligned, which step differs, how, and which side is wrong."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import torch

from ci_autotest.alignment.aliasing import written_copy
from ci_autotest.alignment.blame.float64_runs import Float64Runs
from ci_autotest.alignment.blame.oracle import Opinion, judge
from ci_autotest.alignment.error_pattern import inputs_of, pattern_of
from ci_autotest.alignment.examination import Culprit, ExaminedProgram, TrialSides, examined
from ci_autotest.alignment.fast_path import is_surely_aligned
from ci_autotest.alignment.localize import PassSearch, StepSearch, growth
from ci_autotest.alignment.memory_guard import KINDS, explained, guarded_programs, is_beside_result, is_out_of_bounds
from ci_autotest.alignment.single_step import Live
from ci_autotest.backends.operators.identity import answered_step, spelled, step_operator
from ci_autotest.backends.torch_constants import DTYPE_NAMES
from ci_autotest.backends.trace import overwritten
from ci_autotest.errors import AuthorError, Unsupported, UnsupportedReason, error_text
from ci_autotest.program.edit import follows_from, maker_of, users, with_mode
from ci_autotest.program.ir import CANDIDATE_MODES, EXPECT, OPERATOR_CHECKS, REGISTERS
from ci_autotest.program.refusal import is_demanded, refused_as
from ci_autotest.values.finding import TOLERATED_BLAMES
from ci_autotest.values.verdict import (
    Call,
    Cotangent,
    Gradient,
    Misalignment,
    State,
    Verdict,
    is_of_backward,
    unsupported_verdict,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ci_autotest.alignment.memory_guard import Guarded
    from ci_autotest.backends.trace import Attempt, Expectation, GradientKey, Trace
    from ci_autotest.program.ir import Program
    from ci_autotest.values.error_pattern import ErrorPattern
    from ci_autotest.values.tolerance import Tolerance


#: Most misalignments of one program that are judged before it is called ill-conditioned.
_LOOKED_INTO: Final = 12
_ALIGNED: Final = Verdict(outcome="aligned")
_BY_DEFINITION: Final = "the reference defines this, so float64 is not asked"
_NOT_ASKED: Final = "float64 was not asked who is right: it had ended the worker, and no candidate runs in it"
REFUSED: Final = "the reference raises: there is no value to judge by"
_EXPECTED: Final = "the test expects this value, so float64 is not asked"
_OF_ITSELF: Final = "the candidate shows this by itself, so float64 is not asked"
_RETURNS: Final = "the reference returns a result here"
#: Why a candidate may have no gradient where the reference has one.
_NO_GRADIENT: Final = frozenset({
    UnsupportedReason.NO_KERNEL, UnsupportedReason.NO_SHARDING_RULE, UnsupportedReason.PLACEMENT_REFUSED,
    UnsupportedReason.NOT_SIMULATED, UnsupportedReason.NO_COUNTERPART, UnsupportedReason.NOT_TRAINED,
})  # fmt: skip
#: Kinds that float64 can judge, because elements differ.
_JUDGED: Final = frozenset({"value", "gradient", "mutation", "state"})


class Judged(NamedTuple):
    """A verdict with the program that shows it: the culprit alone or the whole program.

    Attributes:
        expectation: What the candidate was held against; ``None`` for the reference's run of the whole program.
        trace: The candidate's run, if the reference rejected the attempt; its calls count as those of cases do.
        is_first_run_off: Whether the case is aligned in every later run, so that errors of the first mean nothing: the
            reference differed from itself.
    """

    verdict: Verdict
    live: Live
    expectation: Expectation | None = None
    trace: Trace | None = None
    is_first_run_off: bool = False


def live_of(attempt: Attempt) -> Live:
    """Return an attempt's program with its data."""
    return Live(attempt.program, attempt.sources, attempt.cotangents)


def judge_program(live: Live, sides: TrialSides) -> Judged:
    """Run a program on both sides and return the verdict.

    Args:
        live: The program with its data.
        sides: The two backends and the rules.
    """
    # First with bands, because a write out of bounds would ruin memory of this process.
    guarded = judged_with_guard(live, sides) if sides.has_guard else None
    if guarded is not None and not _is_set_aside(guarded.verdict, sides):
        return guarded
    judged = _judged_as_it_is(live, sides)
    is_checked = sides.checks_operators and _has_right_values(judged.verdict)
    checked = judged_operators(live, sides) if is_checked else None
    return judged if checked is None or _is_set_aside(checked.verdict, sides) else checked


def _is_set_aside(verdict: Verdict, sides: TrialSides) -> bool:
    """Whether a difference is accepted and passed over."""
    return sides.rules.sets_aside(verdict.operator, verdict.kind)


def judged_operators(live: Live, sides: TrialSides) -> Judged | None:
    """Return the verdict on an operator that does not do what it declares to torch; ``None`` if all do."""
    for program in _checked_programs(live) if sides.candidate.has_operators() else ():
        judged = _judged_as_it_is(program, sides)
        if _is_failed_check(judged.verdict):
            return judged
    return None


def _judged_as_it_is(live: Live, sides: TrialSides) -> Judged:
    seen = examined(live, sides)
    failure = seen.reference.failure
    if failure is not None:
        step = live.program.steps[failure.step]
        message = f"the recording cannot be run again on the reference: {step.target}: {failure.message}"
        raise AuthorError(message)
    unsupported, differences = counted_differences(live.program, seen)
    if unsupported is not None:
        return Judged(unsupported_verdict(unsupported), live)
    # A graph that departs from its own eager mode is wrong whatever the reference gives.
    own = _own_verdict(live, sides)
    if own is not None and not _is_set_aside(own[0], sides):
        return Judged(*own)
    excused = None
    for judged in _judgements(live, seen._replace(differences=differences), sides):
        if judged.verdict.blame not in TOLERATED_BLAMES:
            return judged
        # A difference that is not the candidate's fault must not hide one that is: the first that counts is reported.
        if excused is None or excused.verdict.outcome == "aligned":
            excused = judged
    graph = _graph_verdict(live, sides) if sides.rules.check_graph else None
    if graph is not None and not _is_set_aside(graph[0], sides):
        return Judged(*graph)
    return excused or Judged(_ALIGNED, live)


def _judgements(live: Live, seen: ExaminedProgram, sides: TrialSides) -> Iterator[Judged]:
    """Yield the verdicts on the culprits of differences that are not set aside, in order."""
    looked_at: set[tuple[int, str]] = set()
    passed: set[int] = set()
    search = PassSearch(live, (seen.candidate, seen.reference), sides)
    # Of each culprit, because many values may follow from one gradient.
    verdicts: list[tuple[Culprit, Judged]] = []
    certain = seen.differences[:_LOOKED_INTO]
    for i, found in enumerate([*certain, *seen.doubtful[:_LOOKED_INTO]]):
        culprit = search.culprit(found)
        if not culprit.is_alone and (i >= len(certain) or _follows(live.program, found, passed)):
            continue  # It follows from a choice that an operator leaves open, or from an accepted difference.
        at = culprit.call, culprit.misalignment.kind
        if culprit.is_alone and at in looked_at:
            continue
        looked_at.add(at)
        known = next((judged for other, judged in verdicts if other is culprit), None)
        judged = known or _judged(culprit, sides)
        verdicts.append((culprit, judged))
        if _is_set_aside(judged.verdict, sides):
            passed.add(culprit.call if culprit.is_alone else maker_of(live.program.steps, found.step))
        elif known is None:
            yield judged


def _follows(program: Program, found: Misalignment, passed: Collection[int]) -> bool:
    """Whether a difference may follow from an accepted one: forward from its call, and for a gradient back from it."""
    steps = program.steps
    if is_of_backward(found.at):
        return any(found.step in follows_from(steps, call) for call in passed)
    return not follows_from(steps, found.step).isdisjoint(passed)


def judged_with_guard(live: Live, sides: TrialSides) -> Judged | None:
    """Return the verdict on a program with guard bands around inputs and results; ``None`` if the candidate is right.

    A difference that is the same whatever the bands hold is no access out of bounds.
    """
    found = _out_of_bounds(live, sides, ("results", "inputs"))
    if found is None:
        return None
    # A finding has the bands alone that it is about. A write would ruin memory of this process without its bands, and a
    # read beside an input without bands gives anything, so that each is looked at with the bands that it needs first.
    is_written = is_out_of_bounds(found.verdict, found.live)
    if is_written and is_beside_result(found.verdict):
        return _out_of_bounds(live, sides, ("results",)) or found
    inputs = _out_of_bounds(live, sides, ("inputs",))
    return (inputs or found) if is_written else (inputs or _out_of_bounds(live, sides, ("results",)) or found)


def _out_of_bounds(live: Live, sides: TrialSides, guarded: Sequence[Guarded]) -> Judged | None:
    """Return the verdict on a write into a band, or on a result that depends on the bands."""
    found = []
    for banded in guarded_programs(live, guarded):
        with suppress(AuthorError):  # The reference refuses the views, for example as leaves that are written to.
            is_sure = _is_surely_aligned(banded, sides)
            found.append(Judged(_ALIGNED, banded) if is_sure else _judged_as_it_is(banded, sides))
    shown = [each for each in found if each.verdict.kind in KINDS and each.verdict.blame not in TOLERATED_BLAMES]
    written = [each for each in shown if is_out_of_bounds(each.verdict, each.live)]
    if written:
        return written[0]
    if not found and "results" in guarded and len(guarded) > 1:
        return _out_of_bounds(live, sides, ("results",))
    seen = [each.verdict.misalignment and each.verdict.misalignment.difference for each in found]
    return shown[0] if shown and any(each != seen[0] for each in seen) else None


def _is_surely_aligned(live: Live, sides: TrialSides) -> bool:
    """Whether one look at a run of both sides is enough."""
    traces = []
    for side in (sides.candidate, sides.reference):
        trace = side.run(live.program, live.sources)
        if live.cotangents and trace.failure is None:
            side.backward(live.program, trace, live.cotangents)
        traces.append(trace)
    return is_surely_aligned(live.program, traces[0], traces[1], sides.rules)


def _judged(culprit: Culprit, sides: TrialSides) -> Judged:
    """Return the verdict on a culprit: on its first difference that counts, else on the first."""
    expectation = culprit.candidate.expectation
    first = Judged(_verdict(culprit, sides), culprit.live, expectation)
    for other in culprit.others[:_LOOKED_INTO] if first.verdict.blame in TOLERATED_BLAMES else ():
        verdict = _verdict(culprit._replace(misalignment=other), sides)
        if verdict.blame not in TOLERATED_BLAMES:
            return Judged(verdict, culprit.live, expectation)
    return first


def counted_differences(program: Program, seen: ExaminedProgram) -> tuple[Unsupported | None, list[Misalignment]]:
    """Return why the case is unsupported, ``None`` if it is not, and the differences that count.

    A wrong value is reported even if the candidate has no gradient. If all values agree, the case is unsupported,
    because aligned would claim more than was compared.
    """
    candidate = seen.candidate
    failure = candidate.failure
    if failure is not None and failure.lacking is not None:
        return _with_name(operator_at(program, failure.step)[0], failure.lacking), []
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


def _with_name(what: str, why: Unsupported) -> Unsupported:
    """Return a reason, with the name of the operator if a device has no kernel for it."""
    return why._replace(detail=f"{what}: {why.detail}") if why.reason is UnsupportedReason.NO_KERNEL else why


def _no_gradient(program: Program, seen: ExaminedProgram) -> Unsupported | None:
    """Return the kernel that the candidate's backward pass lacks and the reference's has; else ``None``.

    If a user's own backward pass raises ``NotImplementedError``, that is an error of the kernel.
    """
    why = seen.candidate.backward_lacking
    if why is None or why.reason not in _NO_GRADIENT or seen.reference.backward_failure is not None:
        return None
    operators = ", ".join(dict.fromkeys(operator_at(program, index)[0] for index, _ in program.calls))
    return _with_name(f"backward pass of {operators}", why)


def _verdict(culprit: Culprit, sides: TrialSides) -> Verdict:
    operator, target = operator_at(culprit.live.program, _to_blame(culprit))
    opinion = _opinion(culprit, sides)
    is_excused = opinion.blame == "ill_conditioned"
    has_grown = culprit.accumulated and not is_excused
    return Verdict(
        outcome="aligned" if is_excused else "misaligned",
        operator=operator,
        target=target,
        kind=culprit.misalignment.kind,
        blame=opinion.blame,
        step=culprit.step,
        accumulated=culprit.accumulated,
        misalignment=_with_expectation(explained(culprit.misalignment, culprit.live), culprit.candidate),
        oracle=opinion.sentence,
        oracle_value=opinion.value,
        is_demanded=is_demanded(culprit.live.program.steps[culprit.step]),
        growth=growth(culprit.live.program, culprit.candidate, culprit.reference) if has_grown else (),
        pattern=None if is_excused else _pattern(culprit, sides),
    )


def _with_expectation(found: Misalignment, candidate: Trace) -> Misalignment:
    """Return a difference that says what the candidate was held against, if that is not the whole program."""
    if candidate.expectation is None or found.kind in {"rank", "error"}:  # no value was held against another
        return found
    detail = ". ".join(filter(None, (candidate.expectation.sentence, found.detail)))
    return msgspec.structs.replace(found, detail=detail)


def operator_at(program: Program, index: int) -> tuple[str, str]:
    """Return the operator of a step, and its target in the spelling of the documentation."""
    step = program.steps[maker_of(program.steps, index)]
    return step_operator(step, program.steps), spelled(step)


def _to_blame(culprit: Culprit) -> int:
    """Return the step that names the finding: one that the candidate computes and that the difference follows from."""
    if culprit.is_alone or culprit.misalignment.kind == "leniency":
        return culprit.step  # For leniency, this is the call that should have been refused.
    steps, index = culprit.live.program.steps, culprit.step
    replaced = culprit.candidate.replaced
    if replaced:
        return max(replaced & follows_from(steps, index), default=max(replaced))
    has_backward = culprit.misalignment.kind == "gradient"
    if has_backward:
        # The gradient came from the backward pass of the last call that uses the value.
        uses = users(culprit.live.program, index)
        index = uses[-1] if uses else index
    return answered_step(steps, index, culprit.candidate.answered, has_backward=has_backward)


def _pattern(culprit: Culprit, sides: TrialSides) -> ErrorPattern | None:
    """Return the pattern of the tensor that differs; ``None`` if no tensor does."""
    misalignment = culprit.misalignment
    if misalignment.difference is None or misalignment.kind not in _JUDGED or isinstance(misalignment.at, Cotangent):
        return None
    _, tensors = _tensors(culprit, misalignment)
    if tensors is None:
        return None
    steps, has_backward = culprit.live.program.steps, is_of_backward(misalignment.at)
    # An element of a tuple is a step of its own; what was computed is the call that made the tuple.
    step = misalignment.step if has_backward else maker_of(steps, misalignment.step)
    inputs = inputs_of(culprit.live.program, step, culprit.reference, has_backward=has_backward)
    return pattern_of(tensors, inputs, _tolerance(culprit, tensors[1], sides))


def _tolerance(culprit: Culprit, reference: torch.Tensor, sides: TrialSides) -> Tolerance:
    dtype = DTYPE_NAMES[reference.dtype]
    of = culprit.misalignment.step if culprit.misalignment.kind == "value" else None
    operators = sides.rules.operators(culprit.live.program.steps, culprit.reference.values, of)
    return sides.rules.tolerance(operators, dtype)


def _opinion(culprit: Culprit, sides: TrialSides) -> Opinion:
    misalignment = culprit.misalignment
    if misalignment.kind == "error":
        return Opinion("candidate", _RETURNS)
    if misalignment.kind in {"mutation", "metadata"} and isinstance(misalignment.at, Call):
        return Opinion("candidate", _OF_ITSELF)
    if misalignment.kind == "leniency":
        return Opinion("candidate", REFUSED)
    if culprit.live.program.steps[misalignment.step].target == EXPECT:
        return Opinion("candidate", _EXPECTED)
    if misalignment.difference is None or misalignment.kind not in _JUDGED or isinstance(misalignment.at, Cotangent):
        return Opinion("candidate", _BY_DEFINITION)
    key, tensors = _tensors(culprit, misalignment)
    if tensors is None:
        return Opinion("candidate", _BY_DEFINITION)
    tolerance = _tolerance(culprit, tensors[1], sides)
    if sides.in_float64 is None:
        return Opinion("unknown", _NOT_ASKED)
    try:
        with sides.in_float64():
            expectation = culprit.candidate.expectation
            runner = expectation.reference if expectation else None
            runs = culprit.runs if runner is None else Float64Runs(runner)
            return judge(culprit.live, key, *tensors, tolerance, runs)
    except Exception as error:  # noqa: BLE001 - it runs the reference's operators, which may find no memory
        return Opinion("unknown", f"float64 could not be asked: {type(error).__name__}: {error_text(error)[:300]}")


def _tensors(
    culprit: Culprit, misalignment: Misalignment
) -> tuple[tuple[str, GradientKey], tuple[torch.Tensor, torch.Tensor] | None]:
    """Return the key of the tensor that differs, and both sides of it."""
    index = misalignment.step
    if misalignment.kind == "value":
        # Of a value that is shown at the end of the run alone there is no copy from its step.
        traces = (culprit.candidate, culprit.reference)
        seen = [(trace, trace.observations[index]) for trace in traces]
        return ("value", index), _pair([trace.values[index] if one is None else one.data for trace, one in seen])
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


# The graph check: compare a candidate's compiled graph with its own eager result.
# The candidate is to blame, as both results are its own; so it is if its body is not the single graph asked for.


_WHY: Final = "the same program differs from the candidate's own eager result"


def _graph_verdict(live: Live, sides: TrialSides) -> tuple[Verdict, Live] | None:
    """Return the verdict on a candidate's graph mode with the program that shows it; ``None`` if it is aligned.

    Args:
        live: The program with its data.
        sides: The candidate, whose eager result is aligned with the reference's.
    """
    graph = sides.candidate.as_graph()
    if graph is None:
        lacking = sides.candidate.lacks_graph
        if not lacking:
            return None
        return unsupported_verdict(Unsupported(UnsupportedReason.NO_GRAPH, f"check_graph: {lacking}")), live
    return _compared(live, sides._replace(candidate=graph, reference=sides.candidate))


def _own_verdict(live: Live, sides: TrialSides) -> tuple[Verdict, Live] | None:
    """Return how a candidate that is a graph mode departs from its own eager mode; ``None`` if it does not.

    Args:
        live: The program with its data.
        sides: The candidate, of any kind.
    """
    eager = sides.candidate.as_eager()
    return None if eager is None else _compared(live, sides._replace(reference=eager))


def _compared(live: Live, own: TrialSides) -> tuple[Verdict, Live] | None:
    differences, compiled, eager, _ = examined(live, own)
    # A graph that tested nothing must not count as one that agrees.
    if compiled.untested is not None:
        why = Unsupported(compiled.untested.reason, f"check_graph: {compiled.untested.detail}")
        return unsupported_verdict(why), live
    if not differences:
        return None
    return _verdict_on_graph(StepSearch(live, (compiled, eager), own).culprit(differences[0]))


def _verdict_on_graph(culprit: Culprit) -> tuple[Verdict, Live]:
    steps = culprit.live.program.steps
    found = culprit.misalignment
    at = culprit.step
    # Otherwise the finding names a step that the candidate computes itself.
    if not culprit.is_alone:
        at = answered_step(steps, at, culprit.candidate.answered, has_backward=found.kind == "gradient")
    step = steps[at]
    detail = found.detail or f"{found.kind} of the graph differs"
    misalignment = msgspec.structs.replace(found, kind="graph", detail=detail)
    verdict = Verdict(
        outcome="misaligned", operator=step_operator(step, steps), target=spelled(step), kind="graph",
        blame="candidate", step=culprit.step, accumulated=culprit.accumulated, misalignment=misalignment, oracle=_WHY,
    )  # fmt: skip
    return verdict, culprit.live


# Programs in which the operators of a candidate's libraries are checked: a mode at each call, one check a program.
# A check is an error of its call, so that localizing, shrinking and repros treat a failure as they do any other.


def _checked_programs(live: Live) -> Iterator[Live]:
    """Yield a program with each check: first of the schema, last of a graph with the gradient."""
    program = live.program
    if any(not CANDIDATE_MODES.isdisjoint(step.modes) for step in program.steps):
        return
    # A random operator differs from itself, in a graph as elsewhere.
    certain = ((i, step) for i, step in program.calls if step.seed is None)
    calls = [i for i, step in certain if refused_as(step) is None and REGISTERS[0] not in step.modes]
    for mode in OPERATOR_CHECKS:
        yield live._replace(program=with_mode(program, mode, calls))


def _is_failed_check(verdict: Verdict) -> bool:
    """Whether a verdict is that an operator does not do what it declares."""
    found = verdict.misalignment
    return found is not None and found.kind == "metadata" and isinstance(found.at, Call)


def _has_right_values(verdict: Verdict) -> bool:
    """Whether nothing is wrong with the values of a case, which a failed check must not hide."""
    found = verdict.misalignment
    if verdict.outcome != "misaligned" or found is None:
        return verdict.outcome == "aligned"
    # A gradient that is missing may be what a check explains; one of another value is not.
    return found.kind == "metadata" or (is_of_backward(found.at) and found.difference is None)

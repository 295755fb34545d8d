"""Find the step that is misaligned if it gets the reference's inputs.

Values are searched in program order, gradients from the output back to the leaf. Each step gets the
gradient that the reference had there. If no step is misaligned alone, the error is accumulated and
the whole program is the finding.

If a compiler takes calls only together with others, no step alone shows the difference, because PyTorch runs a step
that the compiler does not take. So graphs of calls are searched there.

``loss.backward()`` and ``x.grad`` are steps, but no step alone is wrong if an operator's backward pass is. The body is
therefore cut at such a pass, ci-autotest runs the pass, and the result is searched like any other program. Passes are
tried in program order.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from ci_autotest.alignment.blame.float64_runs import Float64Runs
from ci_autotest.alignment.differences import is_of_hook
from ci_autotest.alignment.elements import difference
from ci_autotest.alignment.examination import (
    TRIED_AT_MOST,
    Culprit,
    ExaminedProgram,
    TrialSides,
    examined,
    is_alike,
    last_call,
)
from ci_autotest.alignment.memory_guard import is_guarded
from ci_autotest.alignment.single_step import Live, inlined, isolate, pruned
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.sameness import same_bits
from ci_autotest.errors import ProgramError
from ci_autotest.program.backward_passes import GRAD, PASSES
from ci_autotest.program.codegen import names
from ci_autotest.program.edit import ending_at, follows_from, maker_of, until, users
from ci_autotest.program.expectations import without_expectations
from ci_autotest.program.ir import (
    EXPECT,
    List,
    Program,
    Ref,
    Step,
    is_unpacking,
    output_refs,
    refs,
)
from ci_autotest.values.tolerance import Tolerance
from ci_autotest.values.verdict import Call, Cotangent, StepError, is_of_backward

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Trace
    from ci_autotest.program.ir import Argument
    from ci_autotest.values.verdict import Misalignment

#: Times the tolerance from which on a difference is no sum of errors of rounding.
_FAR: Final = 1_000
#: Kinds that are so or not: no error accumulates.
_YES_OR_NO: Final = frozenset({"leniency", "aliasing", "rank"})
_SEVERAL: Final = 2
_TOGETHER_ONLY: Final = "the compiler takes {} only together; any of them may be at fault"
_WRONG_TOGETHER: Final = "the compiler is right about each call alone, and wrong about {} together"


class StepSearch:
    """The search for the culprits of the misalignments of one program.

    Args:
        live: The program.
        traces: The candidate's and the reference's trace of it, with snapshots.
        sides: The two backends.
    """

    def __init__(self, live: Live, traces: tuple[Trace, Trace], sides: TrialSides) -> None:
        self._live, self._traces, self._sides = live, traces, sides
        #: Of the whole program, of which many tensors may differ if errors accumulate.
        self._runs = Float64Runs()
        #: Whether PyTorch ran a step that was tried alone, because the compiler takes it only with others.
        self._is_left_alone = False

    @cached_property
    def _whole(self) -> tuple[Live, ExaminedProgram]:
        """The program without what its author expects, and its differences."""
        whole = pruned(self._live._replace(program=without_expectations(self._live.program)))
        return whole, examined(whole, self._sides)

    def culprit(self, found: Misalignment) -> Culprit:
        """Return the culprit of one misalignment."""
        live, sides = self._live, self._sides
        backward = is_of_backward(found.at)
        # With the reference's inputs, the last step would be held against what the whole body is to give.
        is_expected = live.program.steps[found.step].target == EXPECT
        alone = None if is_guarded(live.program) or is_expected else self._alone(found, backward=backward)
        if alone is not None:
            return alone
        has_graph = self._is_left_alone or (not sides.candidate.shows_steps and _is_beyond_rounding(found))
        if has_graph and not backward:
            together = _culprit_of_graph(live, found, sides, is_right_alone=not self._is_left_alone)
            if together is not None:
                return together
        # After a step that only one side refuses, the programs are no longer comparable.
        is_cut = (found.kind == "leniency" and not backward) or is_expected
        if is_cut:
            whole = pruned(live._replace(program=ending_at(live.program, found.step), cotangents={}))
            seen = examined(whole, sides)
        else:
            whole, seen = self._whole
        shown = next((item for item in seen.differences if is_alike(item, found)), None)
        if shown is None:
            whole, shown, seen = live, found, ExaminedProgram([found], *self._traces, [])
        written = None if backward else _written_later(whole, shown, seen, sides)
        can_accumulate = not (is_guarded(live.program) or is_expected) and shown.kind not in _YES_OR_NO
        is_accumulated = len(whole.program.calls) > 1 and can_accumulate and not seen.candidate.replaced
        runs = self._runs if not is_cut and whole is self._whole[0] else None
        return written or Culprit(
            whole, shown.step, shown, seen.candidate, seen.reference, accumulated=is_accumulated, runs=runs
        )

    def _alone(self, found: Misalignment, *, backward: bool) -> Culprit | None:
        """Return the step that is misaligned alone, with the reference's inputs, if there is one."""
        live, sides = self._live, self._sides
        weights = weights_of(live, self._traces[1]) if backward else {}
        for index in _suspects(live, found, self._traces[0], backward=backward):
            alone = pruned(isolate(live, index, sides.reference, weights, self._traces[0].distributions))
            if backward and not alone.cotangents:
                continue
            seen = examined(alone, sides)
            same = [item for item in seen.differences if is_alike(item, found)]
            self._is_left_alone |= seen.candidate.delegation is not None and seen.candidate.delegation.part == "nothing"
            # A pass or compiler that gets a part of the body may refuse just that.
            if same and not sides.candidate.shows_steps and same[0].kind == "error" != found.kind:
                continue
            if same:
                return Culprit(
                    alone, last_call(alone), same[0], seen.candidate, seen.reference,
                    accumulated=False, is_alone=True, call=index, others=tuple(same[1:]),
                )  # fmt: skip
        return None


def _written_later(live: Live, shown: Misalignment, seen: ExaminedProgram, sides: TrialSides) -> Culprit | None:
    """Return the call that changes an earlier value on the candidate alone, if the difference depends on that value.

    Examples are a workspace that the next call overwrites and writes beyond an input: no call alone shows that.
    """
    steps = live.program.steps
    rests_on = follows_from(steps, shown.step)
    for item in seen.differences:
        if item.kind != "mutation" or item.step not in rests_on or isinstance(item.at, Cotangent):
            continue
        writer = _writer(live, item.step, sides)
        if writer is not None:
            detail = f"the value of {names(live.program)[item.step]} was changed by a later call"
            changed = msgspec.structs.replace(item, detail=f"{detail}. {item.detail}" if item.detail else detail)
            return Culprit(live, writer, changed, seen.candidate, seen.reference, accumulated=False)
    return None


def _writer(live: Live, index: int, sides: TrialSides) -> int | None:
    """Return the call that changes an earlier value on the candidate and not on the reference."""
    program = live.program
    for call, _ in [item for item in program.calls if item[0] > index][:TRIED_AT_MOST]:
        changed = [
            _has_changed(side.run(until(program, call + 1), live.sources, snapshots=True), index)
            for side in (sides.candidate, sides.reference)
        ]
        if changed == [True, False]:
            return call
    return None


def _has_changed(trace: Trace, index: int) -> bool:
    seen = trace.observations[index] if index < len(trace.observations) else None
    now = trace.values[index] if seen is not None else None
    return isinstance(now, torch.Tensor) and seen is not None and not same_bits(now, seen.data)


def _suspects(live: Live, found: Misalignment, candidate: Trace, *, backward: bool) -> Iterable[int]:
    """Return the calls that may be to blame, the most likely first."""
    program = live.program
    calls = [index for index, _ in program.calls]
    if backward:
        calls.reverse()
        uses = users(program, found.step)[::-1]
        return [*uses, *(i for i in calls if i not in uses)][:TRIED_AT_MOST]
    if found.kind in {"mutation", "state"} and not isinstance(found.at, Call):
        return (users(program, found.step) or calls)[:TRIED_AT_MOST]
    if found.kind == "aliasing" and candidate.shown is None:
        return [maker_of(program.steps, found.step)]
    if found.kind == "leniency":
        return [found.step]
    if candidate.shown is not None:
        return calls[:TRIED_AT_MOST]
    first = maker_of(program.steps, found.step)
    return [first, *(i for i in calls if i > first)][:TRIED_AT_MOST]


def weights_of(live: Live, reference: Trace) -> dict[int, object]:
    """Return the reference's gradient of each step's value; for an output that nothing else uses, the cotangent."""
    found: dict[int, object] = {}
    for position, ref in enumerate(output_refs(live.program)):
        if position in live.cotangents:
            found[ref.index] = live.cotangents[position]
    for key, gradient in reference.gradients.items():
        if isinstance(key, int) and gradient is not None:
            found[key] = gradient.detach()
    return found


# Error growth: if no step is misaligned alone, show how the error grows from step to step.


#: Most steps that are reported.
_REPORTED: Final = 32
_EVERYTHING: Final = Tolerance(0.0, 0.0)


def growth(program: Program, candidate: Trace, reference: Trace) -> tuple[StepError, ...]:
    """Return how far the sides are apart after each step of the body that both show; nothing if they agree everywhere.

    Args:
        program: What was run.
        candidate: Trace with snapshots.
        reference: Trace with snapshots of the same steps.
    """
    found, named = [], names(program)
    for index, step in program.numbered:
        if not step.is_call:
            continue
        if index >= min(len(candidate.observations), len(reference.observations)):
            break  # A side that raised has no later values.
        left, right = candidate.observations[index], reference.observations[index]
        if left is None or right is None or left.metadata is None or right.metadata is None:
            continue
        if not isinstance(left.data, torch.Tensor) or left.data.shape != right.data.shape:
            continue
        apart = difference(left.data, right.data, _EVERYTHING)
        absolute = apart.greatest_absolute if apart else 0.0
        found.append(
            StepError(
                step=index,
                what=named[index],
                greatest_absolute=absolute,
                greatest_ulp=apart.greatest_ulp if apart else 0,
            )
        )
    return tuple(found[:_REPORTED]) if any(item.greatest_absolute != 0 for item in found) else ()


def _is_beyond_rounding(found: Misalignment) -> bool:
    """Whether a difference of elements is so far beyond its tolerance that no errors of rounding add up to it."""
    difference = found.difference
    if difference is None or difference.greatest_absolute is None or not (difference.atol or difference.rtol):
        return False
    relative = difference.greatest_relative or 0.0
    return difference.greatest_absolute > _FAR * difference.atol and relative > _FAR * difference.rtol


def _culprit_of_graph(
    live: Live, found: Misalignment, sides: TrialSides, *, is_right_alone: bool = False
) -> Culprit | None:
    """Return the culprit among calls that a compiler takes together with others; ``None`` if none is found.

    The shortest beginning of the program that shows the difference ends with the culprit, or with a call that the
    compiler takes together with it. Then the calls at its start are replaced by their values, one after the other. A
    call is the culprit if the compiler still takes the rest without it, and is right; else the last one is.

    Args:
        live: The program.
        found: The difference.
        sides: The two sides.
        is_right_alone: Whether the compiler takes each call alone, too, and is right about it.
    """
    calls = [index for index, step in live.program.calls if not is_unpacking(step)][:TRIED_AT_MOST]
    beginnings = [pruned(live._replace(program=ending_at(live.program, end), cotangents={})) for end in calls]
    is_last = False
    for at, part in enumerate(beginnings):
        seen = examined(part, sides)
        if any(is_alike(item, found) for item in seen.differences):
            culprit = _narrowed((part, seen), beginnings[at + 1 :], found, sides, is_last=is_last)
            return _with_detail(culprit, _WRONG_TOGETHER) if is_right_alone else culprit
        # The compiler ran what is before the next call, and was right.
        is_last = _is_run(seen.candidate, last_call(part))
    return None


def _narrowed(
    shown: tuple[Live, ExaminedProgram],
    later: Sequence[Live],
    found: Misalignment,
    sides: TrialSides,
    *,
    is_last: bool,
) -> Culprit:
    """Return the culprit of a program whose calls a compiler takes together.

    Args:
        shown: The program, which shows the difference.
        later: Longer ones that begin with the same calls: a compiler may take the rest of the program with them only.
        found: The difference.
        sides: The two sides.
        is_last: Whether the last call is the culprit, because the compiler is right without it.
    """
    is_first, programs = False, [shown[0], *later]
    for _ in shown[0].program.calls[1:]:
        is_own_end = programs[0] is shown[0]
        shorter = [(each, cut) for each in programs if (cut := _without_first_call(each, sides.reference)) is not None]
        rest = next(_run_by_compiler(shorter, sides), None)
        if rest is None:
            break
        longer, cut, seen = rest
        if not any(is_alike(item, found) for item in seen.differences):
            # Judged again, the longer program names the same call.
            whole = examined(longer, sides)
            is_first = not is_last and any(is_alike(item, found) for item in whole.differences)
            shown = (longer, whole) if is_first else shown
            break
        if is_own_end and longer is shown[0]:
            shown = (cut, seen)
        programs = [cut for _, cut in shorter]
    part, seen = shown
    same = [item for item in seen.differences if is_alike(item, found)]
    step = part.program.calls[0][0] if is_first else last_call(part)
    culprit = Culprit(part, step, same[0], seen.candidate, seen.reference, accumulated=False, others=tuple(same[1:]))
    return culprit if is_first or is_last else _with_detail(culprit, _TOGETHER_ONLY)


def _with_detail(culprit: Culprit, sentence: str) -> Culprit:
    """Return a culprit with a sentence on the operators of its graph, if these are several."""
    delegation, steps = culprit.candidate.delegation, culprit.live.program.steps
    own = delegation.own if delegation is not None else ()
    operators = sorted({step_operator(steps[at], steps) for at in own})
    if len(operators) < _SEVERAL:
        return culprit
    told = culprit.misalignment
    detail = ". ".join(filter(None, (sentence.format(", ".join(operators)), told.detail)))
    return culprit._replace(misalignment=msgspec.structs.replace(told, detail=detail))


def _run_by_compiler(
    programs: Sequence[tuple[Live, Live]], sides: TrialSides
) -> Iterator[tuple[Live, Live, ExaminedProgram]]:
    """Yield the programs whose first call the compiler runs itself, each after a longer one, with its differences."""
    for longer, each in programs:
        seen = examined(each, sides)
        if _is_run(seen.candidate, each.program.calls[0][0]):
            yield longer, each, seen


def _without_first_call(live: Live, reference: Backend) -> Live | None:
    """Return the program with its first call replaced by what it gives; ``None`` if that is no tensor."""
    try:
        return inlined(live, live.program.calls[0][0], reference)
    except ProgramError:
        return None


def _is_run(candidate: Trace, index: int) -> bool:
    """Whether a compiler ran a step itself."""
    return candidate.delegation is not None and index in candidate.delegation.own


class PassSearch:
    """A search as ``StepSearch`` does it; after a backward pass, for the gradient.

    Args:
        live: The program.
        traces: The candidate's and the reference's trace of it, with snapshots.
        sides: The two backends.
    """

    def __init__(self, live: Live, traces: tuple[Trace, Trace], sides: TrialSides) -> None:
        self._live, self._traces, self._sides = live, traces, sides
        self._whole = StepSearch(live, traces, sides)
        #: The culprit of each pass, which many values after it may follow from; ``None`` where no gradient differs.
        self._of_passes: dict[int, Culprit | None] = {}

    def culprit(self, found: Misalignment) -> Culprit:
        """Return the culprit of one misalignment."""
        steps = self._live.program.steps
        # A hook's steps stand where it was registered, and get their values in a later pass.
        is_of_pass = is_of_hook(steps[found.step])
        passes = [i for i, step in enumerate(steps) if step.target in PASSES and (i < found.step or is_of_pass)]
        for at in passes if found.kind in {"value", "metadata", "shape", "dtype"} else ():
            if at not in self._of_passes:
                self._of_passes[at] = self._of_pass(at)
            culprit = self._of_passes[at]
            if culprit is not None:
                return culprit
        return _in_its_pass(self._whole.culprit(found))

    def _of_pass(self, at: int) -> Culprit | None:
        """Return the culprit of the first gradient of a pass that differs."""
        until = _until(self._live, at, self._traces[1])
        differences, candidate, reference = examined(until, self._sides)[:3]
        gradients = [item for item in differences if item.kind == "gradient"]
        if not gradients:
            return None
        return _in_its_pass(StepSearch(until, (candidate, reference), self._sides).culprit(gradients[0]))


def _in_its_pass(culprit: Culprit) -> Culprit:
    """Return a culprit, with a note if its gradient is wrong only after an earlier pass through the same calls."""
    program = culprit.live.program
    through = follows_from(program.steps, len(program.steps) - 1) & {index for index, _ in program.calls}
    earlier = (i for i, step in enumerate(program.steps) if step.target in PASSES)
    if culprit.is_alone or culprit.misalignment.kind != "gradient":
        return culprit
    if not any(through & follows_from(program.steps, index) for index in earlier):
        return culprit
    detail = "its gradient is right alone, and wrong in a later backward pass"
    misalignment = msgspec.structs.replace(culprit.misalignment, detail=detail)
    return culprit._replace(misalignment=misalignment, accumulated=False)


def _until(live: Live, first: int, reference: Trace) -> Live:
    """Return the program up to a backward pass, with the pass's roots as outputs and its weights as cotangents."""
    program, step = live.program, live.program.steps[first]
    roots = tuple(refs(step.args[0]))
    given = _given(step)
    cotangents = {
        position: _weight(given[position] if position < len(given) else None, reference.values[ref.index], reference)
        for position, ref in enumerate(roots)
    }
    earlier = ending_at(program, first - 1, roots)
    return Live(earlier, {key: live.sources[key] for key in earlier.specs}, cotangents)


def _given(step: Step) -> tuple[Argument, ...]:
    """Return the gradients that the body passes to a backward pass, one for each root."""
    keywords = dict(step.kwargs)
    # `grad` takes outputs, inputs and weights; `backward` takes tensors and weights.
    place = 2 if step.target == GRAD else 1
    default = step.args[place] if len(step.args) > place else None
    found = next((keywords[name] for name in ("gradient", "grad_tensors", "grad_outputs") if name in keywords), default)
    if isinstance(found, List):
        return found.items
    return found if isinstance(found, tuple) else (found,)


def _weight(given: Argument, value: Any, reference: Trace) -> torch.Tensor:
    if isinstance(given, Ref):
        weight: torch.Tensor = reference.values[given.index].detach().clone()
        return weight
    # torch starts a pass from a single number without a weight with 1.
    return torch.ones_like(value.detach())

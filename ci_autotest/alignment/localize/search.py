"""Find the step that is misaligned if it gets the reference's inputs.

Values are searched in program order, gradients from the output back to the leaf. Each step gets the
gradient that the reference had there. If no step is misaligned alone, the error is accumulated and
the whole program is the finding.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec
import torch

from ci_autotest.alignment.aliasing import joined_results, lost_aliases, of_one_side
from ci_autotest.alignment.blame.float64_value import Float64Runs
from ci_autotest.alignment.differences import Examination
from ci_autotest.alignment.elements import difference
from ci_autotest.alignment.memory_guard import is_guarded
from ci_autotest.alignment.single_step import Live, inlined, isolate, pruned
from ci_autotest.alignment.undefined_results import settle
from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.backends.sameness import same_bits
from ci_autotest.errors import ProgramError
from ci_autotest.program.backward_passes import GRAD, PASSES
from ci_autotest.program.codegen import names
from ci_autotest.program.edit import ending_at, follows_from, maker_of, rewritten, until, users
from ci_autotest.program.expectations import without_expectations
from ci_autotest.program.ir import (
    CALL_METHOD,
    EXPECT,
    Program,
    Ref,
    Step,
    is_unpacking,
    output_refs,
    refs,
    step_refs,
)
from ci_autotest.values.tolerance import Tolerance
from ci_autotest.values.verdict import Call, Cotangent, StepError, is_of_backward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Trace
    from ci_autotest.values.verdict import Misalignment


#: Steps that are tried alone before the error is called accumulated.
TRIED_AT_MOST: Final = 16
#: Kinds that match only the same kind. A wrong value, for example, may show as a value, a shape or an error.
_BY_KIND: Final = frozenset({"mutation", "state", "error", "gradient", "aliasing", "leniency", "rank"})
#: Kinds that are so or not: no error accumulates.
_YES_OR_NO: Final = frozenset({"leniency", "aliasing", "rank"})
#: Kinds that are compared after the whole run, whatever their step.
_AT_THE_END: Final = frozenset({"gradient", "mutation", "state"})


InFloat64: TypeAlias = "Callable[[], AbstractContextManager[None]]"


class Culprit(NamedTuple):
    """The step that is misaligned, with both traces of it.

    Attributes:
        live: The step alone, or the whole program if no step is misaligned alone.
        step: Index of the culprit in ``live``.
        misalignment: Of ``live``.
        candidate: The candidate's trace of ``live``.
        reference: The reference's trace of ``live``.
        accumulated: No step is misaligned alone.
        is_alone: The step is misaligned alone, with the reference's inputs.
        call: Index of the step in the whole program.
        others: Other differences of the same kind there, for example gradients of the other inputs.
        runs: Runs in float64 that other culprits in ``live`` share; ``None`` if there are none.
    """

    live: Live
    step: int
    misalignment: Misalignment
    candidate: Trace
    reference: Trace
    accumulated: bool
    is_alone: bool = False
    call: int = -1
    others: tuple[Misalignment, ...] = ()
    runs: Float64Runs | None = None


class TrialSides(NamedTuple):
    """The two backends of a trial, and how they are compared.

    Attributes:
        candidate: The side tested.
        reference: The side believed.
        rules: How they are compared.
        in_float64: Entered while the float64 oracle runs; ``None`` to leave it out.
        has_guard: Whether guard bands are put around inputs and results first.
        checks_operators: Whether operators of the candidate's libraries are checked where nothing else is wrong.
    """

    candidate: Backend
    reference: Backend
    rules: Rules
    in_float64: InFloat64 | None = nullcontext
    has_guard: bool = False
    checks_operators: bool = False


class ExaminedProgram(NamedTuple):
    """The differences of a program that both sides ran with a copy of every value.

    Attributes:
        differences: Certain misalignments, in order.
        candidate: The candidate's trace.
        reference: The reference's trace.
        doubtful: Differences that follow from a choice that an operator leaves open. They count only if a step shows
            them alone.
    """

    differences: list[Misalignment]
    candidate: Trace
    reference: Trace
    doubtful: list[Misalignment]


def examined(live: Live, sides: TrialSides) -> ExaminedProgram:
    """Run a program on both sides with snapshots; return what differs and both traces.

    If a body reads the gradient of one of several outputs of a call, both sides are also compared by what each output
    receives from outside the call: a side that agrees there is right, however its outputs depend on each other.
    """
    found = _examined(live, sides)
    # Two results that are one tensor have one gradient. Aliases would hide that from a body that asks for one of them.
    aliased = _with_aliases(live) if found.differences else None
    is_joined = any(is_unpacking(live.program.steps[i]) for i in of_one_side(found.candidate, found.reference))
    if aliased is None or is_joined:
        return found
    return found._replace(differences=[], doubtful=[]) if _agrees_outside(aliased, sides) else found


def _agrees_outside(aliased: Live, sides: TrialSides) -> bool:
    """Whether both sides agree on a program with aliases, also on which gradients there are."""
    unfilled = _examined(aliased, sides)
    if _is_absent_on_one_side(aliased.program, unfilled.candidate, unfilled.reference):
        return False
    other = _examined(_with_zeros(aliased), sides)
    # A reference that raises leaves nothing to compare, which is no proof that the sides agree.
    is_defined = other.reference.failure is None and other.reference.backward_failure is None
    is_defined &= other.candidate.untested is None
    return is_defined and not (other.differences or other.doubtful)


def _examined(live: Live, sides: TrialSides) -> ExaminedProgram:
    examination = Examination(live.program, live.sources, live.cotangents, sides.rules, sides.in_float64)
    reference = examination.run(sides.reference)
    candidate = examination.run(sides.candidate)
    if reference.failure is None:
        reference = candidate.counterpart(reference)
    if candidate.untested is not None:
        return ExaminedProgram([], candidate, reference, [])  # A run that tested nothing has nothing to compare.
    return held_against(examination, candidate, reference)


def held_against(examination: Examination, candidate: Trace, reference: Trace) -> ExaminedProgram:
    """Return the differences of two traces with snapshots: of both sides, or of two runs of one side."""
    program = examination.program
    if candidate.untested is not None:
        return ExaminedProgram([], candidate, reference, [])  # A run that tested nothing has nothing to compare.
    settled = settle(examination.differences(candidate, reference), program, candidate, reference)
    aliases = lost_aliases(program, candidate, reference)
    joined = joined_results(program, candidate, reference) if settled.sure else []
    aliases = sorted([*aliases, *joined], key=lambda item: item.step)
    return ExaminedProgram(_in_order(aliases, settled.sure), candidate, reference, settled.doubtful)


def _in_order(aliases: list[Misalignment], others: list[Misalignment]) -> list[Misalignment]:
    """Return the differences with a lost alias before its consequences: values and states of later steps."""
    if not aliases:
        return others
    first = aliases[0].step
    earlier = [item for item in others if item.step <= first and item.kind not in _AT_THE_END]
    return [*earlier, *aliases, *(item for item in others if item not in earlier)]


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
        together = culprit_of_graph(live, found, sides) if self._is_left_alone and not backward else None
        if together is not None:
            return together
        # After a step that only one side refuses, the programs are no longer comparable.
        is_cut = (found.kind == "leniency" and not backward) or is_expected
        if is_cut:
            whole = pruned(live._replace(program=ending_at(live.program, found.step), cotangents={}))
            seen = examined(whole, sides)
        else:
            whole, seen = self._whole
        shown = next((item for item in seen.differences if _is_alike(item, found)), None)
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
            same = [item for item in seen.differences if _is_alike(item, found)]
            self._is_left_alone |= seen.candidate.delegation is not None and seen.candidate.delegation.part == "nothing"
            # A pass or compiler that gets a part of the body may refuse just that.
            if same and not sides.candidate.shows_steps and same[0].kind == "error" != found.kind:
                continue
            if same:
                return Culprit(
                    alone, _call(alone), same[0], seen.candidate, seen.reference,
                    accumulated=False, is_alone=True, call=index, others=tuple(same[1:]),
                )  # fmt: skip
        return None


def culprit_of_graph(live: Live, found: Misalignment, sides: TrialSides) -> Culprit | None:
    """Return the culprit among calls that a compiler takes only together with others; ``None`` if none is found.

    The shortest beginning of the program that shows the difference ends with the culprit, or with a call that the
    compiler takes together with it. Then the calls at its start are replaced by their values, one after the other. A
    call is the culprit if the compiler still takes the rest without it, and is right; else the last one is.
    """
    calls = [index for index, step in live.program.calls if not is_unpacking(step)][:TRIED_AT_MOST]
    beginnings = [pruned(live._replace(program=ending_at(live.program, end), cotangents={})) for end in calls]
    is_last = False
    for at, part in enumerate(beginnings):
        seen = examined(part, sides)
        if any(_is_alike(item, found) for item in seen.differences):
            return _narrowed((part, seen), beginnings[at + 1 :], found, sides, is_last=is_last)
        # The compiler ran what is before the next call, and was right.
        is_last = _is_run(seen.candidate, _call(part))
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
        if not any(_is_alike(item, found) for item in seen.differences):
            # Judged again, the longer program names the same call.
            whole = examined(longer, sides)
            is_first = not is_last and any(_is_alike(item, found) for item in whole.differences)
            shown = (longer, whole) if is_first else shown
            break
        if is_own_end and longer is shown[0]:
            shown = (cut, seen)
        programs = [cut for _, cut in shorter]
    part, seen = shown
    same = [item for item in seen.differences if _is_alike(item, found)]
    step = part.program.calls[0][0] if is_first else _call(part)
    delegation, steps = seen.candidate.delegation, part.program.steps
    operators = sorted({step_operator(steps[at], steps) for at in (delegation.own if delegation is not None else ())})
    told = same[0]
    if not (is_first or is_last) and len(operators) > 1:
        detail = f"the compiler takes {', '.join(operators)} only together; any of them may be at fault"
        told = msgspec.structs.replace(told, detail=f"{detail}. {told.detail}" if told.detail else detail)
    return Culprit(part, step, told, seen.candidate, seen.reference, accumulated=False, others=tuple(same[1:]))


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


def _call(live: Live) -> int:
    """Return the index of the isolated call: the last one that unpacks nothing."""
    return live.program.calls[-1][0]


def _is_alike(found: Misalignment, wanted: Misalignment) -> bool:
    if wanted.kind in _BY_KIND:
        return found.kind == wanted.kind
    return found.kind not in _BY_KIND - {"error"}


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


# Give each output whose gradient a body reads an alias of its own, so that the gradient comes from outside the call.
#
# Inside torch's LSTM cell the hidden state is computed from the cell state. A hook on the cell state therefore sees the
# gradient that arrives through the hidden state, too. A fused kernel computes both at once and has no such path. Both
# are right, so gradients at the outputs of one call are defined only by what arrives from other steps (SEMANTICS, rule
# 26). An alias has exactly this gradient on both sides: the rest of the program uses the alias, and the call itself
# does not. An alias that nothing else uses has no gradient, so ``autograd.grad`` returns ``None`` there instead of
# raising.


#: Steps by which a body reads or changes the gradient of a value that is no leaf.
READS_GRADIENT: Final = frozenset({"retain_grad", "register_hook", *PASSES})


def _with_aliases(live: Live) -> Live | None:
    """Return the program with aliases; ``None`` if it reads no gradient at one of several outputs of a call."""
    steps = live.program.steps
    read = {
        ref.index
        for step in steps
        if step.target in READS_GRADIENT
        for ref in _read_by(step)
        if is_unpacking(steps[ref.index])
    }
    if not read:
        return None

    def followed(index: int, step: Step) -> Iterator[Step]:
        is_asked = step.target == GRAD and any(ref.index in read for ref in _read_by(step))
        yield _with(step, "allow_unused") if is_asked else step
        if index in read:
            # A view copies nothing, and autograd knows it as a tensor of its own.
            yield Step(CALL_METHOD, "view_as", (Ref(index), Ref(index)), (), step.name)

    return live._replace(program=rewritten(live.program, followed))


def _with_zeros(live: Live) -> Live:
    """Return the program with zeros for each ``None`` of ``autograd.grad``, so that later steps can compute with it."""
    body = tuple(
        _with(step, "materialize_grads") if dict(step.kwargs).get("allow_unused") else step
        for step in live.program.body
    )
    return live._replace(program=live.program.with_body(body))


def _is_absent_on_one_side(program: Program, candidate: Trace, reference: Trace) -> bool:
    """Whether ``autograd.grad`` returns a gradient on one side and ``None`` for it on the other."""
    steps = program.steps
    for index, sides in enumerate(zip(candidate.observations, reference.observations, strict=False)):
        left, right = sides
        if left is None or right is None or steps[maker_of(steps, index)].target != GRAD:
            continue
        if (left.data is None) is not (right.data is None):
            return True
    return False


def _read_by(step: Step) -> Iterable[Ref]:
    """Yield the values whose gradient a step reads; of ``autograd.grad`` these are its inputs, not its outputs."""
    if step.target != GRAD:
        return step_refs(step)
    return refs(step.args[1] if len(step.args) > 1 else dict(step.kwargs)["inputs"])


def _with(step: Step, flag: str) -> Step:
    return step._replace(kwargs=tuple({**dict(step.kwargs), flag: True}.items()))


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

"""A program that both sides run with a copy of every value: its differences, and its culprit as a value."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ci_autotest.alignment.aliasing import joined_results, lost_aliases, of_one_side
from ci_autotest.alignment.differences import Examination
from ci_autotest.alignment.undefined_results import settle
from ci_autotest.program.backward_passes import GRAD, READS_GRADIENT
from ci_autotest.program.edit import maker_of, rewritten
from ci_autotest.program.ir import (
    CALL_METHOD,
    Program,
    Ref,
    Step,
    is_unpacking,
    refs,
    step_refs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from ci_autotest.alignment.blame.float64_runs import Float64Runs
    from ci_autotest.alignment.single_step import Live
    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Trace
    from ci_autotest.values.verdict import Misalignment


#: Steps, or beginnings of a program, that are tried before the error is called accumulated.
TRIED_AT_MOST: Final = 16
#: Kinds that match only the same kind. A wrong value, for example, may show as a value, a shape or an error.
_BY_KIND: Final = frozenset({"mutation", "state", "error", "gradient", "aliasing", "leniency", "rank"})
#: Kinds that are compared after the whole run, whatever their step.
_AT_THE_END: Final = frozenset({"gradient", "mutation", "state"})


InFloat64: TypeAlias = "Callable[[], AbstractContextManager[None]]"


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


def is_alike(found: Misalignment, wanted: Misalignment) -> bool:
    """Whether two misalignments may have one cause, although their kinds differ."""
    if wanted.kind in _BY_KIND:
        return found.kind == wanted.kind
    return found.kind not in _BY_KIND - {"error"}


def last_call(live: Live) -> int:
    """Return the index of the isolated call: the last one that unpacks nothing."""
    return live.program.calls[-1][0]


# Give each output whose gradient a body reads an alias of its own, so that the gradient comes from outside the call.
#
# Inside torch's LSTM cell the hidden state is computed from the cell state. A hook on the cell state therefore sees the
# gradient that arrives through the hidden state, too. A fused kernel computes both at once and has no such path. Both
# are right, so gradients at the outputs of one call are defined only by what arrives from other steps (SEMANTICS, rule
# 26). An alias has exactly this gradient on both sides: the rest of the program uses the alias, and the call itself
# does not. An alias that nothing else uses has no gradient, so ``autograd.grad`` returns ``None`` there instead of
# raising.


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

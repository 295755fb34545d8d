"""Stateful kernels: judge a call that is wrong only after other calls.

A difference in a probe (``probe``) is a suspicion. It is believed if the same calls show it in a fresh process and the
call alone does not.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final

import msgspec
import torch

from ci_autotest.alignment.differences import Examination
from ci_autotest.alignment.examination import held_against
from ci_autotest.alignment.single_step import Live, isolate, pruned
from ci_autotest.alignment.verdict import Judged, counted_differences, operator_at
from ci_autotest.backends.operators.identity import answered_step
from ci_autotest.backends.snapshots import observed
from ci_autotest.errors import AuthorError
from ci_autotest.program.backward_passes import GRAD
from ci_autotest.program.call_probe import rewritten
from ci_autotest.program.codegen import names
from ci_autotest.program.edit import ending_at, maker_of, users
from ci_autotest.program.ir import CALL_MODULE, PLACEHOLDER, Program, Ref, output_refs, step_refs
from ci_autotest.values.verdict import State, Verdict, unsupported_verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ci_autotest.alignment.examination import TrialSides
    from ci_autotest.alignment.tolerance_rules import Rules
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.values.verdict import Misalignment

_WHY: Final = "the call alone agrees with the reference: it is wrong because of the calls before it"


def suspicion(
    attempt: Attempt, trace: Trace, rules: Rules, *, of_two_runs: bool = False, goes_back_once: bool = False
) -> Verdict | None:
    """Return the difference in a candidate's run of a probe; ``None`` if there is none.

    Args:
        attempt: The probe.
        trace: The candidate's trace.
        rules: How values are compared.
        of_two_runs: Whether some values of the trace are from another run and share no memory with the others.
        goes_back_once: Whether a second backward pass through one graph is not compared, because kernels may write to
            what they have saved.
    """
    if trace.untested is not None or (trace.failure is not None and trace.failure.lacking is not None):
        return None
    if trace.failure is not None and _goes_back_again(attempt.program, trace.failure.step):
        return None  # A kernel may free saved tensors after one backward pass, because training runs no second one.
    examination = Examination(attempt.program, attempt.sources, attempt.cotangents, rules)
    # A host and a backend without copies show values as they are at the end of the run.
    expected = _seen(attempt.trace, at_its_step=bool(trace.copies))
    found = held_against(examination, _seen(trace, at_its_step=True), expected).differences
    # A value in the memory of an overwritten input changes with it. Aliasing is checked elsewhere.
    shared = in_written(attempt, trace)
    sure = [
        item
        for item in found
        if item.step not in shared
        and not (of_two_runs and item.kind == "aliasing")
        and not (goes_back_once and _goes_back_again(attempt.program, maker_of(attempt.program.steps, item.step)))
        and not _is_set_aside(attempt.program, item, rules)
    ]
    return _verdict(attempt.program, sure[0], trace) if sure else None


def _is_set_aside(program: Program, found: Misalignment, rules: Rules) -> bool:
    """Whether a difference is accepted of the call that shows it."""
    if not rules.set_aside:
        return False
    # In a sequence of calls, a gradient is the value of a step.
    is_gradient = program.steps[maker_of(program.steps, found.step)].target == GRAD
    kind = "gradient" if is_gradient else found.kind
    return rules.sets_aside(operator_at(program, call_of(program, found))[0], kind)


def _goes_back_again(program: Program, index: int) -> bool:
    """Whether a step runs a second backward pass over the same outputs."""
    step = program.steps[index]
    return step.target == GRAD and any(
        other.target == step.target and other.args[:1] == step.args[:1] for other in program.steps[:index]
    )


def in_written(attempt: Attempt, trace: Trace) -> frozenset[int]:
    """Return the values of a probe that lie, on either side, in memory that it overwrites between its calls."""
    return _in_written(attempt.program, trace) | _in_written(attempt.program, attempt.trace)


def _in_written(program: Program, trace: Trace) -> frozenset[int]:
    """Return the indices of values in memory that is overwritten between calls."""
    pointers = {_pointer(trace.values[index]) for index in rewritten(program) if index < len(trace.values)} - {0}
    return frozenset(
        index
        for index, value in enumerate(trace.values)
        if _pointer(value) in pointers and program.steps[index].op != PLACEHOLDER
    )


def _pointer(value: object) -> int:
    """Return the address of a tensor's memory; 0 for other values."""
    try:
        return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0
    except (RuntimeError, NotImplementedError):  # other layouts
        return 0


def _seen(trace: Trace, *, at_its_step: bool) -> Trace:
    """Return a trace with every value as it was at its step if there is a copy, else as it is at the end."""
    seen = copy(trace)
    seen.observations = [observed(value) for value in trace.values]
    for index, (value, _) in trace.copies.items() if at_its_step else ():
        now = seen.observations[index]
        if now is not None:
            seen.observations[index] = now._replace(data=value)
    return seen


def judge_sequence(live: Live, sides: TrialSides, passed_over: Collection[int] = ()) -> Judged:
    """Run several calls on both sides once, and blame the call of the first difference and the calls before it.

    No call is run alone here, because the candidate of this process has already seen the calls.

    Args:
        live: The calls as one program.
        sides: The two backends and the rules.
        passed_over: Values to skip, because their call is also wrong alone.
    """
    examination = Examination(live.program, live.sources, live.cotangents, sides.rules)
    reference = examination.run(sides.reference)
    if reference.failure is not None:
        step = live.program.steps[reference.failure.step]
        message = f"the recording cannot be run again on the reference: {step.target}: {reference.failure.message}"
        raise AuthorError(message)
    again = examination.run(sides.reference)
    if held_against(examination, again, reference).differences:
        return Judged(Verdict(outcome="aligned"), live)  # The reference itself differs from run to run.
    seen = held_against(examination, examination.run(sides.candidate), reference)
    unsupported, differences = counted_differences(live.program, seen)
    if unsupported is not None:
        return Judged(unsupported_verdict(unsupported), live)
    shared = _in_written(live.program, seen.candidate) | _in_written(live.program, reference)
    skipped = {call_of(live.program, item) for item in differences if item.step in passed_over}
    sure = [
        item
        for item in differences
        if call_of(live.program, item) not in skipped
        and not (item.kind == "mutation" and item.step in shared)
        and not _is_set_aside(live.program, item, sides.rules)
        and not (
            sides.candidate.writes_inputs and _goes_back_again(live.program, maker_of(live.program.steps, item.step))
        )
    ]
    if not sure:
        return Judged(Verdict(outcome="aligned"), live)
    return Judged(_verdict(live.program, sure[0], seen.candidate), live)


def _verdict(program: Program, found: Misalignment, candidate: Trace) -> Verdict:
    has_backward = found.kind == "gradient" or program.steps[found.step].op == PLACEHOLDER
    call = answered_step(program.steps, call_of(program, found), candidate.answered, has_backward=has_backward)
    operator, target = operator_at(program, call)
    others = [i for i, _ in program.calls if i < found.step and i != call and operator_at(program, i)[0] == operator]
    # Another call may come after this one and before its backward pass.
    which = "earlier" if all(index < call for index in others) else "other"
    detail = f"right alone, wrong after {len(others)} {which} call{'' if len(others) == 1 else 's'}"
    if found.kind == "mutation":
        detail = f"the value of {names(program)[found.step]} was changed by a later call"
    elif found.kind not in {"value", "gradient"}:
        detail += f": {found.kind}"
    detail += f". {found.detail}" if found.detail else ""
    return Verdict(
        outcome="misaligned", operator=operator, target=target, kind="stateful", blame="candidate", step=found.step,
        misalignment=msgspec.structs.replace(found, kind="stateful", detail=detail), oracle=_WHY,
    )  # fmt: skip


def call_of(program: Program, found: Misalignment) -> int:
    """Return the call of a difference.

    For a gradient it is the call whose result was differentiated; for the state of a module, the module's last call.
    """
    steps = program.steps
    if isinstance(found.at, State):
        calls = [i for i, step in program.calls if step.op == CALL_MODULE and Ref(found.step) in step_refs(step)]
        return calls[-1] if calls else found.step
    index = maker_of(steps, found.step)
    if steps[index].target == GRAD:
        return maker_of(steps, step_refs(steps[index])[0].index)
    if found.kind == "gradient" or steps[index].op == PLACEHOLDER:
        uses = users(program, index)
        return maker_of(steps, uses[-1]) if uses else index
    return index


def alone(live: Live, verdict: Verdict, reference: Backend) -> Live:
    """Return the call of a verdict as a program of its own, with the values that it had.

    Args:
        live: The calls as one program.
        verdict: From ``judge_sequence``.
        reference: Runs the earlier calls, so that a module has the state that it had at the call.
    """
    steps = live.program.steps
    found = verdict.misalignment
    assert found is not None  # noqa: S101 - a verdict of a difference has one
    call, made = call_of(live.program, found), maker_of(steps, verdict.step)
    if steps[call].op == CALL_MODULE:
        return pruned(isolate(live, call, reference, _weights(live, made, reference)))
    outputs = (Ref(verdict.step),) if steps[made].target == GRAD else output_refs(live.program)
    wanted = tuple(ref for ref in outputs if maker_of(steps, ref.index) in {call, made})
    return pruned(Live(ending_at(live.program, verdict.step, wanted or None), live.sources, {}))


def _weights(live: Live, made: int, reference: Backend) -> Mapping[int, object]:
    """Return the cotangents of the results of a call, by their step."""
    step = live.program.steps[made]
    if step.target != GRAD:
        return {}
    trace = reference.run(live.program, live.sources)
    roots, _, weights = step.args
    assert isinstance(roots, tuple)  # noqa: S101 - as made in ``call_sequence``
    assert isinstance(weights, tuple)  # noqa: S101 - likewise
    pairs = zip(roots, weights, strict=True)
    return {
        root.index: trace.values[weight.index]
        for root, weight in pairs
        if isinstance(root, Ref) and isinstance(weight, Ref)
    }

"""Confirm: before a side is blamed for what differs, each is held against itself.

A candidate that differs from itself is its own kind of finding; a reference that does is no fault of the candidate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch

from ci_autotest.alignment.elements import close, same_bits
from ci_autotest.alignment.isolate import isolate, pruned
from ci_autotest.alignment.localize import held_against
from ci_autotest.alignment.trial import COTANGENT, Examination
from ci_autotest.alignment.verdict import Judged, judge_program, operator_at
from ci_autotest.program.ir import is_unpacking, output_refs, step_refs
from ci_autotest.result import Misalignment, Verdict

if TYPE_CHECKING:
    from ci_autotest.alignment.isolate import Live
    from ci_autotest.alignment.localize import Sides
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.program.ir import Program
    from ci_autotest.result import Blame


def judge_confirmed(live: Live, sides: Sides) -> Judged:
    """Run a program twice on each side; return that one differs from itself, else the verdict.

    Args:
        live: The program with its data.
        sides: The two backends and the rules.
    """
    for backend, blame in ((sides.reference, "reference"), (sides.candidate, "candidate")):
        found = _unsteady(live, backend, sides)
        if found is not None:
            return _told(live, found, backend, sides, blame)  # type: ignore[arg-type]
    return judge_program(live, sides)


def outputs_differ(attempt: Attempt, candidate: Trace, sides: Sides) -> bool:
    """Whether the outputs of a run are outside the tolerance, by a look at the end of it alone."""
    if candidate.untested is not None or candidate.failure is not None:
        return candidate.failure is not None
    operators = sides.rules.operators(attempt.program.steps)
    for ref in output_refs(attempt.program):
        left, right = candidate.values[ref.index], attempt.trace.values[ref.index]
        if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
            continue
        if left.shape != right.shape or left.dtype is not right.dtype:
            continue
        name = str(right.dtype).removeprefix("torch.")
        if not same_bits(left, right) and not close(left, right, sides.rules.tolerance(operators, name)):
            return True
    return False


def _unsteady(live: Live, backend: Backend, sides: Sides) -> Misalignment | None:
    """Return how a side differs from itself, at the first step that does; ``None`` where it repeats."""
    examination = Examination(live.program, live.sources, live.cotangents, sides.rules)
    first, second = examination.run(backend), examination.run(backend)
    if (first.failure is None) is not (second.failure is None):
        return _raised_once(live.program, first, second)
    # The gradient that was put in is compared with its source, not with the first run's.
    found = [
        item for item in held_against(examination, second, first).differences if not item.what.startswith(COTANGENT)
    ]
    return found[0] if found else None


def _raised_once(program: Program, first: Trace, second: Trace) -> Misalignment:
    failure = first.failure or second.failure
    assert failure is not None  # noqa: S101 - the caller looked
    told = [f"raises {trace.failure.kind}" if trace.failure else "returns" for trace in (second, first)]
    what = f"call of {program.steps[failure.step].name}"
    return Misalignment(
        kind="error", step=failure.step, what=what, candidate=told[0], reference=told[1], detail=failure.message[:2000]
    )


def _told(live: Live, found: Misalignment, backend: Backend, sides: Sides, blame: Blame) -> Judged:
    """Return the verdict, with the first unsteady step alone where it is unsteady alone too."""
    step = live.program.steps[found.step]
    at = step_refs(step)[0].index if is_unpacking(step) else found.step
    if any(index == at for index, _ in live.program.calls):
        alone = pruned(isolate(live, at, sides.reference))
        again = _unsteady(alone, backend, sides)
        if again is not None:
            live, found, at = alone, again, alone.program.calls[-1][0]
    operator, target = operator_at(live.program, at)
    told = msgspec.structs.replace(
        found,
        kind="nondeterminism",
        candidate=f"in a second run {found.candidate}",
        reference=f"in its first run {found.reference}",
        detail=f"the {blame} differs from itself on the same inputs. {found.detail}".rstrip(),
    )
    verdict = Verdict(
        outcome="misaligned", operator=operator, target=target, kind="nondeterminism", blame=blame, step=at,
        misalignment=told, oracle=f"the {blame} was run twice on the same inputs: there is no one value to judge by",
    )  # fmt: skip
    return Judged(verdict, live)

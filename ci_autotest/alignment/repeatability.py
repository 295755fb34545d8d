"""Repeatability: before a side is blamed, run both again and compare each with itself.

A candidate that differs from itself is a finding of its own kind. If the reference does, the candidate is not to blame.

Uninitialized memory holds zeros in a new process and other results later, so a single run may look right by chance.
With a different known number in free memory before each of two runs, a result that no kernel wrote to differs between
them. This distinguishes it from an operator that is only sometimes wrong.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final

import msgspec
import torch

from ci_autotest.alignment.differences import Examination
from ci_autotest.alignment.examination import held_against
from ci_autotest.alignment.single_step import isolate, pruned
from ci_autotest.alignment.verdict import Judged, judge_program, live_of, operator_at
from ci_autotest.backends.operators.identity import answered_step
from ci_autotest.backends.snapshots import observed
from ci_autotest.backends.trace import Failure
from ci_autotest.program.codegen import names
from ci_autotest.program.edit import maker_of, users
from ci_autotest.values.dtypes import DIFFERENTIABLE
from ci_autotest.values.verdict import Call, Cotangent, Misalignment, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.alignment.examination import TrialSides
    from ci_autotest.alignment.single_step import Live
    from ci_autotest.backends.protocol import Backend
    from ci_autotest.backends.trace import Attempt, RankFault, Trace
    from ci_autotest.program.ir import Program
    from ci_autotest.values.verdict import Blame
#: Numbers that are written in turn; every dtype of ``_DTYPES`` can represent them.
NUMBERS: Final = (1000.0, -500.0)
#: Dtypes of results whose memory is filled. Floats of 8 bits cannot represent 1000.
_DTYPES: Final = frozenset(getattr(torch, name) for name in DIFFERENTIABLE)
#: Number of blocks of each size, more than one because the inputs of the next run take some of them.
_BLOCKS: Final = 8
#: Most block sizes of one run.
_SIZES_AT_MOST: Final = 16
#: Bytes of all blocks of a run. Larger results get fewer blocks but at least one, as in the next run.
_BYTES_AT_MOST: Final = 1 << 25


def judge_confirmed(live: Live, sides: TrialSides) -> Judged:
    """Run a program twice on each side; return a verdict that one differs from itself, else the usual verdict.

    Args:
        live: The program with its data.
        sides: The two backends and the rules.
    """
    # The reference first, because the candidate is not to blame if the reference differs from itself.
    for backend, blame in ((sides.reference, "reference"), (sides.candidate, "candidate")):
        found = _unsteady(live, backend, sides)
        if found is not None:
            return _nondeterministic(live, found, backend, sides, blame)  # type: ignore[arg-type]
    return judge_program(live, sides)


def is_off(attempt: Attempt, candidate: Trace, sides: TrialSides) -> bool:
    """Whether a run without copies departs from the reference's, by everything that both show at the end."""
    examination = _examination(live_of(attempt), sides)
    expected = candidate.counterpart(attempt.trace)
    return candidate.untested is None and _apart(examination, expected, candidate) is not None


def judge_first_run(attempt: Attempt, runs: tuple[Trace, Trace], sides: TrialSides) -> Judged | None:
    """Return the verdict that a candidate's first run departs from a later identical one; ``None`` if they agree.

    Args:
        attempt: The program with its data.
        runs: The first and the later run, both without copies.
        sides: The two backends and the rules.
    """
    live = live_of(attempt)
    found = _apart(_examination(live, sides), *runs)
    return None if found is None else _nondeterministic(live, found, sides.candidate, sides, "candidate")


def _examination(live: Live, sides: TrialSides) -> Examination:
    return Examination(live.program, live.sources, live.cotangents, sides.rules)


def _unsteady(live: Live, backend: Backend, sides: TrialSides) -> Misalignment | None:
    """Return how a side differs from itself at the first such step; ``None`` if it repeats."""
    examination = _examination(live, sides)
    first = examination.run(backend)
    for number in NUMBERS:
        leave_residue(backend, first, number)
        second = examination.run(backend)
        found = _apart(examination, first, second)
        if found is not None:
            return found
        first = second
    return None


def _apart(examination: Examination, first: Trace, second: Trace) -> Misalignment | None:
    """Return how the second of two runs departs from the first, at the first such step."""
    program = examination.program
    failures = _failure(program, first), _failure(program, second)
    if (failures[0] is None) is not (failures[1] is None):
        return _raised_once(program, *failures)
    later = _seen(second)
    later.rank_faults = _of_one_run(first, second)
    differences = held_against(examination, later, _seen(first)).differences
    # Cotangents are compared with their source and not with the first run's.
    return next((item for item in differences if not isinstance(item.at, Cotangent)), None)


def _seen(trace: Trace) -> Trace:
    """Return a trace with every value as it was at its step, or at the end if the run took no copies."""
    seen = copy(trace)
    seen.observations = trace.observations or [observed(value) for value in trace.values]
    return seen


def _of_one_run(first: Trace, second: Trace) -> list[RankFault]:
    """Return where the ranks disagree in one of two runs alone. What they disagree on in both repeats."""
    # An error's text may hold an address, which is another one in each run.
    faults = [[fault._replace(detail="") for fault in trace.rank_faults] for trace in (second, first)]
    return [fault for fault in [*faults[0], *faults[1]] if any(fault not in run for run in faults)]


def _failure(program: Program, trace: Trace) -> Failure | None:
    """Return what ended a run, forward or, at the last call, backward."""
    if trace.failure is not None or trace.backward_failure is None:
        return trace.failure
    last = program.calls[-1][0] if program.calls else len(program.steps) - 1
    return Failure(last, *trace.backward_failure)


def _raised_once(program: Program, first: Failure | None, second: Failure | None) -> Misalignment:
    failure = first or second
    assert failure is not None  # noqa: S101 - the caller looked
    ends = [f"raises {side.kind}" if side else "returns" for side in (second, first)]
    at = Call(name=names(program)[failure.step])
    return Misalignment(
        kind="error", step=failure.step, at=at, candidate=ends[0], reference=ends[1], detail=failure.message[:2000]
    )


def _blamed(program: Program, found: Misalignment) -> int:
    """Return the call to blame: for a gradient the last user of the value, for an overwritten value the first."""
    if found.kind in {"gradient", "mutation", "state"}:
        uses = users(program, found.step)
        return uses[-1 if found.kind == "gradient" else 0] if uses else found.step
    return maker_of(program.steps, found.step)


def _nondeterministic(live: Live, found: Misalignment, backend: Backend, sides: TrialSides, blame: Blame) -> Judged:
    """Return the verdict, on the first unsteady step alone if it is also unsteady alone."""
    calls = backend.run(live.program, live.sources).answered
    has_backward = found.kind == "gradient"
    at = answered_step(live.program.steps, _blamed(live.program, found), calls, has_backward=has_backward)
    if any(index == at for index, _ in live.program.calls):
        alone = pruned(isolate(live, at, sides.reference))
        again = _unsteady(alone, backend, sides)
        if again is not None:
            live, found, at = alone, again, alone.program.calls[-1][0]
    operator, target = operator_at(live.program, at)
    misalignment = msgspec.structs.replace(
        found,
        kind="nondeterminism",
        detail=f"the {blame} differs from itself on the same inputs. {found.detail}".rstrip(),
    )
    verdict = Verdict(
        outcome="misaligned", operator=operator, target=target, kind="nondeterminism", blame=blame, step=at,
        misalignment=misalignment,
        oracle=f"the {blame} was run twice on the same inputs: there is no one value to judge by",
    )  # fmt: skip
    return Judged(verdict, live)


def leave_residue(backend: Backend, trace: Trace, number: float) -> None:
    """Allocate, fill and free memory of the sizes of a run's results, in the process that ran it.

    Args:
        backend: The side that ran.
        trace: Of that run.
        number: The number to write.
    """
    results = list({(tensor.dtype, tensor.shape, tensor.device): tensor for tensor in _results(trace)}.values())
    results = results[:_SIZES_AT_MOST]
    room = _BYTES_AT_MOST // max(len(results), 1)
    counts = [max(1, min(_BLOCKS, room // result.nbytes)) for result in results]
    backend.fill_freed_memory([(_filled(tensor, number), count) for tensor, count in zip(results, counts, strict=True)])


def _filled(result: torch.Tensor, number: float) -> torch.Tensor:
    return torch.full(result.shape, number, dtype=result.dtype, device=result.device)


def _results(trace: Trace) -> Iterator[torch.Tensor]:
    for value in (*trace.values, *trace.gradients.values()):
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, torch.Tensor) and item.dtype in _DTYPES and _is_plain(item) and item.numel():
                yield item.detach()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is strided and not nested, so that its elements lie in one storage."""
    return tensor.layout == torch.strided and not tensor.is_nested

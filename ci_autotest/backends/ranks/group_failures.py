"""What the trace of a group has if ranks raised, ended, or waited for each other for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.backends.ranks.ranks import ALL_AGREE, numbered
from ci_autotest.backends.trace import Failure, Raised, RankFault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.backends.ranks.group import GroupTrace
    from ci_autotest.backends.ranks.process_group import Stuck
    from ci_autotest.backends.ranks.rank_answer import Raise
    from ci_autotest.program.ir import Program


def program_end(program: Program) -> int:
    """Return the last call of a program, which stands for its backward pass."""
    return program.calls[-1][0] if program.calls else len(program.steps) - 1


def with_stuck(
    trace: GroupTrace, program: Program, stuck: Stuck, errors_in: Callable[[bytes], tuple[Raise | None, Raise | None]]
) -> GroupTrace:
    """Return the trace of a group that was ended because ranks waited for ever, or were gone.

    Args:
        trace: An empty trace.
        program: The program.
        stuck: How the ranks stood.
        errors_in: Returns the errors of an answer's forward and backward pass.
    """
    answers = {rank: errors_in(head) for rank, (head, _) in stuck.answers.items()}
    raised = {rank: forward or backward for rank, (forward, backward) in answers.items()}
    failed = {rank: one for rank, one in raised.items() if one is not None}
    parts = []
    for how in dict.fromkeys(loss.how for loss in stuck.ended.values()):
        parts.append(f"{numbered([rank for rank, loss in stuck.ended.items() if loss.how == how])} {how}")
    if failed:
        error = next(iter(failed.values()))
        parts.append(f"{numbered(failed)} raised {error.kind}" if not error.seen else error.seen)
    done = [rank for rank in answers if rank not in failed]
    if done:
        parts.append(f"{numbered(done)} went on")
    for name in dict.fromkeys(place.collective for place in stuck.places.values()):
        there = [rank for rank, place in stuck.places.items() if place.collective == name]
        waits = "waits" if len(there) == 1 else "wait"
        parts.append(f"{numbered(there)} {waits} for ever in {name}")
    detail = next((f"{one.kind}: {one.message}" for one in failed.values()), "")
    # A rank that ended comes first: others may have raised only because it was gone.
    at = [loss.place.step for loss in stuck.ended.values()] or [one.step for one in failed.values()]
    at = at or [place.step for place in stuck.places.values()]
    is_backward = any(backward for _, backward in answers.values()) or any(
        place.step < -1 for place in [*stuck.places.values(), *(loss.place for loss in stuck.ended.values())]
    )
    last = program_end(program)
    # After the last step the inputs are gathered too, and no input is at fault.
    step = last if is_backward or not at else max(min(at), next((index for index, _ in program.calls), last))
    key = -1 if is_backward else None
    seen = ", ".join(parts)
    trace.rank_faults = [RankFault(step, key, is_call=True, seen=seen, expected=ALL_AGREE, detail=detail)]
    # With the ranks: a group that is lost once may do better the next time, and then this is all that is shown.
    message = f"{seen}: {detail}" if detail else seen
    if is_backward:
        trace.backward_failure = Raised("RankError", message)
    else:
        trace.failure = Failure(step, "RankError", message)
        del trace.values[step:], trace.facts[step:]
    return trace


def take_failures(trace: GroupTrace, failures: Mapping[int, Raise], count: int) -> None:
    """Put the errors of the forward pass into a trace.

    Args:
        trace: The trace.
        failures: The error of each rank that raised.
        count: Number of ranks.
    """
    first = _foremost(failures)
    step = min(one.step for one in failures.values())
    trace.failure = Failure(step, first.kind, first.message, first.lacking)
    if any(one.seen for one in failures.values()):
        wrong = next(one for one in failures.values() if one.seen)
        trace.rank_faults = [RankFault(step, None, is_call=False, seen=wrong.seen, expected=wrong.expected)]
    elif fault := _apart(failures, count):
        trace.rank_faults = [RankFault(step, None, True, fault, ALL_AGREE, f"{first.kind}: {first.message}")]  # noqa: FBT003
        trace.failure = trace.failure._replace(lacking=None)
    del trace.values[step:], trace.facts[step:]


def take_backward_failures(trace: GroupTrace, last: int, failures: Mapping[int, Raise], count: int) -> None:
    """Put the errors of the backward pass into a trace.

    Args:
        trace: The trace.
        last: The last call of its program.
        failures: The error of each rank that raised.
        count: Number of ranks.
    """
    first = _foremost(failures)
    trace.backward_failure, trace.backward_lacking = Raised(first.kind, first.message), first.lacking
    fault = _apart(failures, count)
    if fault:
        detail = f"{first.kind}: {first.message}"
        trace.rank_faults = [*trace.rank_faults, RankFault(last, -1, True, fault, ALL_AGREE, detail)]  # noqa: FBT003
        trace.backward_lacking = None


def _foremost(failures: Mapping[int, Raise]) -> Raise:
    """Return the error to report: what DTensor refuses on one rank must not hide what a kernel raised on another."""
    return next((one for one in failures.values() if one.lacking is None), next(iter(failures.values())))


def _apart(failures: Mapping[int, Raise], count: int) -> str:
    """Return in words that not all ranks raised one error; empty if they did."""
    rest = [rank for rank in range(count) if rank not in failures]
    kinds = {(one.step, one.kind) for one in failures.values()}
    if rest:
        first = next(iter(failures.values()))
        return f"{numbered(failures)} raised {first.kind}, {numbered(rest)} went on"
    if len(kinds) > 1:
        return "ranks raised different errors: " + ", ".join(
            f"{numbered([rank])} {one.kind} at step {one.step}" for rank, one in failures.items()
        )
    return ""

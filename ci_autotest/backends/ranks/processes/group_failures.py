"""What the trace of a group has if ranks raised, ended, or waited for each other for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.backends.ranks.ranks import ALL_AGREE, numbered
from ci_autotest.backends.trace import Failure, Raised, RankFault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.backends.ranks.group import GroupTrace
    from ci_autotest.backends.ranks.processes.process_group import Stuck
    from ci_autotest.backends.ranks.processes.rank_answer import Raise
    from ci_autotest.program.ir import Program


def program_end(program: Program) -> int:
    """Return the last call of a program, which stands for its backward pass."""
    return program.calls[-1][0] if program.calls else len(program.steps) - 1


def with_stuck(trace: GroupTrace, program: Program, stuck: Stuck) -> GroupTrace:
    """Return the trace of a group that was ended because ranks waited for ever, or were lost.

    Args:
        trace: An empty trace.
        program: The program.
        stuck: How the ranks stood.
    """
    failed: dict[int, Raise] = {}
    is_backward = False
    for rank, (head, _) in stuck.answers.items():
        if (error := head.failure or head.backward_failure) is not None:
            failed[rank] = error
            is_backward |= head.failure is None
    parts = [*_lost_words(stuck), *_words_of(stuck, failed)]
    detail = next((f"{one.kind}: {one.message}" for one in failed.values()), "")
    at = [one.step for one in failed.values()] or [place.step for place in stuck.places.values()]
    is_backward |= any(place.step < -1 for place in stuck.places.values())
    if stuck.lost:
        # Whatever the others did: they may have failed because a rank was lost.
        at = [loss.place.step for loss in stuck.lost.values()]
        is_backward = min(at) < -1
    last = program_end(program)
    # Before the first call and after the last one the inputs are placed and gathered, and no input is at fault.
    first = next((index for index, _ in program.calls), last)
    step = last if is_backward or not at else max(first, min(*at, last))
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


def _lost_words(stuck: Stuck) -> list[str]:
    """Return in words how ranks were lost."""
    texts: dict[str, list[int]] = {}
    for rank, loss in stuck.lost.items():
        texts.setdefault(loss.text, []).append(rank)
    return [f"{numbered(ranks)} {text}" for text, ranks in texts.items()]


def _words_of(stuck: Stuck, failed: Mapping[int, Raise]) -> list[str]:
    """Return in words what the other ranks did."""
    parts = []
    if failed:
        error = next(iter(failed.values()))
        parts.append(error.seen or f"{numbered(failed)} raised {error.kind}")
    done = [rank for rank in stuck.answers if rank not in failed]
    if done:
        parts.append(f"{numbered(done)} went on")
    for name in dict.fromkeys(place.collective for place in stuck.places.values()):
        there = [rank for rank, place in stuck.places.items() if place.collective == name]
        parts.append(f"{numbered(there)} {'waits' if len(there) == 1 else 'wait'} for ever in {name}")
    return parts


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

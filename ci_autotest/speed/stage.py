"""The stage that times candidates: what was aligned is timed at larger sizes, one call at a time."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.errors import AutotestError
from ci_autotest.run.messages import Broken, Measure
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.speed.instruction_request import Counted, count_instructions, has_callgrind
from ci_autotest.speed.paired_ratio import combined, is_to_repeat
from ci_autotest.values.speed import SpeedResult, against_baseline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.commands.case_counts import PairEntry
    from ci_autotest.commands.run import Timing
    from ci_autotest.commands.run_statistics import Ledger
    from ci_autotest.findings.tools import Tools
    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.run.single_worker import SingleWorker
    from ci_autotest.values.speed import Instructions
    from ci_autotest.values.verdict import Kind

#: Cases whose draws are timed at larger sizes. With several dtypes, each of these has another one.
CASES: Final = (0, 2)
#: Calls whose instructions are counted, because that takes a minute or two each.
_COUNTED: Final = 2


class _Call(NamedTuple):
    """A case to time.

    Attributes:
        test: Its test.
        case: Its number.
        candidate: The candidate.
        known: Inputs of the test's cases that were timed before.
    """

    test: TestInfo
    case: int
    candidate: str
    known: tuple[tuple[str, ...], ...] = ()


def time_candidates(
    ledger: Ledger, candidates: Sequence[AnyCandidate], timing: Timing, found: list[SpeedResult]
) -> str:
    """Append the results of every aligned test on the candidates with ``speed``, one by one.

    Returns:
        A note about what ended the timing early; empty if nothing did.
    """
    try:
        _time(ledger, candidates, timing, found)
    except AutotestError:  # They end the run with an exit status of their own, and with its report.
        raise
    except Exception as error:  # noqa: BLE001 - a bug of ours in a time must not cost the report of all cases
        return (
            f"timing ended early, because of a bug in ci-autotest ({type(error).__name__}: {error}). Calls without a "
            "result were not timed; the results of all cases are complete."
        )
    return ""


def _time(ledger: Ledger, candidates: Sequence[AnyCandidate], timing: Timing, found: list[SpeedResult]) -> None:
    found.extend(_timed(ledger, candidates, timing))
    if not has_callgrind(timing.tools.environ):
        return
    rows = {candidate.name: candidate for candidate in candidates}
    for call in _to_count(found, ledger):
        if not timing.tools.allowance.is_spent:
            timing.say(f"counting the instructions of {call.test.id} on {call.candidate}, which is slower")
            counts = _counted(call, rows[call.candidate], timing.tools)
            found[:] = [
                msgspec.structs.replace(item, instructions=counts) if _is_of(item, call) else item for item in found
            ]


def _to_count(results: Sequence[SpeedResult], ledger: Ledger) -> list[_Call]:
    """Return the few calls that are slowest against the reference."""
    slow = sorted(
        (item for item in results if item.verdict == "slower" and item.ratio is not None),
        key=lambda item: -item.ratio.median if item.ratio is not None else 0.0,
    )
    calls = dict.fromkeys(_Call(ledger.tests[item.test].info, item.case, item.candidate) for item in slow)
    return list(calls)[:_COUNTED]


def _is_of(item: SpeedResult, call: _Call) -> bool:
    return (item.test, item.case, item.candidate) == (
        call.test.id,
        call.case,
        call.candidate,
    ) and item.ratio is not None


def _counted(call: _Call, candidate: AnyCandidate, tools: Tools) -> Instructions | None:
    with closing(tools.fresh()) as fresh:
        answer = fresh.measure(Measure(test=call.test, case=call.case, candidate=call.candidate, keeps_program=True))
    if isinstance(answer, (Broken, WorkerLostError)):
        return None
    counted = Counted(candidate=candidate, folders=[str(folder) for folder in tools.folders])
    return count_instructions(answer.program, answer.tensors, counted, tools.environ)


def _timed(ledger: Ledger, candidates: Sequence[AnyCandidate], timing: Timing) -> Iterator[SpeedResult]:
    for candidate in candidates:
        if not candidate.speed or candidate.name not in ledger.candidates or candidate.untimed:
            continue
        calls = list(_calls(ledger, candidate.name))
        if calls:
            timing.say(f"timing {len(calls)} aligned cases on {candidate.name} at larger sizes")
        with closing(timing.tools.fresh()) as fresh:
            yield from _of_candidate(calls, fresh, timing)


def _of_candidate(calls: Sequence[_Call], fresh: SingleWorker, timing: Timing) -> Iterator[SpeedResult]:
    own: list[SpeedResult] = []
    for call in calls:
        if timing.tools.allowance.is_spent:
            yield _without(call, "the budget was spent")
            continue
        own = [item for item in own if item.test == call.test.id]
        # A test that has ended its process would do so again, case after case.
        if not any(item.verdict == "crashed" for item in own):
            found = _measured(call._replace(known=tuple(item.inputs for item in own)), fresh, timing)
            own += found
            yield from found


def _calls(ledger: Ledger, candidate: str) -> Iterator[_Call]:
    for entry in ledger.tests.values():
        # A test of a data loader has no other candidate.
        if candidate in entry.candidates and _is_aligned(ledger.pairs[entry.info.id, candidate]) and not entry.broken:
            yield from (_Call(entry.info, case, candidate) for case in CASES if case in entry.cases)


def _is_aligned(pair: PairEntry) -> bool:
    """Whether cases were compared, and none of them was misaligned or lost."""
    return bool(pair.added.aligned) and not pair.misaligned and not pair.lost


def _measured(call: _Call, fresh: SingleWorker, timing: Timing) -> tuple[SpeedResult, ...]:
    """Return a call's results; what differs from the reference or the baseline is measured again in fresh processes."""
    measurements = [_once(call, fresh, timing, 0)]
    while is_to_repeat(measurements):
        fresh.close()
        measurements.append(_once(call, fresh, timing, len(measurements)))
    return against_baseline(combined(measurements), timing.baseline)


def _once(call: _Call, fresh: SingleWorker, timing: Timing, seed: int) -> tuple[SpeedResult, ...]:
    answer = fresh.measure(
        Measure(test=call.test, case=call.case, candidate=call.candidate, seed=seed, known=list(call.known))
    )
    if isinstance(answer, WorkerLostError):
        is_of_candidate = answer.spot.candidate >= 0 and not answer.is_killed
        kind: Kind = "timeout" if answer.timed_out else "crash"
        return (_without(call, f"the worker {answer.reason}", kind if is_of_candidate else None),)
    if isinstance(answer, Broken):
        return (_without(call, answer.message),)
    # A test can forge its worker's messages: the results are about this call and no other.
    own = {"test": call.test.id, "candidate": call.candidate, "case": call.case, "factor": timing.factor}
    return against_baseline((msgspec.structs.replace(result, **own) for result in answer.results), timing.baseline)


def _without(call: _Call, reason: str, kind: Kind | None = None) -> SpeedResult:
    # A lost worker does not say which operator ended it; like a lost case at first, it has the test's name.
    operator = call.test.id if kind is not None else ""
    return SpeedResult(
        test=call.test.id, candidate=call.candidate, case=call.case, phase="forward", reason=reason,
        verdict="not_timed" if kind is None else "crashed", operator=operator, target=operator, kind=kind,
    )  # fmt: skip

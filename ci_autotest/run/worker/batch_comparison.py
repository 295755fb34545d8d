"""The comparison of a batch on one candidate with the reference, and what its probes and repeats show.

A result that cannot be read is the candidate's error. It costs no other candidate its case.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from ci_autotest.alignment.aligned_errors import errors_of
from ci_autotest.alignment.cases import ALIGNED, aligned_in_batch, judge_case, settled
from ci_autotest.alignment.recalls import has_repeated_backward, is_to_be_repeated, repeated
from ci_autotest.alignment.verdict import Judged, judged_operators, judged_with_guard, live_of
from ci_autotest.backends.framework.process import HostLostError
from ci_autotest.backends.protocol import each_step, out_of_scope
from ci_autotest.errors import AuthorError
from ci_autotest.run.worker.batch import BatchVerdicts
from ci_autotest.run.worker.gpu import retire_if_spoiled
from ci_autotest.run.worker.probe_runner import ProbeRunner
from ci_autotest.run.worker.unreadable import guarded_suspicion, unreadable_verdict
from ci_autotest.values.aligned_error import is_measured
from ci_autotest.values.result import REFERENCE_CANDIDATE
from ci_autotest.values.schedule import SCHEDULE, Passes, RowName, asks, window_of
from ci_autotest.values.verdict import Verdict, unsupported_verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ci_autotest.alignment.cases import Contender
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.run.progress_beacon import ProgressBeacon
    from ci_autotest.run.worker.batch import Batch, TestRun
    from ci_autotest.run.worker.context import WorkerContext
    from ci_autotest.run.worker.probe_runner import ProbeRun
    from ci_autotest.values.aligned_error import AlignedError


class BatchComparison:
    """Compare batches.

    Args:
        worker_context: Gives the reference and the devices.
        beacon: Where the worker reports the case in flight.
    """

    def __init__(self, worker_context: WorkerContext, beacon: ProgressBeacon) -> None:
        self._worker_context = worker_context
        self._beacon = beacon
        self.probes = ProbeRunner(worker_context, beacon)
        self._repeated_windows: set[tuple[str, str, int]] = set()

    def compare(self, run: TestRun, name: str, batch: Batch) -> BatchVerdicts:
        """Compare one candidate's traces of a batch with the reference."""
        contender, attempts = run.contender(name), batch.attempts
        traces = batch.submissions[name].traces()
        if name in batch.meters:
            batch.meters[name].stop()
        enter = self._beacon.entering(run.order[name], batch.spots, RowName.LOOK)
        sure = aligned_in_batch(attempts, contender, traces, enter)
        # The fast path does not know that nothing of an untested attempt was compared.
        sure -= {position for position, attempt in enumerate(attempts) if attempt.untested}
        judged = self._judged(run.order[name], batch, contender, traces, sure)
        verdicts = {position: one.verdict for position, one in judged.items()}
        sure -= verdicts.keys()
        # Before probes and repeated calls, which write other values to the same memory.
        errors = dict(_aligned_errors(batch, traces, judged))
        suspected: dict[int, Verdict] = {}
        if name != REFERENCE_CANDIDATE:
            probed = list(self.probes.shown(run, name, batch, traces, verdicts))
            if "again" in contender.backend.abilities:
                suspected |= dict(self._repeat_suspicions(run, name, batch, traces, sure, probed))
            suspected |= {shown.position: shown.difference for shown in probed if shown.difference is not None}
        return BatchVerdicts(traces, sure, verdicts, suspected, errors)

    def _judged(
        self, order: int, batch: Batch, contender: Contender, traces: Sequence[Trace], sure: Collection[int]
    ) -> dict[int, Judged]:
        """Judge the cases that are not surely aligned, and guarded ones that are not at all, by position."""
        found = {}
        rows = (RowName.LOOK, RowName.GUARD, RowName.OPERATORS)
        entering = {row: self._beacon.entering(order, batch.spots, row) for row in rows}
        for position, attempt in enumerate(batch.attempts):
            case = batch.spots[position][0]
            has_guard = contender.has_guard and asks(RowName.GUARD, case)
            is_checked = contender.checks_operators and asks(RowName.OPERATORS, case)
            if position in sure and traces[position].delegation is not None:
                shown = settled(Judged(ALIGNED, live_of(attempt)), traces[position])
                if shown.verdict is not ALIGNED:
                    found[position] = shown
                    continue
            if position in sure and not (has_guard or (is_checked and contender.backend.has_operators())):
                continue
            row = RowName.LOOK if position not in sure else RowName.GUARD if has_guard else RowName.OPERATORS
            entering[row](position)
            for _ in range(SCHEDULE[row].forward):
                entering[row].calls(position, Passes.BOTH)
            if position not in sure:
                asked = contender._replace(has_guard=has_guard, checks_operators=is_checked)
                judged = self._judge(attempt, asked, traces[position])
            elif (looked := self._looked_into(attempt, contender, has_guard=has_guard)) is not None:
                judged = looked
            else:
                continue
            if attempt.untested and judged.verdict.outcome == "aligned":
                judged = judged._replace(verdict=unsupported_verdict(attempt.untested))
            found[position] = judged = settled(judged, traces[position])
            if judged.verdict.kind is not None:
                retire_if_spoiled(self._worker_context.devices)
        return found

    def _looked_into(self, attempt: Attempt, contender: Contender, *, has_guard: bool) -> Judged | None:
        """Judge a surely aligned case with guard bands or checks of operators; ``None`` if it is right."""
        if out_of_scope(contender.backend, attempt) is not None:
            return None
        try:
            judge = judged_with_guard if has_guard else judged_operators
            return judge(live_of(attempt), contender.beside(self._worker_context.reference))
        except (AuthorError, HostLostError):
            raise
        except Exception as error:  # noqa: BLE001 - foreign tensors: reading them may raise anything
            return Judged(unreadable_verdict(attempt.program, error), live_of(attempt))

    def _judge(self, attempt: Attempt, contender: Contender, trace: Trace) -> Judged:
        try:
            return judge_case(attempt, contender, self._worker_context.reference, trace)
        except (AuthorError, HostLostError):
            raise
        except Exception as error:  # noqa: BLE001 - foreign tensors: reading them may raise anything
            return Judged(unreadable_verdict(attempt.program, error), live_of(attempt))

    def _repeat_suspicions(
        self,
        run: TestRun,
        name: str,
        batch: Batch,
        traces: Sequence[Trace],
        sure: Collection[int],
        probed: Sequence[ProbeRun],
    ) -> Iterator[tuple[int, Verdict]]:
        """Repeat surely aligned cases of a batch after all other cases and its probes; yield position and difference.

        Only the first case of each window is repeated, so that a candidate gets the same calls however batches are cut.
        """
        contender, beacon = run.contenders[name], self._beacon
        again = beacon.entering(run.order[name], batch.spots, RowName.REPEAT)
        probe_again = beacon.entering(run.order[name], batch.spots, RowName.REPEAT_OF_SEQUENCE)
        whole = [(at, batch.attempts[at], traces[at]) for at in self._first_of_windows(run, name, batch, traces, sure)]
        repeated_at = {at for at in sure if asks(RowName.REPEAT_OF_SEQUENCE, batch.spots[at][0])}
        sequences = [
            (at, probe, trace)
            for at, probe, trace, _ in probed
            if at in repeated_at and is_to_be_repeated(batch.attempts[at], traces[at])
        ]
        for position, attempt, trace in [*whole, *sequences]:
            own = contender.backend.narrowed(attempt)
            enter = probe_again if own.is_probe else again
            enter(position)
            enter.calls(position, Passes.BOTH if has_repeated_backward(own) else Passes.FORWARD)
            find = partial(repeated, own, trace, contender)
            # The calls of a probe take many times as long as its case, so each one is progress.
            with each_step(contender.backend, enter.step) if attempt.is_probe else nullcontext():
                found = guarded_suspicion(attempt.program, find)
            if found is not None:
                yield position, found

    def _first_of_windows(
        self, run: TestRun, name: str, batch: Batch, traces: Sequence[Trace], sure: Collection[int]
    ) -> Iterator[int]:
        """Yield the position of the first case of each window that can be repeated."""
        for position in sorted(sure):
            case, _ = batch.spots[position]
            window = run.test, name, window_of(case)
            is_new = asks(RowName.REPEAT, case) and window not in self._repeated_windows
            if is_new and is_to_be_repeated(batch.attempts[position], traces[position]):
                self._repeated_windows.add(window)
                yield position


def _aligned_errors(
    batch: Batch, traces: Sequence[Trace], judged: Mapping[int, Judged]
) -> Iterator[tuple[int, tuple[AlignedError, ...]]]:
    """Yield the position of each aligned case that is measured, and its greatest errors."""
    for position, attempt in enumerate(batch.attempts):
        one = judged.get(position)
        is_aligned = one is None or (one.verdict == ALIGNED and not one.is_first_run_off)
        if is_measured(batch.spots[position][0]) and is_aligned:
            # Foreign tensors: reading them may raise anything, and an aligned case stays aligned.
            with suppress(Exception):
                yield position, errors_of(attempt.program, traces[position], attempt.trace)

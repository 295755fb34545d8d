"""Run cases in a worker: attempts in batches, phase by phase, each on every candidate."""

from __future__ import annotations

import gc
import time
from collections import deque
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.alignment.cases import Accepted, Contender, accept, aligned_in_batch, differentiate, judge_case
from ci_autotest.alignment.fast_path import is_surely_aligned, overwritten
from ci_autotest.alignment.repeats import is_to_be_repeated, repeated
from ci_autotest.alignment.stateful import probe_of, suspicion
from ci_autotest.backends.operator_usage import OperatorUsage
from ci_autotest.backends.operators.identity import spelled, step_operator
from ci_autotest.backends.remote.process import HostLostError
from ci_autotest.errors import AuthorError, said
from ci_autotest.run.messages import CaseFailure, CasesDone, Cost, Left, RunCases
from ci_autotest.run.progress_beacon import IN_REFUSED, NOWHERE
from ci_autotest.run.worker.batch import Batch, Judged, is_aligned, operators
from ci_autotest.run.worker.batch_counts import BatchCounts
from ci_autotest.run.worker.context import REFERENCE, WorkerContext
from ci_autotest.run.worker.gpu import retire_if_spoiled
from ci_autotest.run.worker.memory import case_bytes, cases_at_once, collect
from ci_autotest.run.worker.meter import Meter, allocated_bytes, mapped_bytes
from ci_autotest.values.case import has_series, is_late, test_key, window_of
from ci_autotest.values.verdict import Misalignment, Result, Verdict, unsupported_verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.program.ir import Program
    from ci_autotest.run.progress_beacon import ProgressBeacon
    from ci_autotest.run.worker.process_state import ProcessState

#: Seconds between two parts of an answer to ``RunCases``.
_PART_S: Final = 0.5
#: Bytes that a batch must keep before it is looked into what kept them.
_KEPT_BYTES: Final = 1 << 22
#: Memory that the batches held may take, as far as the cases of the test so far say.
_BATCH_BYTES: Final = 1 << 28


class _Run(NamedTuple):
    """What the batches of one message have in common: the test, how it is drawn, its candidates, what is asked."""

    test: str
    key: int
    draw: Callable[[int, int], Attempt]
    contenders: Mapping[str, Contender]
    order: Mapping[str, int]
    asks_refused: bool
    ends_if_changed: bool


class CaseRunner:
    """Run cases.

    Args:
        equipment: What is worked with.
        place: Where the case in flight is told.
        state: Says what of this process is no longer as it was.
        send: Sends a part of an answer before the answer is complete.
    """

    def __init__(
        self,
        worker_context: WorkerContext,
        place: ProgressBeacon,
        state: ProcessState,
        send: Callable[[CasesDone], None],
    ) -> None:
        self._state = state
        self._worker_context = worker_context
        self._place = place
        self._send = send
        self._overwritten: dict[str, frozenset[int]] = {}
        self._largest: dict[str, int] = {}
        self._probed: set[tuple[str, int]] = set()
        self._repeats: set[tuple[str, str, int]] = set()
        self._growing: set[str] = set()
        self._usage = OperatorUsage()

    def run(self, message: RunCases) -> CasesDone:
        """Run cases of a test, and return their outcomes."""
        self._place.enter(REFERENCE, REFERENCE)
        run = self._run_of(message)
        left, waiting = message.cases, deque[Batch]()
        ahead = max((one.backend.batches_ahead for one in run.contenders.values()), default=0)
        batch_counts = BatchCounts(self._usage)
        try:
            while left or waiting:
                if left:
                    cases = left[: self._cases_at_once(run.test, ahead)]
                    left = left[len(cases) :]
                    waiting.append(self._begun(run, cases))
                if len(waiting) > ahead or not left:
                    self._ended(run, waiting.popleft(), batch_counts)
                    if batch_counts.left and run.ends_if_changed:
                        break
                    if batch_counts.duration_s > _PART_S and (left or waiting):
                        self._send(batch_counts.message(last=False))
                        batch_counts = BatchCounts(self._usage)
                    collect()
        except Exception:
            retire_if_spoiled(self._worker_context.devices)
            raise
        finally:
            for batch in waiting:
                for submission in batch.submissions.values():
                    submission.close()
        return batch_counts.message(last=True)

    def _run_of(self, message: RunCases) -> _Run:
        worker_context, test = self._worker_context, message.test.id
        declaration, call = worker_context.test(message.test)
        key = test_key(worker_context.hello.seed, test)

        def draw(case: int, number: int) -> Attempt:
            watched = self._overwritten.get(test, frozenset())
            return worker_context.attempts.attempt(declaration, call, (key, test, case, number), watched=watched)

        return _Run(
            test, key, draw,
            {
                name: worker_context.contender(name, declaration, asks_float64=message.asks_float64)
                for name in message.candidates
            },
            {name: position for position, name in enumerate(message.candidates)}, message.asks_refused,
            message.ends_if_changed,
        )  # fmt: skip

    def _cases_at_once(self, test: str, ahead: int) -> int:
        """Return how many cases run together: of a new test one, which shows what its steps write to and its size.

        Batches that are ``ahead`` share the memory with this one.
        """
        if test not in self._overwritten:
            return 1
        return cases_at_once(self._largest.get(test, 0), _BATCH_BYTES // (1 + ahead))

    def _begun(self, run: _Run, cases: list[int]) -> Batch:
        """Run a few cases on the reference, phase by phase: each phase's code stays warm. Give them to candidates."""
        is_first, is_growing = run.test not in self._overwritten, run.test in self._growing
        mapped, allocated = mapped_bytes(), allocated_bytes() if is_growing else 0
        self._worker_context.attempts.prefetch(run.key, cases)
        refused: list[tuple[int, Accepted]] = []
        spots, attempts, seconds = [], [], []
        for case in cases:
            self._place.enter(case, REFERENCE, 0)
            begun = time.perf_counter()
            attempt, number = run.draw(case, 0), 0
            if attempt.refused is not None:
                found = self._again(case, attempt, run)
                refused.append((case, found))
                if found.attempt is None:
                    continue
                attempt, number = found.attempt, found.number
            spots.append((case, number))
            attempts.append(self._learned(run.test, attempt) or run.draw(case, number))
            seconds.append(time.perf_counter() - begun)
        enter = self._place.entering(REFERENCE, spots)
        for position, attempt in enumerate(attempts):
            enter(position)
            differentiate(attempt, self._worker_context.reference)
        largest = max((case_bytes(attempt.trace.values) for attempt in attempts), default=0)
        self._largest[run.test] = max(largest, self._largest.get(run.test, 0))
        undefined = frozenset(n for n, attempt in enumerate(attempts) if attempt.trace.backward_failure is not None)
        probes = self._probes(run, spots, attempts)
        places = [*spots, *(spots[position] for position in probes)]
        given = [*attempts, *probes.values()]
        meters = {
            name: Meter(self._place.entering(run.order[name], places), attempts, is_growing=is_growing)
            for name, contender in run.contenders.items()
            if contender.backend.is_in_process and contender.backend.shows_steps and not is_first
        }
        submissions = {
            name: contender.backend.submit(
                given if contender.backend.shows_steps else attempts,
                meters.get(name) or self._place.entering(run.order[name], places),
            )
            for name, contender in run.contenders.items()
        }
        reference_s = median(seconds) * len(seconds) if seconds else 0.0
        return Batch(
            cases, spots, attempts, refused, undefined, probes, submissions, meters, reference_s, mapped, allocated
        )  # fmt: skip

    def _probes(self, run: _Run, spots: list[tuple[int, int]], attempts: list[Attempt]) -> dict[int, Attempt]:
        """Return the probes of a batch, by the position of their case: of each window the first that has one.

        Not of case 0, which is a window of its own: every test runs that before any runs more.
        """
        if not any(contender.backend.shows_steps for contender in run.contenders.values()):
            return {}
        found, is_in_process = {}, all(contender.backend.is_in_process for contender in run.contenders.values())
        for position, (case, number) in enumerate(spots):
            window = run.test, window_of(case)
            if case and window not in self._probed:
                self._place.enter(case, REFERENCE, number)
                probe = probe_of(
                    attempts[position], self._worker_context.reference, self._place.step,
                    of_series=has_series(case), is_whole=not is_in_process, takes_any=is_late(case),
                )  # fmt: skip
                if probe is not None:
                    found[position] = probe
                    self._probed.add(window)
        return found

    def _ended(self, run: _Run, batch: Batch, batch_counts: BatchCounts) -> None:
        """End a batch, and count what it cost once nothing of it is held any longer."""
        meters, mapped, before = batch.meters, batch.mapped_bytes, batch.allocated_bytes
        cases, reference_s = len(batch.attempts), batch.reference_s
        self._end(run, batch, batch_counts)
        drawn = {
            # Another device has a generator of its own.
            name: meter.drawn(batch.attempts, self._worker_context.reference)
            for name, meter in meters.items()
            if str(getattr(run.contenders[name].backend, "device", "cpu")) == "cpu"
        }
        del batch
        kept = self._kept(run.test, mapped, before) if meters else 0
        for name, meter in meters.items():
            batch_counts.cost(
                name,
                Cost(
                    cases=cases, candidate_s=meter.seconds, reference_s=reference_s,
                    watched=cases if meter.is_growing else 0, kept_bytes=meter.kept(kept), drawn=drawn.get(name, ""),
                ),
            )  # fmt: skip

    def _kept(self, test: str, mapped: int, allocated: int) -> int:
        """Return the bytes that a batch has kept, where its test is watched; else see whether it is to be."""
        if test not in self._growing:
            if mapped_bytes() - mapped >= _KEPT_BYTES:
                self._growing.add(test)
            return 0
        kept = allocated_bytes() - allocated
        if kept >= _KEPT_BYTES:
            gc.collect()
            kept = allocated_bytes() - allocated
        return kept if kept >= _KEPT_BYTES else 0

    def _end(self, run: _Run, batch: Batch, batch_counts: BatchCounts) -> None:
        """Hold what each candidate made of a batch against the reference, and count what came of it.

        Once a candidate has changed this process, what is not plainly aligned may be that change's doing.
        """
        judged = {}
        for name in run.contenders:
            judged[name] = found = self._contend(run, name, batch)
            if changes := self._state.changes():
                batch_counts.left.append(
                    Left(candidate=name, operators=operators(batch, found.traces), changes=changes)
                )
        counted = [*range(len(batch.attempts))]
        if batch_counts.left and run.ends_if_changed:
            refused = {case for case, _ in batch.refused}
            counted = [
                position
                for position in counted
                if batch.spots[position][0] not in refused and all(one.is_plain(position) for one in judged.values())
            ]
            kept = {batch.spots[position][0] for position in counted}
            batch_counts.again += [case for case in batch.cases if case not in kept]
            batch = batch._replace(cases=sorted(kept), refused=[])
        self._count(batch, counted, judged, batch_counts)

    def _count(
        self, batch: Batch, counted: Sequence[int], judged: Mapping[str, Judged], batch_counts: BatchCounts
    ) -> None:
        """Count the cases of a batch at some positions."""
        for case, found in batch.refused:
            batch_counts.rejected(found)
            for name, lenient in found.lenient.items():
                batch_counts.failures.append(
                    _failure(case, lenient.number, name, lenient.judged.verdict, lenient.profile)
                )
        attempts = [batch.attempts[position] for position in counted]
        batch_counts.accepted(
            batch.cases, [attempt.profile for attempt in attempts], list(map(self._usage.form, attempts))
        )
        batch_counts.undefined += len(batch.undefined.intersection(counted))
        batch_counts.outside += sum(attempt.has_outside for attempt in attempts)
        for name, one in judged.items():
            outcomes: list[bool | None] = []
            for position in counted:
                verdict, profile = one.verdicts.get(position), batch.attempts[position].profile
                outcomes.append(is_aligned(verdict))
                if verdict is not None:
                    batch_counts.judged(name, verdict)
                for told in (verdict, one.suspected.get(position)):
                    if told is not None and told.kind is not None:
                        batch_counts.failures.append(_failure(*batch.spots[position], name, told, profile))
            batch_counts.aligned(name, len(one.sure & {*counted}))
            batch_counts.covered(name, outcomes)
            batch_counts.saw(name, [one.traces[position] for position in counted])

    def _again(self, case: int, refused: Attempt, run: _Run) -> Accepted:
        """Draw a case again whose first attempt the reference refused; try on the candidates what it refuses."""
        positions = {"": REFERENCE, **run.order}

        def enter(case: int, name: str, number: int) -> None:
            self._place.enter(case, positions[name], number, IN_REFUSED if name else NOWHERE)

        asked = run.contenders if run.asks_refused else {}
        return accept(case, lambda case, number: run.draw(case, number) if number else refused, asked, enter)

    def _contend(self, run: _Run, name: str, batch: Batch) -> Judged:
        """Hold one candidate's traces of a batch against the reference."""
        contender, attempts = run.contenders[name], batch.attempts
        traces = batch.submissions[name].traces()
        if name in batch.meters:
            batch.meters[name].stop()
        enter = self._place.entering(run.order[name], batch.spots)
        sure = aligned_in_batch(attempts, contender, traces[: len(attempts)], enter)
        sure -= {position for position, attempt in enumerate(attempts) if attempt.untested}
        verdicts, suspected = {}, {}
        for position, attempt in enumerate(attempts):
            if position in sure:
                continue
            enter(position)
            verdict = self._judged(attempt, contender, traces[position])
            if attempt.untested and verdict.outcome == "aligned":
                verdict = unsupported_verdict(attempt.untested)
            verdicts[position] = verdict
            if verdict.kind is None:
                self._watch(run.test, attempt)
            else:
                retire_if_spoiled(self._worker_context.devices)
        for (position, probe), trace in zip(batch.probes.items(), traces[len(attempts) :], strict=False):
            if is_aligned(verdicts.get(position)):  # else the case says what is wrong
                enter(position)
                found = self._suspected(batch.spots[position][0], probe, trace, contender)
                if found is not None:
                    suspected[position] = found
        if contender.backend.is_in_process and contender.backend.shows_steps:
            suspected = {**dict(self._repeated(run, name, batch, traces, sure)), **suspected}
        return Judged(traces[: len(attempts)], sure, verdicts, suspected)

    def _repeated(
        self, run: _Run, name: str, batch: Batch, traces: Sequence[Trace], sure: Collection[int]
    ) -> Iterator[tuple[int, Verdict]]:
        """Repeat cases of a batch that are surely aligned, after all the others, and its probes.

        The first of each window, so that a candidate has the same calls whatever the batches. Yields what this shows,
        with the position of the case.
        """
        contender, enter = run.contenders[name], self._place.entering(run.order[name], batch.spots)
        whole = [(at, batch.attempts[at], traces[at]) for at in self._first_of_windows(run, name, batch, traces, sure)]
        probes = zip(batch.probes, batch.probes.values(), traces[len(batch.attempts) :], strict=False)
        sequences = [
            (at, probe, trace)
            for at, probe, trace in probes
            if at in sure and not has_series(batch.spots[at][0]) and is_to_be_repeated(batch.attempts[at], traces[at])
        ]
        for position, attempt, trace in [*whole, *sequences]:
            enter(position)
            has_backward = not attempt.is_probe and bool(attempt.cotangents)
            look = partial(repeated, attempt, trace, contender, has_backward=has_backward)
            found = _looked(attempt.program, look)
            if found is not None:
                yield position, found

    def _first_of_windows(
        self, run: _Run, name: str, batch: Batch, traces: Sequence[Trace], sure: Collection[int]
    ) -> Iterator[int]:
        """Yield the positions of the first cases of windows that can be repeated."""
        for position in sorted(sure):
            case, _ = batch.spots[position]
            window = run.test, name, window_of(case)
            if case and window not in self._repeats and is_to_be_repeated(batch.attempts[position], traces[position]):
                self._repeats.add(window)
                yield position

    def _suspected(self, case: int, probe: Attempt, trace: Trace, contender: Contender) -> Verdict | None:
        """Return what a probe shows that its case did not; ``None`` where that is nothing."""
        if is_surely_aligned(probe.program, trace, probe.trace, contender.rules):
            return None
        if has_series(case):  # The reference ran a part of it, and which values share memory is not known of the rest.
            copied = probe.trace.copies
            probe = probe._replace(
                trace=self._worker_context.reference.run(probe.program, probe.sources, copied=copied)
            )
        return _looked(probe.program, partial(suspicion, probe, trace, contender.rules))

    def _judged(self, attempt: Attempt, contender: Contender, trace: Trace) -> Verdict:
        """Return the verdict on a case.

        A result that cannot even be looked at is the candidate's error, and costs no other candidate its case.
        """
        try:
            return judge_case(attempt, contender, self._worker_context.reference, trace).verdict
        except (AuthorError, HostLostError):
            raise
        except Exception as error:  # noqa: BLE001 - foreign tensors: reading them may raise anything
            return _unreadable(attempt.program, error)

    def _learned(self, test: str, attempt: Attempt) -> Attempt | None:
        """Return an accepted attempt; ``None`` where it is to be drawn again, with copies of what its steps write to.

        Said of the first attempt at a test only: the others begin with the copies.
        """
        if test in self._overwritten:
            return attempt
        self._overwritten[test] = frozenset()
        self._watch(test, attempt)
        return attempt if not self._overwritten[test] else None

    def _watch(self, test: str, attempt: Attempt) -> None:
        """Remember which values a test's steps write to: copied in later cases, they need no second run."""
        if not attempt.program.setup:
            self._overwritten[test] = self._overwritten.get(test, frozenset()) | overwritten(attempt.trace)


def _looked(program: Program, look: Callable[[], Verdict | None]) -> Verdict | None:
    """Return a suspicion; of a result that cannot be read, that it cannot."""
    try:
        return look()
    except (AuthorError, HostLostError):
        raise
    except Exception as error:  # noqa: BLE001 - foreign tensors: reading them may raise anything
        return msgspec.structs.replace(_unreadable(program, error), kind="stateful")


def _failure(case: int, attempt: int, candidate: str, verdict: Verdict, profile: str) -> CaseFailure:
    return CaseFailure(case=case, attempt=attempt, candidate=candidate, verdict=verdict, profile=profile)


def _unreadable(program: Program, error: Exception) -> Verdict:
    """Return the verdict on a result that cannot even be looked at: it is the candidate's error."""
    last = len(program.steps) - 1
    step = program.calls[-1][1] if program.calls else program.steps[last]
    misalignment = Misalignment(
        kind="error", step=last, at=Result(), candidate="cannot be read", reference="returns",
        detail=f"{type(error).__name__}: {said(error)}"[:2000],
    )  # fmt: skip
    return Verdict(
        outcome="misaligned", operator=step_operator(step, program.steps), target=spelled(step), kind="error",
        blame="candidate", step=last, misalignment=misalignment,
        oracle="what the candidate returned cannot be compared",
    )  # fmt: skip

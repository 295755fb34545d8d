"""Runner of cases in a worker: it draws them in batches, runs each phase for a whole batch, and counts the results."""

from __future__ import annotations

import gc
import time
from collections import deque
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.alignment.cases import Accepted, accept, differentiate
from ci_autotest.backends.operator_usage import OperatorUsage
from ci_autotest.backends.trace import overwritten
from ci_autotest.program.expectations import has_expectation
from ci_autotest.run.messages import CasesDone, Left, RunCases
from ci_autotest.run.progress_beacon import IN_REFUSED, NOWHERE
from ci_autotest.run.worker.batch import Batch, TestRun, operators
from ci_autotest.run.worker.batch_comparison import BatchComparison
from ci_autotest.run.worker.batch_counts import BatchCounts
from ci_autotest.run.worker.context import REFERENCE, WorkerContext
from ci_autotest.run.worker.gpu import retire_if_spoiled
from ci_autotest.run.worker.memory import case_bytes, cases_at_once, collect
from ci_autotest.run.worker.meter import Meter, allocated_bytes, mapped_bytes
from ci_autotest.values.case import test_key
from ci_autotest.values.result import REFERENCE_CANDIDATE
from ci_autotest.values.schedule import Passes, RowName, window_of
from ci_autotest.values.tally import Cost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.backends.trace import Attempt
    from ci_autotest.run.progress_beacon import ProgressBeacon
    from ci_autotest.run.worker.process_state import ProcessState

#: Seconds between two parts of an answer to ``RunCases``.
_PART_S: Final = 0.5
#: Bytes that the process must grow by during a batch before its test's memory is watched.
_KEPT_BYTES: Final = 1 << 22
#: Memory that all batches in flight may take, estimated from the test's cases so far.
_BATCH_BYTES: Final = 1 << 28


class _DrawnBatch(NamedTuple):
    """The attempts of a batch: ``spots``, ``attempts`` and ``seconds`` have one entry for each accepted attempt."""

    spots: list[tuple[int, int]]
    attempts: list[Attempt]
    seconds: list[float]
    refused: list[tuple[int, Accepted]]


class CaseRunner:
    """Run cases.

    Args:
        worker_context: The tests and the backends.
        beacon: Where the worker reports the case in flight.
        state: Detects what cases have changed in this process.
        send: Sends a part of an answer before the answer is complete.
    """

    def __init__(
        self,
        worker_context: WorkerContext,
        beacon: ProgressBeacon,
        state: ProcessState,
        send: Callable[[CasesDone], None],
    ) -> None:
        self._state = state
        self._worker_context = worker_context
        self._beacon = beacon
        self._send = send
        self._comparison = BatchComparison(worker_context, beacon)
        self._overwritten: dict[str, frozenset[int]] = {}
        self._largest: dict[str, int] = {}
        self._growing: set[str] = set()
        self._usage = OperatorUsage()
        #: The test and the window of the latest batch, of candidates that compile bodies.
        self._window: tuple[str, int] | None = None

    def run(self, message: RunCases) -> CasesDone:
        """Run cases of a test, and return the last part of their results."""
        self._beacon.enter(REFERENCE, REFERENCE)
        self._beacon.journal.begin_message()
        self._comparison.probes.begin()  # A test that broke has left its windows.
        run = self._test_run(message)
        left, waiting = message.cases, deque[Batch]()
        # A backend in another process works on one batch while this process draws the next ones.
        ahead = max((one.backend.batches_ahead for one in run.contenders.values()), default=0)
        test = message.test
        begun = partial(BatchCounts, self._usage, self._worker_context.candidates, test.examples, test.grid)
        batch_counts = begun()
        try:
            while left or waiting:
                if left:
                    cases = self._together(run, left[: self._cases_at_once(run.test, ahead)])
                    left = left[len(cases) :]
                    waiting.append(self._begin(run, cases))
                if len(waiting) > ahead or not left:
                    self._end(run, waiting.popleft(), batch_counts)
                    if batch_counts.left and run.ends_if_changed:
                        break
                    if batch_counts.duration_s > _PART_S and (left or waiting):
                        self._send(batch_counts.message(last=False))
                        batch_counts = begun()
                    collect()
        except Exception:
            retire_if_spoiled(self._worker_context.devices)
            raise
        finally:
            for batch in waiting:
                for submission in batch.submissions.values():
                    submission.close()
        batch_counts.count_probes(self._comparison.probes.counted())
        return batch_counts.message(last=True)

    def _test_run(self, message: RunCases) -> TestRun:
        worker_context, test = self._worker_context, message.test.id
        declaration, call = worker_context.test(message.test)
        key = test_key(worker_context.hello.seed, test)

        def draw(case: int, number: int) -> Attempt:
            watched = self._overwritten.get(test, frozenset())
            return worker_context.attempts.attempt(declaration, call, (key, test, case, number), watched=watched)

        return TestRun(
            test, key, draw,
            {
                name: worker_context.contender(name, declaration, asks_float64=message.asks_float64)
                for name in message.candidates
            },
            worker_context.contender(REFERENCE_CANDIDATE, declaration, asks_float64=False),
            {REFERENCE_CANDIDATE: REFERENCE, **{name: position for position, name in enumerate(message.candidates)}},
            message.asks_refused,
            message.ends_if_changed,
        )  # fmt: skip

    def _cases_at_once(self, test: str, ahead: int) -> int:
        """Return the size of the next batch.

        The first batch of a test is one case, because it shows how large the cases are and which values its steps write
        to. All batches in flight share the memory, so ``ahead`` of them leave less for each.
        """
        if test not in self._overwritten:
            return 1
        return cases_at_once(self._largest.get(test, 0), _BATCH_BYTES // (1 + ahead))

    def _together(self, run: TestRun, cases: list[int]) -> list[int]:
        """Return the cases of a batch. What is compiled for several sizes is made anew in each window.

        Windows are never split between workers, so that it has the same first size in any run.
        """
        backends = [one.backend for one in run.contenders.values() if not one.backend.shows_steps]
        if not backends:
            return cases
        own = [case for case in cases if window_of(case) == window_of(cases[0])]
        if (run.test, window_of(own[0])) != self._window:
            self._window = run.test, window_of(own[0])
            for backend in backends:
                backend.begin_window()
        return own

    def _begin(self, run: TestRun, cases: list[int]) -> Batch:
        """Run cases on the reference, phase by phase so that each phase's code stays warm, and submit them."""
        is_first, is_growing = run.test not in self._overwritten, run.test in self._growing
        mapped, allocated = mapped_bytes(), allocated_bytes() if is_growing else 0
        self._worker_context.attempts.prefetch(run.key, cases)
        spots, attempts, seconds, refused = self._draw(run, cases)
        enter = self._beacon.entering(REFERENCE, spots)
        for position, attempt in enumerate(attempts):
            enter(position)
            differentiate(attempt, self._worker_context.reference)
        largest = max((case_bytes(attempt.trace.values) for attempt in attempts), default=0)
        self._largest[run.test] = max(largest, self._largest.get(run.test, 0))
        undefined = frozenset(n for n, attempt in enumerate(attempts) if attempt.trace.backward_failure is not None)
        meters = {
            name: Meter(self._beacon.entering(run.order[name], spots), attempts, is_growing=is_growing)
            for name, contender in run.contenders.items()
            # The first batch of a test warms up, so its times would mislead.
            if contender.backend.is_in_process and contender.backend.shows_steps and not is_first
        }
        submissions = {
            name: contender.backend.submit(attempts, meters.get(name) or self._beacon.entering(run.order[name], spots))
            for name, contender in run.contenders.items()
        }
        if any(has_expectation(attempt.program.steps) for attempt in attempts):
            backend, enter = run.reference.backend, self._beacon.entering(REFERENCE, spots)
            submissions[REFERENCE_CANDIDATE] = backend.submit(attempts, enter)
        reference_s = median(seconds) * len(seconds) if seconds else 0.0
        return Batch(
            cases, spots, attempts, refused, undefined, submissions, meters, reference_s, mapped, allocated
        )  # fmt: skip

    def _draw(self, run: TestRun, cases: Sequence[int]) -> _DrawnBatch:
        """Draw and record an accepted attempt of each case, where there is one."""
        drawn = _DrawnBatch([], [], [], [])
        for case in cases:
            self._beacon.enter(case, REFERENCE, 0)
            begun = time.perf_counter()
            attempt, number = run.draw(case, 0), 0
            if not attempt.is_complete:
                found = self._draw_again(case, attempt, run)
                drawn.refused.append((case, found))
                if found.attempt is None:
                    continue
                attempt, number = found.attempt, found.number
            drawn.spots.append((case, number))
            drawn.attempts.append(attempt if self._has_copies(run.test, attempt) else run.draw(case, number))
            drawn.seconds.append(time.perf_counter() - begun)
        return drawn

    def _draw_again(self, case: int, refused: Attempt, run: TestRun) -> Accepted:
        """Draw a case again after the reference rejected its first attempt; try rejected inputs on the candidates."""
        positions = {**run.order, "": REFERENCE}

        def enter(case: int, name: str, number: int) -> None:
            self._beacon.enter(case, positions[name], number, IN_REFUSED if name else NOWHERE)
            if name:
                self._beacon.journal.add(positions[name], case, number, RowName.REFUSED, Passes.FORWARD)

        asked = run.contenders if run.asks_refused else {}
        return accept(case, lambda case, number: run.draw(case, number) if number else refused, asked, enter)

    def _has_copies(self, test: str, attempt: Attempt) -> bool:
        """Whether an attempt has copies of the values that its steps write to.

        Only the first attempt at a test may lack them, because it is what shows which values those are.
        """
        if test in self._overwritten:
            return True
        self._overwritten[test] = frozenset()
        self._watch(test, attempt)
        return not self._overwritten[test]

    def _watch(self, test: str, attempt: Attempt) -> None:
        """Add the values that an attempt's steps write to: later cases copy them, so that they need no second run."""
        if not attempt.program.setup:
            self._overwritten[test] = self._overwritten.get(test, frozenset()) | overwritten(attempt.trace)

    def _end(self, run: TestRun, batch: Batch, batch_counts: BatchCounts) -> None:
        """Compare and count a batch, then count what it cost once its tensors are freed."""
        meters, mapped, before = batch.meters, batch.mapped_bytes, batch.allocated_bytes
        cases, reference_s = len(batch.attempts), batch.reference_s
        self._compare(run, batch, batch_counts)
        for name, contender in run.contenders.items():
            if seconds := contender.backend.taken_compile_s():
                batch_counts.compiled(name, seconds)
        drawn = {
            # Another device has a generator of its own.
            name: meter.drawn(batch.attempts, self._worker_context.reference)
            for name, meter in meters.items()
            if str(getattr(run.contenders[name].backend, "device", "cpu")) == "cpu"
        }
        del batch  # What it holds must not count as memory that the candidate kept.
        kept = self._kept_bytes(run.test, mapped, before) if meters else 0
        for name, meter in meters.items():
            batch_counts.cost(
                name,
                Cost(
                    cases=cases, candidate_s=meter.seconds, reference_s=reference_s,
                    watched=cases if meter.is_growing else 0, kept_bytes=meter.kept(kept), drawn=drawn.get(name, ""),
                ),
            )  # fmt: skip

    def _kept_bytes(self, test: str, mapped: int, allocated: int) -> int:
        """Return the bytes that a batch has kept if its test is watched, else 0; watch a test that has grown."""
        if test not in self._growing:
            if mapped_bytes() - mapped >= _KEPT_BYTES:
                self._growing.add(test)
            return 0
        kept = allocated_bytes() - allocated
        if kept >= _KEPT_BYTES:
            # Garbage in cycles is not kept, but a collection is too slow to run for every batch.
            gc.collect()
            kept = allocated_bytes() - allocated
        return kept if kept >= _KEPT_BYTES else 0

    def _compare(self, run: TestRun, batch: Batch, batch_counts: BatchCounts) -> None:
        """Compare a batch on each candidate, and count the results.

        If a candidate has changed this process, its change may be why a later case is not plainly aligned. Such cases
        do not count: they run again in another process.
        """
        judged = {}
        for name in batch.submissions:
            judged[name] = found = self._comparison.compare(run, name, batch)
            for position, verdict in found.verdicts.items():
                if verdict.kind is None:
                    # A case whose steps write to values without a copy takes a second run: later cases copy them.
                    self._watch(run.test, batch.attempts[position])
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
        batch_counts.count(batch, counted, judged)

"""The probes of a worker: one for each window of a test's cases and each candidate, after the cases of their batch.

A candidate's probe is that of the first case of the window that is aligned on it and can be called again. It makes
only calls that the candidate's row takes, and why a window has none is counted.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.alignment.accepted import rules_beyond
from ci_autotest.alignment.fast_path import is_surely_aligned
from ci_autotest.alignment.probe import is_telling, probe_obstacle, probe_of
from ci_autotest.alignment.recalls import recalled
from ci_autotest.alignment.stateful import in_written, suspicion
from ci_autotest.backends.protocol import each_step
from ci_autotest.backends.trace import Attempt
from ci_autotest.program.ir import GET_ATTR
from ci_autotest.run.worker.batch import is_aligned
from ci_autotest.run.worker.context import REFERENCE
from ci_autotest.run.worker.unreadable import guarded_suspicion
from ci_autotest.values.probes import NO_PROBE, NoProbe, ProbeCounts
from ci_autotest.values.schedule import Passes, RowName, has_probe, is_late, probe_row, window_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ci_autotest.alignment.cases import Contender
    from ci_autotest.backends.trace import Trace
    from ci_autotest.run.progress_beacon import ProgressBeacon
    from ci_autotest.run.worker.batch import Batch, TestRun
    from ci_autotest.run.worker.context import WorkerContext
    from ci_autotest.values.verdict import Verdict

#: Kinds of accepted differences that leave values as they are, so that a probe shows what else differs.
_BESIDE_VALUES: Final = frozenset({"dtype", "metadata", "aliasing", "gradient"})


class ProbeRun(NamedTuple):
    """A probe that was run: the position of its case, and what the candidate did."""

    position: int
    probe: Attempt
    trace: Trace
    difference: Verdict | None


class ProbeRunner:
    """Run the probes, and count them for one message.

    Args:
        worker_context: Gives the reference.
        beacon: Where the worker reports the case in flight.
    """

    def __init__(self, worker_context: WorkerContext, beacon: ProgressBeacon) -> None:
        self._worker_context = worker_context
        self._beacon = beacon
        self.begin()

    def begin(self) -> None:
        """Begin a message."""
        #: By candidate and window: why no case of it was probed so far; ``None`` once one was.
        self._windows: dict[tuple[str, int], NoProbe | None] = {}
        self._operators: dict[str, set[str]] = {}
        self._made: dict[tuple[int, bool, bool], Attempt | NoProbe] = {}
        self._batch: Batch | None = None

    def shown(
        self, run: TestRun, name: str, batch: Batch, traces: Sequence[Trace], verdicts: Mapping[int, Verdict]
    ) -> Iterator[ProbeRun]:
        """Run a candidate's probes of a batch, each with the difference that it shows.

        Args:
            run: The test.
            name: The candidate.
            batch: After its cases ran.
            traces: The candidate's, of the cases.
            verdicts: On the cases that are not surely aligned, by position.
        """
        contender = run.contenders[name]
        backend = contender.backend
        for position, (case, _) in enumerate(batch.spots):
            window = name, window_of(case)
            if not has_probe(case) or self._windows.get(window, "not_aligned") is None:
                continue
            row = probe_row(case, backend.abilities)
            if row is None:
                self._leave_out(window, "no_steps")
                continue
            probe: Attempt | NoProbe = "not_aligned"
            verdict = verdicts.get(position)
            if verdict is not None and verdict.is_accepted:
                probe = "accepted"
            if _may_write(contender, batch.attempts[position]):
                probe = "accepted"  # Later calls of a probe would get what an earlier one has left in their inputs.
            elif is_aligned(verdict) and row is RowName.RECALL:
                yield from self._recalled(run, name, batch, position, traces[position])
                continue
            elif row is not RowName.RECALL and (is_aligned(verdict) or _may_be_told_apart(verdict)):
                probe = self._probe(contender, batch, position, row, has_backward=traces[position].has_backward)
            if isinstance(probe, Attempt):
                spot = self._beacon.entering(run.order[name], [batch.spots[position]], row)
                trace = backend.submit([probe], spot).traces()[0]
                trace.load()
                if trace.untested is None and not _lacks_parameter(probe, trace):
                    self._windows[window] = None
                    self._operators.setdefault(name, set()).update(key for key, n in trace.calls.items() if n)
                    yield ProbeRun(position, probe, trace, self._difference(row, probe, trace, contender))
                    continue
                probe = "outside_scope"
            self._leave_out(window, probe)

    def _leave_out(self, window: tuple[str, int], why: NoProbe) -> None:
        """Note why a case of a window has no probe."""
        self._windows[window] = min(why, self._windows.get(window) or why, key=NO_PROBE.index)

    def _recalled(self, run: TestRun, name: str, batch: Batch, position: int, trace: Trace) -> Iterator[ProbeRun]:
        """Call what was made of the body of a case again; yield it if it differs."""
        contender, attempt = run.contenders[name], batch.attempts[position]
        backend, window = contender.backend, (name, window_of(batch.spots[position][0]))
        attempt = backend.adapted(attempt)
        rules = rules_beyond(attempt.program, contender.rules, contender.accepts)
        enter = self._beacon.entering(run.order[name], [batch.spots[position]], RowName.RECALL)
        enter(0)
        enter.calls(0, Passes.FORWARD)
        found: list[Verdict | NoProbe | None] = []
        find = partial(recalled, attempt, trace, backend, rules, self._worker_context.reference)
        with each_step(backend, enter.step):
            unread = guarded_suspicion(attempt.program, lambda: found.append(find()))
        answer = found[0] if found else unread
        if isinstance(answer, str):
            self._leave_out(window, answer)
            return
        self._windows[window] = None
        if answer is not None:
            yield ProbeRun(position, attempt, trace, answer)

    def _probe(
        self, contender: Contender, batch: Batch, position: int, row: RowName, *, has_backward: bool
    ) -> Attempt | NoProbe:
        """Return the probe of a case for a candidate, or why it has none. Candidates share what the reference ran."""
        backend = contender.backend
        if batch is not self._batch:
            self._batch, self._made = batch, {}
        case, number = batch.spots[position]
        attempt = batch.attempts[position]
        if (obstacle := probe_obstacle(attempt)) is not None:
            return obstacle
        # A candidate that takes no ordinary case has few others in a window.
        has_others = not (profiles := backend.case_scope.profiles) or "ordinary" in profiles
        if has_others and not (is_late(case) or is_telling(attempt)):
            return "same_values"  # A later case of the window may tell more.
        key = position, backend.is_in_process, has_backward
        if key not in self._made:
            self._beacon.enter(case, REFERENCE, number)
            self._made[key] = probe_of(
                attempt, self._worker_context.reference, self._beacon.step,
                of_series=row is RowName.SERIES, is_whole=not backend.is_in_process, has_backward=has_backward,
            )  # fmt: skip
        return self._made[key]

    def _difference(self, row: RowName, probe: Attempt, trace: Trace, contender: Contender) -> Verdict | None:
        """Return a difference that a probe shows and its case does not; ``None`` if there is none."""
        if is_surely_aligned(probe.program, trace, probe.trace, contender.rules):
            return None
        if row is not RowName.SERIES:
            shared = in_written(probe, trace)
            if is_surely_aligned(probe.program, trace, probe.trace, contender.rules, shared):
                return None
        else:
            # The reference ran only a part of a series, so which of the other values share memory is unknown.
            reference, copied = self._worker_context.reference, probe.trace.copies
            probe = probe._replace(trace=reference.run(probe.program, probe.sources, copied=copied))
        rules = rules_beyond(probe.program, contender.rules, contender.accepts)
        find = partial(suspicion, probe, trace, rules, goes_back_once=contender.backend.writes_inputs)
        return guarded_suspicion(probe.program, find)

    def counted(self) -> dict[str, tuple[ProbeCounts, list[str]]]:
        """Return the counts and the operators that probes called, by candidate."""
        reasons: dict[str, list[NoProbe | None]] = {}
        for (name, _), reason in self._windows.items():
            reasons.setdefault(name, []).append(reason)
        return {name: (_counts(found), sorted(self._operators.get(name, ()))) for name, found in reasons.items()}


def _lacks_parameter(probe: Attempt, trace: Trace) -> bool:
    """Whether a probe ended at a parameter that the candidate's own module has not by that name."""
    failure = trace.failure
    return failure is not None and probe.program.steps[failure.step].op == GET_ATTR


def _may_write(contender: Contender, attempt: Attempt) -> bool:
    """Whether a row of ``known`` accepts that a call of a case writes to its inputs."""
    rules = rules_beyond(attempt.program, contender.rules, contender.accepts)
    return any(kind == "mutation" for _, kind in rules.set_aside)


def _may_be_told_apart(verdict: Verdict | None) -> bool:
    """Whether a case differs only in accepted ways that say nothing of its values."""
    if verdict is None or not verdict.is_accepted:
        return False
    return all(item.is_accepted and item.kind in _BESIDE_VALUES for item in (verdict, *verdict.accepted))


def _counts(reasons: list[NoProbe | None]) -> ProbeCounts:
    left_out = Counter(reason for reason in reasons if reason is not None)
    return ProbeCounts(planned=len(reasons), run=reasons.count(None), left_out=dict(sorted(left_out.items())))

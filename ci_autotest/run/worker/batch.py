"""A batch: some cases of a test that go through every phase together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ci_autotest.backends.operators.identity import step_operator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.alignment.cases import Accepted
    from ci_autotest.backends.protocol import Submission
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.run.worker.meter import Meter
    from ci_autotest.values.verdict import Verdict


class Batch(NamedTuple):
    """What is known of a batch after the reference ran it.

    Attributes:
        cases: Numbers.
        spots: Case and number of each accepted attempt.
        attempts: The accepted attempts.
        refused: Cases whose first attempt was rejected, with what came of the others.
        undefined: Positions of those that have no gradients on the reference.
        probes: Several calls of a case's body, as an attempt that the reference has run, by the case's position.
        submissions: What each candidate was given, by name: the attempts, then the probes.
        meters: What watches each candidate that runs in this process; of a test's first case none does.
        reference_s: Seconds of the attempts on the reference, at the median of one.
        mapped_bytes: Of the process, before the batch was begun.
        allocated_bytes: Likewise; 0 where memory is not watched.
    """

    cases: list[int]
    spots: list[tuple[int, int]]
    attempts: list[Attempt]
    refused: list[tuple[int, Accepted]]
    undefined: frozenset[int]
    probes: Mapping[int, Attempt]
    submissions: Mapping[str, Submission]
    meters: Mapping[str, Meter]
    reference_s: float
    mapped_bytes: int
    allocated_bytes: int


class Judged(NamedTuple):
    """What a batch showed on one candidate, not counted yet.

    Attributes:
        traces: Of the cases.
        sure: Positions that the fast path is sure of.
        verdicts: On the others.
        suspected: What probes show that their cases do not, by position.
    """

    traces: Sequence[Trace]
    sure: set[int]
    verdicts: Mapping[int, Verdict]
    suspected: Mapping[int, Verdict]

    def is_plain(self, position: int) -> bool:
        """Whether a case is aligned, and nothing more is to be said of it."""
        verdict = self.verdicts.get(position)
        is_aligned = verdict is None or (verdict.outcome == "aligned" and verdict.kind is None)
        return is_aligned and position not in self.suspected


def is_aligned(verdict: Verdict | None) -> bool | None:
    """Whether a case is aligned, as one without a verdict surely is; ``None`` where it was not compared."""
    return verdict is None or (None if verdict.outcome == "unsupported" else verdict.outcome == "aligned")


def operators(batch: Batch, traces: Sequence[Trace]) -> list[str]:
    """Return the operators that were replaced, where there are such, else all that the cases call."""
    replaced = {name for trace in traces for name, count in trace.calls.items() if count}
    programs = (attempt.program for attempt in batch.attempts)
    called = {step_operator(step, program.steps) for program in programs for _, step in program.calls}
    return sorted(replaced or called)

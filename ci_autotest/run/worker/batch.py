"""A batch: some cases of a test that go through every phase together, and what it shows on one candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ci_autotest.backends.operators.identity import step_operator
from ci_autotest.values.result import REFERENCE_CANDIDATE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.alignment.cases import Accepted, Contender
    from ci_autotest.backends.protocol import Submission
    from ci_autotest.backends.trace import Attempt, Trace
    from ci_autotest.run.worker.meter import Meter
    from ci_autotest.values.aligned_error import AlignedError
    from ci_autotest.values.verdict import Verdict


class TestRun(NamedTuple):
    """What the batches of one ``RunCases`` message share.

    Attributes:
        test: The test's id.
        key: Key of its random stream.
        draw: Draws and records an attempt, by case and number of the attempt.
        contenders: The candidates, by name.
        reference: PyTorch as a candidate, which is held against what the body expects.
        order: Each candidate's position in the message, which is how the progress beacon names it.
        asks_refused: As in ``RunCases``.
        ends_if_changed: As in ``RunCases``.
    """

    test: str
    key: int
    draw: Callable[[int, int], Attempt]
    contenders: Mapping[str, Contender]
    reference: Contender
    order: Mapping[str, int]
    asks_refused: bool
    ends_if_changed: bool

    def contender(self, name: str) -> Contender:
        """Return a candidate, or PyTorch as one."""
        return self.reference if name == REFERENCE_CANDIDATE else self.contenders[name]


class Batch(NamedTuple):
    """A batch after the reference ran it.

    Attributes:
        cases: Numbers of the cases.
        spots: Case and attempt number of each accepted attempt.
        attempts: The accepted attempts.
        refused: Cases whose first attempt was rejected, with the results of their other attempts.
        undefined: Positions of attempts that have no gradients on the reference.
        submissions: What each candidate received, by name.
        meters: The meter of each candidate that runs in this process; empty for a test's first batch.
        reference_s: Seconds of the attempts on the reference, as their number times the median.
        mapped_bytes: Address space of the process before the batch began.
        allocated_bytes: Allocated memory before the batch began; 0 if the test's memory is not watched.
    """

    cases: list[int]
    spots: list[tuple[int, int]]
    attempts: list[Attempt]
    refused: list[tuple[int, Accepted]]
    undefined: frozenset[int]
    submissions: Mapping[str, Submission]
    meters: Mapping[str, Meter]
    reference_s: float
    mapped_bytes: int
    allocated_bytes: int


class BatchVerdicts(NamedTuple):
    """What a batch shows on one candidate, before it is counted.

    Attributes:
        traces: The candidate's traces of the cases.
        sure: Positions that the fast path reports as surely aligned.
        verdicts: Verdicts on the other positions.
        suspected: Differences that only probes or repeated calls show, by the position of their case.
        errors: The greatest errors of aligned cases, by the position of the case.
    """

    traces: Sequence[Trace]
    sure: set[int]
    verdicts: Mapping[int, Verdict]
    suspected: Mapping[int, Verdict]
    errors: Mapping[int, tuple[AlignedError, ...]]

    def is_plain(self, position: int) -> bool:
        """Whether a case is aligned without any note or suspicion."""
        verdict = self.verdicts.get(position)
        is_aligned = verdict is None or (verdict.outcome == "aligned" and verdict.kind is None)
        return is_aligned and position not in self.suspected


def is_aligned(verdict: Verdict | None) -> bool | None:
    """Whether a case is aligned (without a verdict it surely is); ``None`` if it was not compared."""
    return verdict is None or (None if verdict.outcome == "unsupported" else verdict.outcome == "aligned")


def operators(batch: Batch, traces: Sequence[Trace]) -> list[str]:
    """Return the operators that the candidate replaced, or all operators that the cases call if it replaced none."""
    replaced = {name for trace in traces for name, count in trace.calls.items() if count}
    programs = (attempt.program for attempt in batch.attempts)
    called = {step_operator(step, program.steps) for program in programs for _, step in program.calls}
    # A candidate that replaces operators runs nothing else of its own.
    return sorted(replaced or called)

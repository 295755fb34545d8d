"""The prefix search: which few cases must run before a case, in a fresh process, for it to be wrong.

Each trial comes back with its worker's journal, so that the calls of the cases that are left are known one by one.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.run.messages import Replay, Replayed, RunCases
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.finding import TOLERATED_BLAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.run.single_worker import SingleWorker
    from ci_autotest.values.schedule import CandidateCall

#: Limits of one search: processes that it may start, and how often it may run as many cases as there are. They are
#: counted and not timed, so that a busy machine finds the same cases.
_TRIALS_AT_MOST: Final = 60
_ROUNDS_AT_MOST: Final = 8
#: Times that the cases must show the failure, each time in a fresh process.
_REPEATS: Final = 2


class CaseRun(NamedTuple):
    """A case that ran in the process, and the number of its message: probes run after the cases of their message."""

    test: TestInfo
    case: int
    message: int

    def is_of(self, suspect: Suspect) -> bool:
        """Whether this is the suspect's own case."""
        return (self.test.id, self.case) == (suspect.test.id, suspect.case)


class PrefixSearch:
    """Search for the fewest cases that must run before one for it, or its probe, to be wrong or to end its worker.

    Args:
        suspect: The case, with the messages that its process had run.
        fresh: The worker that runs the trials.

    Attributes:
        calls: The calls that the last trial that showed it has made; ``message`` is the number of its message there.
    """

    def __init__(self, suspect: Suspect, fresh: SingleWorker) -> None:
        self._suspect, self._fresh = suspect, fresh
        self.calls: Sequence[CandidateCall] = ()
        self._trials, self._cases = _TRIALS_AT_MOST, 0

    @property
    def _is_over(self) -> bool:
        return self._trials <= 0 or self._cases <= 0

    def shows_alone(self) -> bool:
        """Whether the case shows it each time in a process that has run no other case: its probe is a part of it."""
        own = [CaseRun(self._suspect.test, self._suspect.case, 0)]
        return all(self._shows(own) for _ in range(_REPEATS))

    def fewest(self) -> list[CaseRun]:
        """Return the cases that are needed, including the wrong one itself; none if it stays right.

        The case may fail here even alone and still be right elsewhere, because a worker also calls its probe.
        """
        runs = list(self._before())
        self._cases = _ROUNDS_AT_MOST * len(runs)
        if len(runs) < 2 or not self._shows(runs):  # noqa: PLR2004 - the case and one before it
            return []
        # Halves first: most cases before the wrong one do not matter.
        size = len(runs) // 2
        while size and not self._is_over:
            runs = self._without_parts(runs, size)
            size //= 2
        # What is wrong by chance shows now and then, after these and alone.
        own = [run for run in runs if run.is_of(self._suspect)]
        if not all(self._shows(runs) for _ in range(_REPEATS)):
            return []
        return runs if runs == own or not any(self._shows(own) for _ in range(_REPEATS)) else []

    def _without_parts(self, runs: list[CaseRun], size: int) -> list[CaseRun]:
        at = 0
        while at < len(runs) and not self._is_over:
            shorter = [
                run for position, run in enumerate(runs) if not at <= position < at + size or run.is_of(self._suspect)
            ]
            if len(shorter) < len(runs) and self._shows(shorter):
                runs = shorter
            else:
                at += size
        return runs

    def _before(self) -> Iterator[CaseRun]:
        """Yield the cases that ran in the process, to the end of the message of the wrong case.

        Cases after it in that message may matter too: all forward passes of a message run before any backward pass, and
        the probes run last.
        """
        for number, message in enumerate(self._suspect.before):
            runs = [CaseRun(message.test, case, number) for case in message.cases]
            yield from runs
            if any(run.is_of(self._suspect) for run in runs):
                return

    def _shows(self, runs: Sequence[CaseRun]) -> bool:
        """Whether the case is wrong after these cases, in a process that has run nothing else."""
        self._trials, self._cases = self._trials - 1, self._cases - len(runs)
        suspect = self._suspect
        groups = [list(group) for _, group in groupby(runs, key=lambda run: run.message)]
        messages = [
            RunCases(test=group[0].test, cases=[run.case for run in group], candidates=[suspect.candidate])
            for group in groups
        ]
        # The worker of the trial before remembers its calls.
        self._fresh.close()
        answer = self._fresh.ask(Replay(candidate=suspect.candidate, runs=messages))
        if isinstance(answer, WorkerLostError):
            is_shown = suspect.lost is not None and self._is_lost_alike(answer, [run.test.id for run in messages])
        elif isinstance(answer, Replayed):
            is_shown = suspect.lost is None and self._has_failed_alike(answer)
        else:
            return False
        if is_shown:
            self.calls = answer.calls
        return is_shown

    def _is_lost_alike(self, lost: WorkerLostError, tests: Sequence[str]) -> bool:
        """Whether a worker ended by itself in the suspect's case, on the candidate.

        Args:
            lost: How it was lost.
            tests: Ids of the tests of its messages: a case of another test may have the same number.
        """
        if lost.is_killed or lost.limit or (lost.spot.case, lost.spot.candidate) != (self._suspect.case, 0):
            return False
        last = lost.calls[-1].message if lost.calls else -1
        return 0 <= last < len(tests) and tests[last] == self._suspect.test.id

    def _has_failed_alike(self, answer: Replayed) -> bool:
        """Whether the suspect's case has its difference."""
        suspect, wanted = self._suspect, self._suspect.verdict
        return any(
            (test, failure.case) == (suspect.test.id, suspect.case)
            and wanted is not None
            and (failure.verdict.operator, failure.verdict.kind) == (wanted.operator, wanted.kind)
            # A difference that does not count against the candidate, such as rounding, may come by chance.
            and failure.verdict.blame not in TOLERATED_BLAMES
            for test, failure in answer.failures
        )

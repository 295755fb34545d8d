"""The fewest cases that must run before one, in a process of their own, for it to be wrong there."""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.run.messages import Replay, Replayed, RunCases
from ci_autotest.values.result import TOLERATED_BLAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.run.single_worker import SingleWorker

#: Processes that may be started to find which cases are needed before one, and seconds that this may take.
_TRIALS_AT_MOST: Final = 60
_SECONDS_AT_MOST: Final = 20.0
#: Times that cases must show it, each in a fresh process.
_REPEATS: Final = 2


class CaseRun(NamedTuple):
    """Name a case that ran in the process, and its message: probes run after the cases of their message."""

    test: TestInfo
    case: int
    message: int

    def is_of(self, suspect: Suspect) -> bool:
        """Whether it is the suspect's own case."""
        return (self.test.id, self.case) == (suspect.test.id, suspect.case)


class PrefixSearch:
    """Search for the fewest cases that must run before one for it, or its probe, to be wrong.

    Args:
        suspect: The case; what its process had run is among what is known of it.
        fresh: Is asked.
    """

    def __init__(self, suspect: Suspect, fresh: SingleWorker) -> None:
        self._suspect, self._fresh = suspect, fresh
        self._left = _TRIALS_AT_MOST
        self._end = time.monotonic() + _SECONDS_AT_MOST

    def fewest(self) -> list[CaseRun]:
        """Return the cases that are needed, the one that is wrong among them; none where it stays right.

        Alone it may be wrong here each time and right elsewhere: a worker calls its probe too.
        """
        runs = list(self._before())
        if len(runs) < 2 or not self._shows(runs):  # noqa: PLR2004 - one beside its own
            return []
        size = len(runs) // 2
        while size and self._left > 0 and time.monotonic() < self._end:
            runs = self._without_parts(runs, size)
            size //= 2
        # What is wrong by chance shows now and then, after these and alone.
        own = [run for run in runs if run.is_of(self._suspect)]
        if not all(self._shows(runs) for _ in range(_REPEATS)):
            return []
        return runs if runs == own or not any(self._shows(own) for _ in range(_REPEATS)) else []

    def _without_parts(self, runs: list[CaseRun], size: int) -> list[CaseRun]:
        at = 0
        while at < len(runs) and self._left > 0 and time.monotonic() < self._end:
            shorter = [
                run for position, run in enumerate(runs) if not at <= position < at + size or run.is_of(self._suspect)
            ]
            if len(shorter) < len(runs) and self._shows(shorter):
                runs = shorter
            else:
                at += size
        return runs

    def _before(self) -> Iterator[CaseRun]:
        """Yield the cases that ran in the process, to the end of the message of the one that is wrong.

        Cases after it may count: those of a message run forward before any goes back, and probes after all of them.
        """
        for number, message in enumerate(self._suspect.before):
            runs = [CaseRun(message.test, case, number) for case in message.cases]
            yield from runs
            if any(run.is_of(self._suspect) for run in runs):
                return

    def _shows(self, runs: Sequence[CaseRun]) -> bool:
        """Whether the case is wrong after these, in a process that has run nothing else."""
        self._left -= 1
        suspect = self._suspect
        groups = [list(group) for _, group in groupby(runs, key=lambda run: run.message)]
        messages = [
            RunCases(test=group[0].test, cases=[run.case for run in group], candidates=[suspect.candidate])
            for group in groups
        ]
        self._fresh.close()
        answer = self._fresh.ask(Replay(candidate=suspect.candidate, runs=messages))
        wanted = suspect.verdict
        return isinstance(answer, Replayed) and any(
            (test, failure.case) == (suspect.test.id, suspect.case)
            and wanted is not None
            and (failure.verdict.operator, failure.verdict.kind) == (wanted.operator, wanted.kind)
            and failure.verdict.blame not in TOLERATED_BLAMES
            for test, failure in answer.failures
        )

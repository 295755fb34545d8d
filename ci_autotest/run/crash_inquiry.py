"""State of one crash inquiry: what it has counted, so that no case counts twice and a crashing window is left early."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.run.events import Lost, Part
from ci_autotest.run.progress_beacon import IN_FLOAT64, IN_REFUSED
from ci_autotest.values.case import window_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.run.events import Event, Task
    from ci_autotest.run.messages import CasesDone
    from ci_autotest.run.worker_loss import WorkerLostError

#: Cases of a window that may end their worker on one candidate before the rest of the window is skipped.
LOST_AT_MOST: Final = 2
#: Extra requests beside a case. A worker lost in one of them is not the candidate's crash: the case runs without it.
_EXTRA_REQUESTS: Final = frozenset({IN_REFUSED, IN_FLOAT64})


class InquiryState:
    """Count the events of one task."""

    def __init__(self) -> None:
        self._lost: Counter[tuple[str, int]] = Counter()
        self._ended_by_float64: set[tuple[int, str]] = set()
        self._counted: set[int] = set()
        self.is_explained = False

    def is_skipped(self, case: int, name: str) -> bool:
        """Whether enough cases of the window have already ended their worker on the candidate."""
        return self._lost[name, window_of(case)] >= LOST_AT_MOST

    def asks_float64(self, case: int, names: Sequence[str]) -> bool:
        """Whether the float64 oracle runs for a case.

        It does not if it has ended the worker of this case, or of enough other cases of its window.
        """
        window = window_of(case)
        for name in names:
            ended = [other for other, candidate in self._ended_by_float64 if candidate == name]
            if case in ended or sum(window_of(other) == window for other in ended) >= LOST_AT_MOST:
                return False
        return True

    def without_request(self, task: Task, error: WorkerLostError) -> Task:
        """Return the task without the extra request that ended its worker.

        For rejected inputs that holds for the whole task, for the float64 oracle only for the case that it ended.
        """
        if error.spot.step == IN_REFUSED:
            return task._replace(asks_refused=False)
        self._ended_by_float64.update((error.spot.case, name) for name in names_at(task.candidates, error))
        return task

    def counted(self, event: Event) -> Event:
        """Count an event, and return it for the report.

        Only the first candidate's result reports the attempts at a case, because every candidate shares them.
        """
        if isinstance(event, Part):
            case = event.done.done[0]
            counted = event if case not in self._counted else Part(event.task, _without_attempts(event.done))
            self._counted.add(case)
            return counted
        if isinstance(event, Lost):
            self.is_explained = True
            # A crash that needs other cases before it does not say that the next case will crash.
            if event.candidate is not None and event.repeats == "alone":
                self._lost[event.candidate, window_of(event.case)] += 1
        return event


def is_in_extra_request(error: WorkerLostError) -> bool:
    """Whether a worker was lost in a rejected input or in the float64 oracle, and not in the case itself."""
    return error.spot.step in _EXTRA_REQUESTS


def names_at(candidates: Sequence[str], error: WorkerLostError) -> Sequence[str]:
    """Return the candidate that was running when the worker was lost, or nothing if the reference was."""
    at = error.spot.candidate
    return candidates[at : at + 1] if at >= 0 else ()


def _without_attempts(done: CasesDone) -> CasesDone:
    return msgspec.structs.replace(
        done,
        accepted=0,
        rejected=0,
        ordinary_accepted=0,
        ordinary_rejected=0,
        empty=0,
        undefined=0,
        outside=0,
        profiles={},
    )

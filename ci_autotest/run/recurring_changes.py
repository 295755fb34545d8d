"""Changes that a candidate makes in every process: after some of them, no reason to end a process."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.run.messages import Left

#: Processes that are ended for one habit of a candidate.
ENDED_AT_MOST: Final = 20


class RecurringChanges:
    """Count what each candidate changes that honest libraries change too; all slots of a run share it."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def is_spoiled(self, left: Sequence[Left]) -> bool:
        """Count what a process is no longer; return whether it must be ended for that."""
        is_spoiled = False
        for one in left:
            for change in one.changes:
                self._seen[one.candidate, change.what] += 1
                is_usual = change.is_recurring and self._seen[one.candidate, change.what] > ENDED_AT_MOST
                is_spoiled = is_spoiled or not is_usual
        return is_spoiled

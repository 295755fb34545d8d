"""Changes that a candidate makes in every process: after enough of them they no longer end a process.

Many honest libraries change something on their first call, such as the number of threads. Ending a process for each
would cost a restart per task without finding anything.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.run.messages import Left

#: Processes that are ended for one recurring change of a candidate.
ENDED_AT_MOST: Final = 20


class RecurringChanges:
    """Count the changes of each candidate; all slots of a run share the counts."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def is_spoiled(self, left: Sequence[Left]) -> bool:
        """Count the changes that were left in a process, and return whether it must be ended because of them."""
        is_spoiled = False
        for one in left:
            for change in one.changes:
                self._seen[one.candidate, change.what] += 1
                is_usual = change.is_recurring and self._seen[one.candidate, change.what] > ENDED_AT_MOST
                is_spoiled = is_spoiled or not is_usual
        return is_spoiled

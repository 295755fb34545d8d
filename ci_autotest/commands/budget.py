"""The time budget: how long cases may run, and how much is left to confirm and shrink findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.commands.run_statistics import Ledger

#: Share of the budget that is reserved for confirming and shrinking as soon as a case has failed.
FINDINGS_SHARE: Final = 0.25
#: Upper limit of that share in seconds.
FINDINGS_AT_MOST_S: Final = 300.0
#: Lower limit in seconds, unless it is more than half of the budget: a fresh process has to import a framework.
FINDINGS_AT_LEAST_S: Final = 15.0
#: Seconds beyond the budget in which a finding that has been started may be completed.
GRACE_S: Final = 3.0
#: Number of tests with cases left over that the note lists.
_NAMED: Final = 50


class Budget(NamedTuple):
    """The time that a run may take.

    Attributes:
        clock: Returns monotonic seconds.
        begun: When the run began.
        total_s: Seconds that it may take; ``None`` for no limit.
    """

    clock: Callable[[], float]
    begun: float
    total_s: float | None

    def is_over(self, *, has_found: bool) -> bool:
        """Return whether no further case is started."""
        if self.total_s is None:
            return False
        # The reserve is kept only for findings: without one, cases may use the whole budget.
        share = max(self.total_s * FINDINGS_SHARE, min(FINDINGS_AT_LEAST_S, self.total_s / 2))
        kept = min(FINDINGS_AT_MOST_S, share) if has_found else 0.0
        return self.clock() > self.begun + self.total_s - kept

    @property
    def deadline(self) -> float | None:
        """When work on findings stops."""
        return None if self.total_s is None else self.begun + self.total_s + GRACE_S


def not_run_note(ledger: Ledger) -> str:
    """Return the note that lists tests with cases that were not run; empty if all were."""
    missing = []
    for test, entry in ledger.tests.items():
        for name in entry.candidates:
            pair = ledger.pairs[test, name]
            left = len(entry.cases) - pair.done - entry.tally.empty - entry.tally.skipped
            if left > 0 and not pair.is_left_alone and not entry.broken:
                missing.append(f"{left} of {len(entry.cases)} cases of {test} on {name}")
    if not missing:
        return ""
    more = f"; and {len(missing) - _NAMED} more, in report.json under not_run" if len(missing) > _NAMED else ""
    return f"not run: {'; '.join(missing[:_NAMED])}{more}"

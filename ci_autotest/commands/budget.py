"""The budget: how long cases may run, and how long what they found may be looked at. Pure, but for the clock given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.commands.run_statistics import Ledger

#: Share of the budget that is kept for confirming and shrinking once something was found.
FINDINGS_SHARE: Final = 0.25
#: Seconds of it at most.
FINDINGS_AT_MOST_S: Final = 300.0
#: Seconds of it at least, where that is no more than half of the budget: a fresh process imports a framework.
FINDINGS_AT_LEAST_S: Final = 15.0
#: Seconds beyond the budget in which a finding that is being made may be brought to its end.
GRACE_S: Final = 3.0
#: Tests whose cases were not run that a note names.
_NAMED: Final = 50


class Budget(NamedTuple):
    """Say when a run must end.

    Attributes:
        clock: Monotonic seconds.
        begun: When it began.
        total_s: Seconds that it may take; ``None``: as many as it needs.
    """

    clock: Callable[[], float]
    begun: float
    total_s: float | None

    def is_over(self, *, has_found: bool) -> bool:
        """Whether no further case is run."""
        if self.total_s is None:
            return False
        share = max(self.total_s * FINDINGS_SHARE, min(FINDINGS_AT_LEAST_S, self.total_s / 2))
        kept = min(FINDINGS_AT_MOST_S, share) if has_found else 0.0
        return self.clock() > self.begun + self.total_s - kept

    @property
    def deadline(self) -> float | None:
        """When no finding is looked at any longer."""
        return None if self.total_s is None else self.begun + self.total_s + GRACE_S


def not_run_note(ledger: Ledger) -> str:
    """Return the sentence that names the tests of which cases were not run; empty where all were."""
    missing = []
    for test, entry in ledger.tests.items():
        for name in ledger.candidates:
            pair = ledger.pairs[test, name]
            left = len(entry.cases) - pair.done - entry.empty
            if left > 0 and not pair.is_left_alone and not entry.broken:
                missing.append(f"{left} of {len(entry.cases)} cases of {test} on {name}")
    if not missing:
        return ""
    more = f"; and {len(missing) - _NAMED} more, in report.json under not_run" if len(missing) > _NAMED else ""
    return f"not run: {'; '.join(missing[:_NAMED])}{more}"

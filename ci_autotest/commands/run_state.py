"""The state of a run, of which the report is made however the run ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ci_autotest.commands.run_statistics import Ledger
from ci_autotest.findings.regressions import Regressions
from ci_autotest.findings.triage import Triage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ci_autotest.commands.budget import Budget
    from ci_autotest.commands.case_dispatch import CasePlan
    from ci_autotest.commands.request import Request
    from ci_autotest.discovery import Selection
    from ci_autotest.errors import AutotestError
    from ci_autotest.findings.database import Database, Learned
    from ci_autotest.values.result import BrokenTest, CandidateInfo, RunResult
    from ci_autotest.values.speed import SpeedResult


@dataclass(slots=True)
class RunState:
    """State of a run.

    Args:
        choice: What ``-k`` and ``--lf`` have chosen, in words.
        foreign: How many tests of the files do not use ``@autotest``, in words.
        is_part: Whether fewer tests run than a run without arguments has.
        is_stopped: Whether ``--maxfail`` has ended the cases.
        untimed: What ended the timing early.
        unused: What the executor could not use, in words.
        failure: The error that ended the run after it had begun.
        unwritten: Sentences about what could not be written.
    """

    request: Request
    selection: Selection
    seed: int
    output: Path
    budget: Budget
    database: Database
    learned: dict[str, Learned]
    infos: list[CandidateInfo] = field(default_factory=list)
    torch: str = ""
    plan: CasePlan | None = None
    ledger: Ledger = field(default_factory=lambda: Ledger([], ()))
    broken: list[BrokenTest] = field(default_factory=list)
    triage: Triage = field(default_factory=Triage)
    regressions: Regressions = field(default_factory=Regressions)
    is_interrupted: bool = False
    is_part: bool = False
    is_stopped: bool = False
    choice: str = ""
    foreign: str = ""
    failure: AutotestError | None = None
    unwritten: list[str] = field(default_factory=list)
    speed: list[SpeedResult] = field(default_factory=list)
    untimed: str = ""
    unused: Sequence[str] = ()
    baseline: RunResult | None = None

    @property
    def failures(self) -> int:
        """Number of suspected findings and broken tests so far."""
        broken = sum(bool(entry.broken) for entry in self.ledger.tests.values())
        # `--maxfail` ends a run while its cases run, which is before any finding is confirmed.
        return self.ledger.suspected + broken + len(self.broken)

"""Suspects to findings: each is looked at again while the budget lasts; what is not is reported as it was seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import OutputError, UnavailableError
from ci_autotest.findings.crash import by_operator
from ci_autotest.findings.diagnosis import Diagnosis, Route, rendered
from ci_autotest.findings.own_tests import Unrepeated, repeated_alone, unrepeated_by
from ci_autotest.findings.stages import diagnosed
from ci_autotest.findings.unconfirmed import as_seen
from ci_autotest.report.finding_merge import united

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager

    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.findings.tools import Tools
    from ci_autotest.values.result import Finding

#: Findings that are confirmed and shrunk; the rest are reported unconfirmed.
CONFIRMED_AT_MOST: Final = 300


@dataclass(slots=True)
class Triage:
    """Hold what has become of a run's suspects: each is among the findings or among what is left, whenever it ends.

    Args:
        left: Suspects that nothing is told of yet.
        findings: One of each identity.
        unrepeated: Failures that their tests do not show alone.
    """

    left: list[Suspect] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unrepeated: set[Unrepeated] = field(default_factory=set)

    def add(self, finding: Finding) -> None:
        """Add a finding; one of an identity that is there already, as of a crash located later, is united with it."""
        found = self.findings
        at = next((i for i, other in enumerate(found) if other.identity == finding.identity), None)
        if at is None:
            found.append(finding)
        else:
            both = (found[at], finding)
            found[at] = united(both, {hit.test: hit.of_cases for item in both for hit in item.hits})

    def tell_as_seen(self, tools: Tools) -> None:
        """Make findings of what is left, as it was seen: the run is over, and nothing is run again."""
        for suspect in self.left:
            self.add(rendered(as_seen(suspect), tools))


def look_at(
    triage: Triage, tools: Tools, say: Callable[[str], None], undivided: Callable[[], AbstractContextManager[None]]
) -> None:
    """Make findings of the suspects that are left.

    Args:
        triage: What was looked at goes from its suspects to its findings.
        tools: What findings are made with.
        say: Is given a line for each finding.
        undivided: Returns what no signal interrupts, while a finding is added.
    """
    triage.left[:] = [part for suspect in triage.left for part in _parts(suspect, tools)]
    for i, suspect in enumerate(tuple(triage.left)):
        is_looked_at = not tools.allowance.is_spent and i < CONFIRMED_AT_MOST
        known = {finding.id: finding.confirmed for finding in triage.findings}
        seen = repeated_alone(suspect, tools) if is_looked_at else suspect
        confirmed = [name for name, is_confirmed in known.items() if is_confirmed]
        finding = _finding(seen, tools, say, confirmed) if is_looked_at else rendered(as_seen(seen), tools)
        with undivided():
            triage.unrepeated.update(unrepeated_by(suspect, seen))
            if finding is not None:
                triage.add(finding)
            del triage.left[0]
        if finding is not None and finding.id not in known:
            say(f"{finding.outcome.replace('_', ' ')}: {finding.headline}")


def _parts(suspect: Suspect, tools: Tools) -> list[Suspect]:
    """Return a suspect as one for each operator that its test was lost in, while there is time to look."""
    return [suspect] if tools.allowance.is_spent else by_operator(suspect, tools)


def _finding(suspect: Suspect, tools: Tools, say: Callable[[str], None], confirmed: Collection[str]) -> Finding | None:
    """Return the finding, or the suspect as it is when making it fails: no report is lost for it.

    ``None`` is what comes of a probe whose call is wrong alone too: its values are not those of a case.
    """
    try:
        found: Diagnosis = diagnosed(suspect, tools, confirmed)
        return None if found.route is Route.DISMISSED else rendered(found, tools)
    except (OutputError, UnavailableError):
        raise
    except Exception as error:  # noqa: BLE001 - a fault of ours while one finding is made must not cost the run
        say(f"a finding could not be confirmed or shrunk ({type(error).__name__}: {error}); it is kept as seen")
        return rendered(as_seen(suspect), tools)

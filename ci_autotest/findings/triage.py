"""Triage: suspects become findings. Each is inspected while time is left; the others are reported as they were seen."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ci_autotest.config.known_differences import matches
from ci_autotest.errors import OutputError, UnavailableError
from ci_autotest.findings.crash import by_operator
from ci_autotest.findings.diagnosis import Diagnosis, Route, rendered
from ci_autotest.findings.own_tests import Unrepeated, repeated_alone, unrepeated_by
from ci_autotest.findings.stages import diagnosed
from ci_autotest.findings.unconfirmed import as_seen
from ci_autotest.report.merge import merged_finding
from ci_autotest.report.standing import word_of
from ci_autotest.values.amounts import time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager

    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.findings.tools import Tools
    from ci_autotest.values.finding import Finding

#: Suspects that are confirmed and shrunk; the rest are reported unconfirmed.
CONFIRMED_AT_MOST: Final = 300
#: Seconds that a finding takes until some are done: confirming, shrinking and running its repro.
FINDING_S: Final = 5.0


@dataclass(slots=True)
class Triage:
    """The suspects and findings of a run. Each suspect is in one of the lists, whenever the run is stopped.

    Args:
        left: Suspects that have not been reported yet.
        findings: One finding of each identity.
        unrepeated: Failures that their tests do not show alone.
    """

    left: list[Suspect] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unrepeated: set[Unrepeated] = field(default_factory=set)

    def add(self, finding: Finding) -> None:
        """Add a finding, or unite it with one of the same identity: a crash may get its operator only later."""
        found = self.findings
        at = next((i for i, other in enumerate(found) if other.identity == finding.identity), None)
        if at is None:
            found.append(finding)
        else:
            both = (found[at], finding)
            found[at] = merged_finding(both, {hit.test: hit.of_cases for item in both for hit in item.hits})

    def tell_as_seen(self, tools: Tools) -> None:
        """Make findings of the suspects that are left, as they were seen, because the run is over."""
        for suspect in self.left:
            self.add(rendered(as_seen(suspect), tools))


def look_at(
    triage: Triage,
    tools: Tools,
    say: Callable[[str], None],
    undivided: Callable[[], AbstractContextManager[None]],
) -> None:
    """Make findings of the suspects that are left.

    Args:
        triage: Each inspected suspect moves from ``left`` to ``findings``.
        tools: The tools of the run.
        say: Prints a line for each finding.
        undivided: Returns a block that no signal interrupts, for the move.
    """
    triage.left[:] = [part for suspect in triage.left for part in _split(suspect, tools)]
    begun, shown, count = time.monotonic(), tools.show, len(triage.left)
    for i, suspect in enumerate(tuple(triage.left)):
        each_s = (time.monotonic() - begun) / i if i else FINDING_S
        left = time_text(each_s * (count - i))
        head = f"finding {i + 1} of {count}, about {left} left: {_name(suspect)} on {suspect.candidate}"
        tools = replace(tools, show=_headed(shown, head))
        tools.show("looking at it")
        is_inspected = not tools.allowance.is_spent and i < CONFIRMED_AT_MOST
        # Read anew each time, because the suspects before have added findings.
        known = {finding.id: finding.confirmed for finding in triage.findings}
        seen = repeated_alone(suspect, tools) if is_inspected else suspect
        confirmed = [name for name, is_confirmed in known.items() if is_confirmed]
        finding = _finding(seen, tools, say, confirmed) if is_inspected else rendered(as_seen(seen), tools)
        # A signal within this block would lose the suspect or report it twice.
        with undivided():
            triage.unrepeated.update(unrepeated_by(suspect, seen))
            if finding is not None:
                triage.add(finding)
            del triage.left[0]
        if finding is not None and finding.id not in known:
            is_known = finding.known is not None or any(matches(row, finding) for row in tools.known)
            say(f"{'accepted' if is_known else word_of(finding)}: {finding.headline}")


def _headed(show: Callable[[str], None], head: str) -> Callable[[str], None]:
    return lambda text: show(f"{head}: {text}")


def _name(suspect: Suspect) -> str:
    return suspect.verdict.operator if suspect.verdict is not None else suspect.test.id


def _split(suspect: Suspect, tools: Tools) -> list[Suspect]:
    """Split a suspect by the operators that ended its workers, while time is left."""
    return [suspect] if tools.allowance.is_spent else by_operator(suspect, tools)


def _finding(suspect: Suspect, tools: Tools, say: Callable[[str], None], confirmed: Collection[str]) -> Finding | None:
    """Return the finding of a suspect, or the suspect as it was seen if making the finding fails.

    ``None`` means that a probe's call is wrong alone too. It is no finding, because no case has the probe's values.
    """
    try:
        found: Diagnosis = diagnosed(suspect, tools, confirmed)
        return None if found.route is Route.DISMISSED else rendered(found, tools)
    except (OutputError, UnavailableError):  # They end the run with an exit status of their own.
        raise
    except Exception as error:  # noqa: BLE001 - a bug of ours in one finding must not cost the whole report
        say(f"a finding could not be confirmed or shrunk ({type(error).__name__}: {error}); it is reported as seen")
        return rendered(as_seen(suspect), tools)

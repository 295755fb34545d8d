"""What is done with a suspect, as one table: the stages of each route, from what was seen to a folder that shows it.

A stage takes what is known and returns it with more. It may put it on another route: a case that was misaligned
ends its worker when it is run again, a crash turns out to be a wrong value. A route is left after the stage that
says so, and the other is taken from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from ci_autotest.findings.confirm import confirm, confirm_probe
from ci_autotest.findings.crash import confirm_loss, isolate, locate, record, record_after_cases
from ci_autotest.findings.diagnosis import Diagnosis, Doubt, Route, identity_id
from ci_autotest.findings.shrink_stages import (
    find_variants,
    shrink_body,
    shrink_calls,
    shrink_calls_that_crash,
    shrink_crash,
)
from ci_autotest.findings.tools import Inspection, Tools
from ci_autotest.findings.unconfirmed import reconciled, suspected
from ci_autotest.findings.writer import forget, save, verify, write, write_program

if TYPE_CHECKING:
    from collections.abc import Collection

    from ci_autotest.findings.suspect import Suspect

Stage: TypeAlias = Callable[[Diagnosis, Inspection], Diagnosis]

STAGES: Final[Mapping[Route, tuple[Stage, ...]]] = {
    Route.DIFFERENCE: (confirm, save, shrink_body, find_variants, write, verify),
    Route.PROBE: (confirm_probe,),
    Route.SEQUENCE: (save, shrink_calls, write, verify),
    Route.LOSS: (record, save, confirm_loss, locate, isolate, save, shrink_crash, write, verify),
    Route.LOSS_AFTER_CALLS: (save, shrink_calls_that_crash, write, verify),
    Route.LOSS_AFTER_CASES: (record_after_cases, write_program),
    Route.WHOLE: (write, verify),
    Route.WRITTEN: (write,),
    Route.SETTLED: (),
    Route.DISMISSED: (),
}


def diagnosed(suspect: Suspect, tools: Tools, confirmed: Collection[str] = ()) -> Diagnosis:
    """Take a suspect through its stages; its folder is whole after each that writes.

    Args:
        suspect: What was seen.
        tools: What findings are made with.
        confirmed: Ids of findings that are confirmed: what turns out to be one of them is not written down again.
    """
    with closing(tools.fresh()) as fresh:
        look = Inspection(tools, fresh, confirmed)
        found = _looked_at(suspect, look)
        # One case that does not repeat says little of the others: flaky is what none of a few repeats.
        for other in suspect.others if suspect.lost is None else ():
            if found.route is not Route.DISMISSED and found.doubt is Doubt.NONE:
                break
            fresh.close()
            second = _looked_at(suspect.of_other(other), look)
            found = found if second.route is Route.DISMISSED else second
        return found


def _looked_at(suspect: Suspect, look: Inspection) -> Diagnosis:
    return reconciled(suspect, followed(suspected(suspect), look))


def followed(diagnosis: Diagnosis, look: Inspection) -> Diagnosis:
    """Take what is known through the stages of its route, and of those that it is put on."""
    route = diagnosis.route
    for stage in STAGES[route]:
        before, diagnosis = diagnosis, stage(diagnosis, look)
        if diagnosis.is_confirmed and identity_id(diagnosis) in look.confirmed:
            diagnosis = replace(diagnosis, whole=None, shown=None, route=Route.SETTLED)
        _forget_other(before, diagnosis, look)
        if diagnosis.route is not route:
            return followed(diagnosis, look)
    return diagnosis


def _forget_other(before: Diagnosis, after: Diagnosis, look: Inspection) -> None:
    """Remove the folder of what turned out to be another finding, unless it is that of one that is confirmed."""
    identity = identity_id(before)
    if before.whole is not None and identity != identity_id(after) and identity not in look.confirmed:
        forget(identity, look.tools)

"""The stages of each route as one table: what happens to a suspect, from its first failure to its folder.

A stage takes a diagnosis and returns it with more information. It may also change the route: a misaligned case ends its
worker when it runs again, or a crash turns out to be a wrong value. Then the new route starts from its first stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from ci_autotest.extensions import STAGES as STAGES_OF_PARTS
from ci_autotest.extensions import part
from ci_autotest.findings.confirm import confirm, confirm_probe
from ci_autotest.findings.crash import confirm_loss, find_calls, isolate, locate, record, record_after_cases
from ci_autotest.findings.diagnosis import Diagnosis, Doubt, Route, identity_id
from ci_autotest.findings.ranks import confirm_on_processes
from ci_autotest.findings.shrink_stages import (
    find_variants,
    shrink_alone,
    shrink_body,
    shrink_calls,
    shrink_calls_that_crash,
    shrink_crash,
)
from ci_autotest.findings.tools import Inspection, Tools
from ci_autotest.findings.unconfirmed import reconciled, suspected
from ci_autotest.findings.writer import forget, save, verify, write, write_program
from ci_autotest.values.result import LOADER_CANDIDATE

if TYPE_CHECKING:
    from collections.abc import Collection

    from ci_autotest.findings.suspect import Suspect

Stage: TypeAlias = Callable[[Diagnosis, Inspection], Diagnosis]

_LOADER: Final[Mapping[Stage, str]] = part(STAGES_OF_PARTS[LOADER_CANDIDATE])
STAGES: Final[Mapping[Route, tuple[Stage, ...]]] = {
    # `save` comes before whatever may still end the run, so that the finding is on disk by then.
    Route.DIFFERENCE: (confirm, confirm_on_processes, save, shrink_body, find_variants, write, verify),
    Route.DIFFERENCE_ALONE: (shrink_alone, write, verify),
    Route.PROBE: (confirm_probe,),
    Route.SEQUENCE: (save, shrink_calls, write, verify),
    Route.LOSS: (record, save, confirm_loss, locate, isolate, save, shrink_crash, write, verify),
    Route.LOSS_AFTER_CALLS: (save, shrink_calls_that_crash, write, verify),
    Route.LOSS_AFTER_CASES: (find_calls, record_after_cases, write_program),
    Route.LOADER: tuple(_LOADER),
    Route.WHOLE: (write, verify),
    Route.WRITTEN: (write,),
    Route.SETTLED: (),
    Route.DISMISSED: (),
}
#: What a stage that takes time is doing; shrinking says itself how far it is.
_DOING: Final[Mapping[Stage, str]] = {
    confirm: "confirming in a fresh process", confirm_probe: "confirming in a fresh process",
    confirm_loss: "confirming the loss of its process", find_calls: "finding the calls that it needs",
    verify: "running the repro alone", **_LOADER,
}  # fmt: skip


def diagnosed(suspect: Suspect, tools: Tools, confirmed: Collection[str] = ()) -> Diagnosis:
    """Take a suspect through its stages; its folder is complete after each stage that writes.

    Args:
        suspect: The suspect.
        tools: The tools of the run.
        confirmed: Ids of confirmed findings; a suspect that turns out to be one of them is not written again.
    """
    with closing(tools.fresh()) as fresh:
        inspection = Inspection(tools, fresh, confirmed)
        found = _inspected(suspect, inspection)
        # One case that does not fail again says little about the others: a suspect is flaky if none of a few does.
        for other in suspect.others if suspect.lost is None else ():
            if found.route is not Route.DISMISSED and found.doubt is Doubt.NONE:
                break
            fresh.close()
            second = _inspected(suspect.of_other(other), inspection)
            found = found if second.route is Route.DISMISSED else second
        return found


def _inspected(suspect: Suspect, inspection: Inspection) -> Diagnosis:
    return reconciled(suspect, followed(suspected(suspect), inspection))


def followed(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Take a diagnosis through the stages of its route, and of each route that a stage changes to."""
    route = diagnosis.route
    for stage in STAGES[route]:
        if _DOING.get(stage):
            inspection.tools.show(_DOING[stage])
        before, diagnosis = diagnosis, stage(diagnosis, inspection)
        # Another suspect has shown this finding already, and owns its folder.
        if diagnosis.is_confirmed and identity_id(diagnosis) in inspection.confirmed:
            diagnosis = replace(diagnosis, whole=None, shown=None, route=Route.SETTLED)
        _forget_other(before, diagnosis, inspection)
        if diagnosis.route is not route:
            return followed(diagnosis, inspection)
    return diagnosis


def _forget_other(before: Diagnosis, after: Diagnosis, inspection: Inspection) -> None:
    """Remove the folder of a suspect that turned out to be another finding, unless a confirmed finding owns it."""
    identity = identity_id(before)
    if before.whole is not None and identity != identity_id(after) and identity not in inspection.confirmed:
        forget(identity, inspection.tools)

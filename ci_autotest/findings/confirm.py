"""Stages that run a case again in a fresh process: what it shows there decides what is done with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from ci_autotest.findings import stateful
from ci_autotest.findings.crash import lost_again
from ci_autotest.findings.diagnosis import Diagnosis, Route, flaky, shown_of
from ci_autotest.program.serialize import decode
from ci_autotest.run.messages import Broken, Confirm, Tried
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.verdict import Verdict

if TYPE_CHECKING:
    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.findings.tools import Inspection


def confirm(diagnosis: Diagnosis, look: Inspection) -> Diagnosis:
    """Run the case again, each side held against itself first."""
    suspect, verdict = diagnosis.suspect, diagnosis.verdict
    again = look.fresh.ask(question(suspect))
    if verdict.is_of_a_rejected_attempt and not (isinstance(again, Tried) and again.verdict.kind == "leniency"):
        return diagnosis.settled()
    if isinstance(again, WorkerLostError):
        return lost_again(diagnosis, again)
    if isinstance(again, Broken):
        return diagnosis.settled(f"not confirmed: {again.message}")
    return _confirmed(diagnosis, _of_its_own_operator(again, suspect, look), look)


def confirm_probe(diagnosis: Diagnosis, look: Inspection) -> Diagnosis:
    """Look for the calls after which a probe is wrong; flaky where nothing shows it again."""
    suspect = diagnosis.suspect
    found = stateful.of_probe(suspect, look.fresh)
    if found is not None:
        return found
    again = look.fresh.ask(question(suspect))
    if isinstance(again, Tried) and again.verdict.kind == "nondeterminism" and not _is_of_another(again, suspect):
        # What differs from run to run differs in a probe too, by chance: it is that finding, and no other.
        unsteady = suspect._replace(verdict=again.verdict)
        return replace(diagnosis, suspect=unsteady, verdict=again.verdict, route=Route.DIFFERENCE)
    return flaky(suspect, Tried(verdict=Verdict(outcome="aligned")))


def question(suspect: Suspect) -> Confirm:
    """Return what a fresh worker is asked of a case."""
    return Confirm(
        test=suspect.test, case=suspect.case, attempt=suspect.attempt, candidate=suspect.candidate, twice=True
    )


def is_same(verdict: Verdict, other: Verdict) -> bool:
    """Whether two verdicts are of one identity, and went wrong alike."""
    return (verdict.outcome, verdict.operator, verdict.kind) == (other.outcome, other.operator, other.kind)


def _confirmed(diagnosis: Diagnosis, again: Tried, look: Inspection) -> Diagnosis:
    """Return what a second run says of a case: the same, that it is unsteady or remembers, or that it is flaky."""
    suspect = diagnosis.suspect
    is_unsteady = again.verdict.kind == "nondeterminism"
    is_repeated = is_same(again.verdict, diagnosis.verdict)
    if is_unsteady or not is_repeated:
        remembering = _remembering(suspect, again, look)
        if remembering is not None:
            return remembering
        if not is_unsteady:
            return flaky(suspect, again)
    found = replace(diagnosis, verdict=again.verdict, shown=shown_of(again), is_confirmed=True)
    if is_unsteady:  # Whatever is smaller may show it, or not, by chance.
        return replace(found, route=Route.WHOLE)
    return replace(found, whole=decode(again.whole_program, again.whole_tensors))


def _of_its_own_operator(again: Tried, suspect: Suspect, look: Inspection) -> Tried:
    """Return what a second run says of the operator that is suspected.

    That another operator of the same program is unsteady says nothing of this one, which has a fault of its own.
    """
    if not _is_of_another(again, suspect):
        return again
    once = look.fresh.ask(msgspec.structs.replace(question(suspect), twice=False))
    is_it = isinstance(once, Tried) and suspect.verdict is not None and is_same(once.verdict, suspect.verdict)
    return once if isinstance(once, Tried) and is_it else again


def _remembering(suspect: Suspect, again: Tried, look: Inspection) -> Diagnosis | None:
    """Return what a kernel that remembers shows, of a case that differs from itself or was right alone."""
    if again.verdict.kind != "nondeterminism":
        found = stateful.after_others(suspect, look.fresh)
    elif again.verdict.blame == "candidate":
        found = stateful.twice(suspect, look.fresh)
    else:
        return None
    return None if found is None or found.route is Route.DISMISSED else found


def _is_of_another(again: Tried, suspect: Suspect) -> bool:
    """Whether a case was confirmed to be unsteady in another operator than the one that it was suspected of."""
    suspected = suspect.verdict
    return again.verdict.kind == "nondeterminism" and (
        suspected is None or again.verdict.operator != suspected.operator
    )

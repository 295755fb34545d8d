"""Stages that run a case again in a fresh process; the result decides which stages follow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from ci_autotest.findings import stateful
from ci_autotest.findings.crash import lost_again
from ci_autotest.findings.diagnosis import Diagnosis, Route, flaky, shown_of
from ci_autotest.program.serialize import decode
from ci_autotest.program.targets import is_own
from ci_autotest.run.messages import Broken, Confirm, Tried
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.values.verdict import Verdict

if TYPE_CHECKING:
    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.findings.tools import Inspection


def confirm(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Run the case again; each side is first compared with a second run of itself."""
    suspect, verdict = diagnosis.suspect, diagnosis.verdict
    again = inspection.fresh.ask(question(suspect))
    # What the reference rejects belongs to no case, so that nothing else about it is a finding.
    if verdict.is_of_a_rejected_attempt and not (isinstance(again, Tried) and again.verdict.kind == "leniency"):
        return diagnosis.settled()
    if isinstance(again, WorkerLostError):
        return lost_again(diagnosis, again)
    if isinstance(again, Broken):
        return diagnosis.settled(f"not confirmed: {again.message}")
    diagnosis = replace(diagnosis, printed=inspection.fresh.printed)
    return _confirmed(diagnosis, _on_suspected_operator(again, suspect, inspection), inspection)


def confirm_probe(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Look for the calls after which a probe is wrong; it is flaky if nothing shows that again."""
    suspect = diagnosis.suspect
    find = stateful.by_itself if inspection.is_one_body(suspect) else stateful.of_probe
    found = find(suspect, inspection.fresh)
    if found is not None:
        return found
    again = inspection.fresh.ask(question(suspect))
    if isinstance(again, Tried) and again.verdict.kind == "nondeterminism" and not _is_other_operator(again, suspect):
        # A nondeterministic case differs in a probe too, by chance: the finding is its nondeterminism.
        nondeterministic = suspect._replace(verdict=again.verdict)
        return replace(diagnosis, suspect=nondeterministic, verdict=again.verdict, route=Route.DIFFERENCE)
    return flaky(suspect, Tried(verdict=Verdict(outcome="aligned")))


def question(suspect: Suspect) -> Confirm:
    """Return the request that confirms a case in a fresh worker."""
    return Confirm(
        test=suspect.test,
        case=suspect.case,
        attempt=suspect.attempt,
        candidate=suspect.candidate,
        twice=True,
        wanted=suspect.identity,
    )


def _confirmed(diagnosis: Diagnosis, again: Tried, inspection: Inspection) -> Diagnosis:
    """Return a case after its second run: confirmed, nondeterministic, stateful or flaky."""
    suspect = diagnosis.suspect
    is_nondeterministic = again.verdict.kind == "nondeterminism"
    is_repeated = again.verdict.identity == diagnosis.verdict.identity
    if is_nondeterministic or not is_repeated:
        with_state = _stateful(suspect, again, inspection)
        if with_state is not None:
            return with_state
        if not is_nondeterministic:
            return flaky(suspect, again)
    found = replace(diagnosis, verdict=again.verdict, shown=shown_of(again), is_confirmed=True)
    if is_nondeterministic:  # A smaller program would show it only by chance, so nothing is shrunk.
        return replace(found, route=Route.WHOLE)
    return replace(found, whole=decode(again.whole_program, again.whole_tensors, is_own))


def _on_suspected_operator(again: Tried, suspect: Suspect, inspection: Inspection) -> Tried:
    """Return a second run's result for the suspected operator.

    If another operator of the program is nondeterministic, that says nothing about this one, so it is checked alone.
    """
    if not _is_other_operator(again, suspect):
        return again
    once = inspection.fresh.ask(msgspec.structs.replace(question(suspect), twice=False))
    is_repeated = (
        isinstance(once, Tried) and suspect.verdict is not None and once.verdict.identity == suspect.verdict.identity
    )
    return once if isinstance(once, Tried) and is_repeated else again


def _stateful(suspect: Suspect, again: Tried, inspection: Inspection) -> Diagnosis | None:
    """Return the stateful finding of a case that is right alone or differs from itself, or ``None``."""
    if again.verdict.kind != "nondeterminism":
        # It was right alone, so that something before it in its process is needed.
        found = stateful.after_others(suspect, inspection.fresh, has_steps=not inspection.is_compiled(suspect))
    elif again.verdict.blame == "candidate":
        # It differs from itself: a kernel that counts its calls does so each time, and chance does not.
        found = stateful.twice(suspect, inspection.fresh)
    else:
        return None
    return None if found is None or found.route is Route.DISMISSED else found


def _is_other_operator(again: Tried, suspect: Suspect) -> bool:
    """Whether the second run shows nondeterminism in another operator than the suspected one."""
    suspected = suspect.verdict
    return again.verdict.kind == "nondeterminism" and (
        suspected is None or again.verdict.operator != suspected.operator
    )

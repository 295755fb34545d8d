"""Unconfirmed suspects: diagnoses of cases that nobody inspects again, or that an inspection does not settle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ci_autotest.findings.crash import ITS_TEST, crash_verdict
from ci_autotest.findings.diagnosis import Diagnosis, Doubt, Route
from ci_autotest.values.verdict import Verdict

if TYPE_CHECKING:
    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.run.worker_loss import WorkerLostError

_SEEN_ONCE: Final = "seen once: the run ended before it could run again with what ran before it"


def suspected(suspect: Suspect) -> Diagnosis:
    """Return the diagnosis of a suspect before its inspection, with the route to take."""
    lost, verdict = suspect.lost, suspect.verdict or Verdict(outcome="misaligned")
    if verdict.kind == "randomness":
        return Diagnosis(suspect, verdict, Route.LOADER)
    if lost is None:
        return Diagnosis(suspect, verdict, Route.PROBE if verdict.kind == "stateful" else Route.DIFFERENCE)
    if suspect.repeats in {"history", "never"}:
        return _after_cases(suspect, lost)
    return Diagnosis(suspect, crash_verdict(ITS_TEST, lost), Route.LOSS, lost=lost)


def as_seen(suspect: Suspect) -> Diagnosis:
    """Return the diagnosis of a suspect that is not inspected, with a note that says so.

    A lost case needs no note unless ``repeats`` is unknown, because crash attribution has already run it again.
    """
    seen = suspected(suspect)
    if suspect.lost is None:
        return seen.noted("not confirmed: it was not run again in a fresh process")
    return seen_once(seen) if suspect.repeats == "unknown" else seen


def seen_once(seen: Diagnosis, more: str = "") -> Diagnosis:
    """Return the diagnosis of a case that ended its worker if the run ended before crash attribution was done."""
    detail = f"{_SEEN_ONCE}{more}"
    if seen.verdict.outcome == "timed_out":
        # A busy machine can cause a timeout too, so a timeout seen once is not called a finding.
        return seen.doubted(detail, Doubt.TIMED_OUT_ONCE)
    return replace(seen.settled(detail), is_confirmed=False).noted(f"not confirmed, {detail}")


def reconciled(suspect: Suspect, found: Diagnosis) -> Diagnosis:
    """Return the diagnosis after an inspection, which must not retract a failure that was already seen twice."""
    is_flaky = found.doubt is not Doubt.NONE
    is_timed_out_once = found.verdict.outcome == "timed_out" and not found.is_confirmed and not is_flaky
    if suspect.lost is None:
        return as_seen(suspect) if is_timed_out_once else found
    if suspect.repeats == "unknown" and is_flaky:
        return seen_once(suspected(suspect), "; alone it does not")
    if suspect.repeats == "unknown" and is_timed_out_once:
        return seen_once(found)
    # Crash attribution has seen it end two processes, which one that survived does not undo.
    if is_flaky and suspect.repeats != "never":
        detail = "alone in a fresh worker it did so again, but not while each step was reported"
        return replace(suspected(suspect), is_confirmed=True, detail=detail)
    return found


def _after_cases(suspect: Suspect, lost: WorkerLostError) -> Diagnosis:
    """Return the diagnosis of a case that ended its worker once, or does so only after other cases."""
    seen = Diagnosis(suspect, crash_verdict(ITS_TEST, lost), Route.LOSS_AFTER_CASES, lost=lost)
    if suspect.repeats == "history":
        detail = f"alone it does not: it needs {suspect.history} to run before it"
        return replace(seen, is_confirmed=True, detail=detail, no_program="cases")
    detail = f"the worker {lost.reason} once, but not again: neither alone nor after the cases that ran before it"
    return replace(seen, doubt=Doubt.NOT_REPEATED, detail=detail)

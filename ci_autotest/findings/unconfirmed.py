"""Suspects as they were seen, for what nobody looks at again and for what a second look does not settle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ci_autotest.findings.crash import ITS_TEST, crash_verdict
from ci_autotest.findings.diagnosis import Diagnosis, Doubt, Route
from ci_autotest.values.verdict import Verdict

if TYPE_CHECKING:
    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.run.worker_loss import WorkerLostError

_SEEN_ONCE: Final = "seen once: the run was ended before it was run again with what ran before it"


def suspected(suspect: Suspect) -> Diagnosis:
    """Return what is known of a suspect before it is looked at, and what is to be done with it."""
    lost, verdict = suspect.lost, suspect.verdict or Verdict(outcome="misaligned")
    if lost is None:
        return Diagnosis(suspect, verdict, Route.PROBE if verdict.kind == "stateful" else Route.DIFFERENCE)
    if suspect.repeats in {"history", "never"}:
        return _after_cases(suspect, lost)
    return Diagnosis(suspect, crash_verdict(ITS_TEST, lost), Route.LOSS, lost=lost)


def as_seen(suspect: Suspect) -> Diagnosis:
    """Return a suspect that nobody looks at again, which says so; what ended its worker did so again alone."""
    seen = suspected(suspect)
    if suspect.lost is None:
        return seen.noted("not confirmed: it was not run again in a fresh process")
    return seen_once(seen) if suspect.repeats == "unknown" else seen


def seen_once(seen: Diagnosis, more: str = "") -> Diagnosis:
    """Return a case that ended its worker, and the run was ended before that was looked into."""
    detail = f"{_SEEN_ONCE}{more}"
    if seen.verdict.outcome == "timed_out":
        # A machine with much to do is silent too: nobody's finding until seen twice.
        return seen.doubted(detail, Doubt.TIMED_OUT_ONCE)
    return replace(seen.settled(detail), is_confirmed=False).noted(f"not confirmed, {detail}")


def reconciled(suspect: Suspect, found: Diagnosis) -> Diagnosis:
    """Return what was found, held against how it was first seen: a look more takes nothing back that was seen twice."""
    is_flaky = found.doubt is not Doubt.NONE
    is_timed_out_once = found.verdict.outcome == "timed_out" and not found.is_confirmed and not is_flaky
    if suspect.lost is None:
        return as_seen(suspect) if is_timed_out_once else found
    if suspect.repeats == "unknown" and is_flaky:
        return seen_once(suspected(suspect), "; alone it does not")
    if suspect.repeats == "unknown" and is_timed_out_once:
        return seen_once(found)
    if is_flaky and suspect.repeats != "never":
        detail = "alone in a fresh worker it did so again; with each step watched it did not"
        return replace(suspected(suspect), is_confirmed=True, detail=detail)
    return found


def _after_cases(suspect: Suspect, lost: WorkerLostError) -> Diagnosis:
    """Return a case that ends its worker only after others, or did so once."""
    seen = Diagnosis(suspect, crash_verdict(ITS_TEST, lost), Route.LOSS_AFTER_CASES, lost=lost)
    if suspect.repeats == "history":
        detail = f"alone it does not: it needs {suspect.history} to run before it"
        return replace(seen, is_confirmed=True, detail=detail, notes=(detail,))
    detail = f"the worker {lost.reason} once; neither alone nor after the cases that ran before it did it do so again"
    return replace(seen, doubt=Doubt.NOT_REPEATED, detail=detail)

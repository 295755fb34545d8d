"""From failure to finding: run again in a fresh process, written down, shrunk, given a repro that is run alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.result import Finding, Verdict
from ci_autotest.run.fresh import Fresh
from ci_autotest.run.lost import WorkerLostError
from ci_autotest.run.messages import Broken, Confirm, Tried, TryProgram
from ci_autotest.session.crashes import crash, lost_finding
from ci_autotest.session.made import Workshop, finding_of, flaky, is_verified, shown_of, with_program, write
from ci_autotest.shrink.shrinker import Redraw, Shown, Shrinker

if TYPE_CHECKING:
    from ci_autotest.session.ledger import Suspect
    from ci_autotest.shrink.shrinker import Proposal

#: Findings that are confirmed and shrunk; the rest are reported unconfirmed.
CONFIRMED_AT_MOST: Final = 50


def make_finding(suspect: Suspect, workshop: Workshop) -> Finding:
    """Confirm, localize, shrink and write down one suspect; its folder is whole after each stage."""
    fresh = Fresh(workshop.start, workshop.hello, workshop.deadline)
    try:
        if suspect.lost is not None:
            return lost_finding(suspect, workshop, fresh)
        finding = _misaligned(suspect, workshop, fresh)
        # One case that does not repeat says little of the others: flaky is what none of a few repeats.
        for case, attempt, test in suspect.others:
            if finding.outcome != "flaky":
                break
            fresh.close()
            finding = _misaligned(suspect._replace(case=case, attempt=attempt, test=test), workshop, fresh)
        return finding
    finally:
        fresh.close()


def unconfirmed(suspect: Suspect, workshop: Workshop) -> Finding:
    """Return a finding that nobody looked at again."""
    if suspect.lost is not None:
        return crash(suspect, Verdict(outcome="crashed", target="its test"), suspect.lost, workshop)
    return finding_of(suspect, suspect.verdict or Verdict(outcome="misaligned"), workshop)


def _misaligned(suspect: Suspect, workshop: Workshop, fresh: Fresh) -> Finding:
    verdict = suspect.verdict
    assert verdict is not None  # noqa: S101 - the caller looked
    again = fresh.ask(
        Confirm(
            test=suspect.test,
            case=suspect.case,
            attempt=suspect.attempt,
            candidate=suspect.candidate,
        )
    )
    if verdict.kind == "leniency":
        same = isinstance(again, Tried) and again.verdict.kind == "leniency"
        return msgspec.structs.replace(finding_of(suspect, verdict, workshop), confirmed=same)
    if isinstance(again, WorkerLostError):
        return lost_finding(suspect._replace(lost=again), workshop, fresh)
    if isinstance(again, Broken):
        return msgspec.structs.replace(finding_of(suspect, verdict, workshop), detail=f"not confirmed: {again.message}")
    if _key(again.verdict) != _key(verdict):
        return flaky(suspect, again, workshop)
    shown = shown_of(again)
    whole = decode(again.whole_program, again.whole_tensors)
    finding = msgspec.structs.replace(finding_of(suspect, again.verdict, workshop), confirmed=True)
    write(finding, whole, workshop)
    return _shrunk(suspect, _shrink(suspect, shown, fresh), workshop)


def _shrunk(suspect: Suspect, best: Shown, workshop: Workshop) -> Finding:
    finding = msgspec.structs.replace(finding_of(suspect, best.verdict, workshop), confirmed=True, shrunk=True)
    finding = with_program(finding, best.recording, workshop)
    write(finding, best.recording, workshop, repro=True)
    verified = is_verified(workshop, finding.id)
    finding = msgspec.structs.replace(finding, repro_verified=verified)
    write(finding, best.recording, workshop, repro=True)
    return finding


def _shrink(suspect: Suspect, shown: Shown, fresh: Fresh) -> Shown:
    shrinker = Shrinker(shown)
    while (proposal := shrinker.propose()) is not None:
        shrinker.tell(_try(suspect, proposal, fresh))
    return shrinker.best


def _try(suspect: Suspect, proposal: Proposal, fresh: Fresh) -> Shown | None:
    if isinstance(proposal, Redraw):
        answer = fresh.ask(
            Confirm(
                test=suspect.test, case=suspect.case, attempt=suspect.attempt, candidate=suspect.candidate,
                edits=dict(proposal.edits), profile=proposal.profile,
            )
        )  # fmt: skip
    else:
        recording = proposal.recording
        answer = fresh.ask(
            TryProgram(
                program=encode_program(recording),
                tensors=encode_tensors(recording),
                candidate=suspect.candidate,
                test=suspect.test,
            )
        )
    return shown_of(answer) if isinstance(answer, Tried) and answer.program else None


def _key(verdict: Verdict) -> tuple[str, str, str | None]:
    return verdict.outcome, verdict.operator, verdict.kind

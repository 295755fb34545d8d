"""From failure to finding: run again in a fresh process, written down, shrunk, given a repro that is run alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.judgement import Verdict
from ci_autotest.program.serialize import decode
from ci_autotest.result import VARIANTS_AT_MOST, Finding, Variant
from ci_autotest.run.lost import WorkerLostError
from ci_autotest.run.messages import Broken, Confirm, Tried
from ci_autotest.session import stateful
from ci_autotest.session.crashes import crash, lost_finding
from ci_autotest.session.made import Workshop, calls_of, finding_of, flaky, shown_of, with_program, write, written
from ci_autotest.session.trying import Trial, shrink, shrink_compiled
from ci_autotest.telling import display_program

if TYPE_CHECKING:
    from collections.abc import Collection

    from ci_autotest.config import Candidate
    from ci_autotest.program.ir import Recording
    from ci_autotest.run.fresh import Fresh
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.session.ledger import Suspect
    from ci_autotest.shrink.shrinker import Shown

#: Findings that are confirmed and shrunk; the rest are reported unconfirmed.
CONFIRMED_AT_MOST: Final = 300


def make_finding(suspect: Suspect, workshop: Workshop, told: Collection[str] = ()) -> Finding | None:
    """Confirm, localize, shrink and write down one suspect; its folder is whole after each stage.

    ``None`` is what comes of a probe whose call is wrong alone too: its values are not those of a case.

    Args:
        suspect: What was seen.
        workshop: What findings are made with.
        told: Ids of findings that are confirmed: what turns out to be one of them is not written down again.
    """
    fresh = workshop.fresh()
    try:
        if suspect.lost is not None:
            return lost_finding(suspect, workshop, fresh, told)
        finding = _misaligned(suspect, workshop, fresh, told)
        # One case that does not repeat says little of the others: flaky is what none of a few repeats.
        for case, attempt, test in suspect.others:
            if finding is not None and finding.outcome != "flaky":
                break
            fresh.close()
            before = suspect.histories.get((test.id, case), ())
            other = suspect._replace(case=case, attempt=attempt, test=test, before=before)
            finding = _misaligned(other, workshop, fresh, told) or finding
        return finding
    finally:
        fresh.close()


def unconfirmed(suspect: Suspect, workshop: Workshop) -> Finding:
    """Return a finding that nobody looked at again, which says so; what ended its worker did so again alone."""
    if suspect.lost is not None:
        return crash(suspect, Verdict(outcome="crashed", target="its test"), suspect.lost, workshop)
    finding = finding_of(suspect, suspect.verdict or Verdict(outcome="misaligned"), workshop)
    told = f"{finding.message}\n  not confirmed: it was not run again in a fresh process"
    return msgspec.structs.replace(finding, message=told)


def _misaligned(suspect: Suspect, workshop: Workshop, fresh: Fresh, told: Collection[str]) -> Finding | None:
    verdict = suspect.verdict
    assert verdict is not None  # noqa: S101 - the caller looked
    if verdict.kind == "stateful":
        return _of_probe(suspect, workshop, fresh, told)
    again = fresh.ask(_question(suspect))
    if verdict.is_of_a_rejected_attempt and not (isinstance(again, Tried) and again.verdict.kind == "leniency"):
        return finding_of(suspect, verdict, workshop)
    if isinstance(again, WorkerLostError):
        found = lost_finding(suspect._replace(lost=again), workshop, fresh, told)
        is_seen_once = found.outcome == "timed_out" and not found.confirmed
        return unconfirmed(suspect, workshop) if is_seen_once else found
    if isinstance(again, Broken):
        return msgspec.structs.replace(finding_of(suspect, verdict, workshop), detail=f"not confirmed: {again.message}")
    if _is_of_another(again, suspect):
        # Another operator of the same program is unsteady: that says nothing of this one, which has a fault of its own.
        alone = fresh.ask(msgspec.structs.replace(_question(suspect), twice=False))
        again = alone if isinstance(alone, Tried) and _key(alone.verdict) == _key(verdict) else again
    is_unsteady = again.verdict.kind == "nondeterminism"
    if is_unsteady or _key(again.verdict) != _key(verdict):
        remembering = _remembering(suspect, again, workshop, fresh)
        if remembering is not None or not is_unsteady:
            return remembering or flaky(suspect, again, workshop)
    shown = shown_of(again)
    whole = decode(again.whole_program, again.whole_tensors)
    finding = msgspec.structs.replace(finding_of(suspect, again.verdict, workshop), confirmed=True)
    if is_unsteady and finding.id in told:
        return finding
    write(finding, whole, workshop)
    if is_unsteady:
        return _written(finding, shown.recording, workshop, suspect.test)
    best, layer = _smallest(suspect, shown, workshop, fresh)
    found = finding_of(suspect, best.verdict, workshop)
    finding = msgspec.structs.replace(found, confirmed=True, shrunk=True, layer=layer)
    return _written(finding, best.recording, workshop, suspect.test, _variants(suspect, best, workshop, fresh))


def _of_probe(suspect: Suspect, workshop: Workshop, fresh: Fresh, told: Collection[str]) -> Finding | None:
    """Return the finding of a probe, flaky where nothing shows it again; ``None`` where its call is wrong alone too."""
    made = stateful.of_probe(suspect, workshop, fresh)
    if made.finding is not None or made.is_wrong_alone:
        return made.finding
    again = fresh.ask(_question(suspect))
    if isinstance(again, Tried) and again.verdict.kind == "nondeterminism" and not _is_of_another(again, suspect):
        # What differs from run to run differs in a probe too, by chance: it is that finding, and no other.
        return _misaligned(suspect._replace(verdict=again.verdict), workshop, fresh, told)
    return flaky(suspect, Tried(verdict=Verdict(outcome="aligned")), workshop)


def _remembering(suspect: Suspect, again: Tried, workshop: Workshop, fresh: Fresh) -> Finding | None:
    """Return the finding of a kernel that remembers, for a case that differs from itself or was right alone."""
    if again.verdict.kind != "nondeterminism":
        return stateful.after_others(suspect, workshop, fresh).finding
    return stateful.twice(suspect, workshop, fresh).finding if again.verdict.blame == "candidate" else None


def _is_of_another(again: Tried, suspect: Suspect) -> bool:
    """Whether a case was confirmed to be unsteady in another operator than the one that it was suspected of."""
    suspected = suspect.verdict
    return again.verdict.kind == "nondeterminism" and (
        suspected is None or again.verdict.operator != suspected.operator
    )


def _question(suspect: Suspect) -> Confirm:
    return Confirm(
        test=suspect.test, case=suspect.case, attempt=suspect.attempt, candidate=suspect.candidate, twice=True
    )


def _smallest(suspect: Suspect, shown: Shown, workshop: Workshop, fresh: Fresh) -> tuple[Shown, str]:
    """Return the smallest that shows the same, and the layer of a compiler that is at fault."""
    candidate = _candidate(suspect, workshop)
    if candidate is not None and candidate.backend == "torch.compile":
        return shrink_compiled(shown, Trial(suspect, fresh), candidate)
    return shrink(shown, Trial(suspect, fresh)), ""


def _candidate(suspect: Suspect, workshop: Workshop) -> Candidate | None:
    return next((item for item in workshop.hello.candidates if item.name == suspect.candidate), None)


def _variants(suspect: Suspect, best: Shown, workshop: Workshop, fresh: Fresh) -> tuple[Variant, ...]:
    """Return the smallest programs of other tests that hit the same identity, where they are other programs."""
    seen = {suspect.test.id: calls_of(best.recording)}
    found: list[Variant] = []
    for case, attempt, test in suspect.others:
        if test.id in seen or len(seen) > VARIANTS_AT_MOST:
            continue
        other = suspect._replace(case=case, attempt=attempt, test=test)
        again = fresh.ask(_question(other))
        if not isinstance(again, Tried) or _key(again.verdict) != _key(best.verdict):
            seen[test.id] = ()
            continue
        shown, _ = _smallest(other, shown_of(again), workshop, fresh)
        calls = calls_of(shown.recording)
        if calls not in seen.values():
            told = finding_of(other, shown.verdict, workshop)
            program = display_program(shown.recording, told)
            found.append(Variant(test=test.id, case=case, headline=told.headline, program=program, calls=calls))
        seen[test.id] = calls
    return tuple(found)


def _written(
    finding: Finding, recording: Recording, workshop: Workshop, test: TestInfo, variants: tuple[Variant, ...] = ()
) -> Finding:
    """Put the program into a finding, and write it down with its repro, which is run alone."""
    return written(
        msgspec.structs.replace(with_program(finding, recording, workshop), variants=variants),
        recording,
        workshop,
        test,
    )


def _key(verdict: Verdict) -> tuple[str, str, str | None]:
    return verdict.outcome, verdict.operator, verdict.kind

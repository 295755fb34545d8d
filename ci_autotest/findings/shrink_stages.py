"""Stages that shrink the program of a finding, and look for other small programs that show the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.findings import shrink_driver as driver
from ci_autotest.findings.confirm import question
from ci_autotest.findings.diagnosis import Diagnosis, Route, calls_of, rendered, shown_of
from ci_autotest.findings.shrink_driver import ShrinkTrial
from ci_autotest.kinds import CompileCandidate, ExportCandidate, ModuleCandidate
from ci_autotest.program.serialize import encode_program, encode_tensors
from ci_autotest.report.finding_program import shown_program
from ci_autotest.run.messages import Tried, TryProgram
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.shrink.data import zeroed
from ci_autotest.values.finding import VARIANTS_AT_MOST, Variant

if TYPE_CHECKING:
    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.findings.tools import Inspection
    from ci_autotest.kinds import AnyCandidate
    from ci_autotest.shrink.shrinker import ShownTrial

_CUT: Final = f"shrinking it ended after {driver.SECONDS_AT_MOST:.0f} s: a smaller program may show it, too"


def shrink_body(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Shrink the program; for a compiled candidate, name the layer at fault."""
    before = _shown(diagnosis)
    best, layer = _smallest(diagnosis.suspect, before, inspection)
    found = replace(
        diagnosis, verdict=best.verdict, shown=best, unshrunk=before, whole=None, is_shrunk=True, layer=layer
    )
    is_by_clock = best.is_cut and not inspection.fresh.is_over  # The report says itself that its budget is spent.
    return found.noted(_CUT) if is_by_clock else found


def shrink_alone(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Shrink the program again, each trial in a fresh process.

    A kernel that counts its calls may have been wrong in a trial only because of the trials before it.
    """
    assert diagnosis.unshrunk is not None  # noqa: S101 - a stage of this route's predecessor has set it
    trial = replace(_trial(diagnosis.suspect, diagnosis.unshrunk, inspection), is_alone=True)
    best = driver.shrink(diagnosis.unshrunk, trial)
    return replace(diagnosis, verdict=best.verdict, shown=best, variants=())


def find_variants(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Shrink the cases of other tests that hit the same identity, and keep those with other calls as variants."""
    suspect, best = diagnosis.suspect, _shown(diagnosis)
    seen = {suspect.test.id: calls_of(best.recording)}
    found: list[Variant] = []
    for other in map(suspect.of_other, suspect.others):
        # One for each test, and the finding's own test is in the count.
        if other.test.id in seen or len(seen) > VARIANTS_AT_MOST:
            continue
        again = inspection.fresh.ask(question(other))
        if not isinstance(again, Tried) or again.verdict.identity != best.verdict.identity:
            seen[other.test.id] = ()  # The other cases of this test are not tried.
            continue
        shown, _ = _smallest(other, shown_of(again), inspection)
        calls = calls_of(shown.recording)
        if calls not in seen.values():
            found += _variant(other, shown, inspection)
        seen[other.test.id] = calls
    return replace(diagnosis, variants=tuple(found))


def shrink_calls(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Shrink a sequence of calls after which one is wrong; each trial runs in a fresh process."""
    best = driver.shrink(_shown(diagnosis), _alone(diagnosis, inspection))
    return replace(diagnosis, verdict=best.verdict, shown=best, is_shrunk=True)


def shrink_crash(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Shrink a program that ends its worker. For a hang only zeros are tried, because each trial takes the timeout."""
    suspect, shown = diagnosis.suspect, _shown(diagnosis)
    if suspect.lost is not None and not suspect.lost.timed_out:
        step, has_backward = diagnosis.culprit
        best = driver.shrink_crash(shown, _trial(suspect, shown, inspection), step, has_backward=has_backward)
        return replace(diagnosis, shown=best, is_shrunk=True)
    plain = zeroed(shown.recording)
    answer = inspection.fresh.ask(
        TryProgram(program=encode_program(plain), tensors=encode_tensors(plain), candidate=suspect.candidate)
    )
    best = replace(shown, recording=plain) if isinstance(answer, WorkerLostError) else shown
    return replace(diagnosis, shown=best, is_shrunk=True)


def shrink_calls_that_crash(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Shrink a sequence of calls of which the last one ends its worker."""
    best = driver.shrink_calls_that_crash(_shown(diagnosis), _alone(diagnosis, inspection))
    return replace(diagnosis, shown=best, is_shrunk=True)


def _alone(diagnosis: Diagnosis, inspection: Inspection) -> ShrinkTrial:
    """Return how proposals are tried in fresh processes."""
    return ShrinkTrial(diagnosis.suspect, inspection.fresh, is_alone=True, show=inspection.tools.show)


def _shown(diagnosis: Diagnosis) -> ShownTrial:
    assert diagnosis.shown is not None  # noqa: S101 - an earlier stage has set it
    return diagnosis.shown


def _variant(suspect: Suspect, shown: ShownTrial, inspection: Inspection) -> list[Variant]:
    """Return the variant; none if no program of it fails when it is pasted, for which its tensors must fit the text."""
    finding = rendered(Diagnosis(suspect, shown.verdict, Route.SETTLED), inspection.tools)
    noted = inspection.tools.with_module_folders(shown.recording)
    program = shown_program(replace(noted, note=msgspec.structs.replace(noted.note, output="")), finding)
    variant = Variant(
        test=suspect.test.id, case=suspect.case, headline=finding.headline, program=program.text,
        calls=calls_of(shown.recording),
    )  # fmt: skip
    return [] if program.reason else [variant]


def _smallest(suspect: Suspect, shown: ShownTrial, inspection: Inspection) -> tuple[ShownTrial, str]:
    """Return the smallest program that shows the same, and the compiler layer at fault."""
    candidate = _candidate(suspect, inspection)
    trial = _trial(suspect, shown, inspection)
    if trial.mesh is not None:
        return driver.shrink_on_hosts(shown, trial), ""
    if isinstance(candidate, CompileCandidate):
        return driver.shrink_compiled(shown, trial, candidate)
    if isinstance(candidate, ExportCandidate):
        return driver.shrink(shown, replace(trial, most=driver.EXPORTS_AT_MOST)), ""
    return driver.shrink(shown, trial), ""


def _candidate(suspect: Suspect, inspection: Inspection) -> AnyCandidate | None:
    candidates = inspection.tools.hello.candidates
    return next((item for item in candidates if item.name == suspect.candidate), None)


def _trial(suspect: Suspect, shown: ShownTrial, inspection: Inspection) -> ShrinkTrial:
    """Return how proposals are tried; the ranks of another framework stay as many as they are."""
    candidate = _candidate(suspect, inspection)
    are_hosts = isinstance(candidate, ModuleCandidate) and candidate.ranks is not None
    mesh = shown.recording.program.mesh if are_hosts else None
    return ShrinkTrial(suspect, inspection.fresh, mesh=mesh, show=inspection.tools.show)

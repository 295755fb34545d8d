"""Regressions: findings of earlier runs run again before anything else, and are reported as still failing or fixed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ci_autotest.config import named_by, of_reference
from ci_autotest.errors import AutotestError, ProgramError
from ci_autotest.findings.crash import crash_verdict
from ci_autotest.findings.database import FindingEntry, KeptFinding, today
from ci_autotest.findings.diagnosis import Diagnosis, Route, rendered
from ci_autotest.findings.stages import followed
from ci_autotest.findings.suspect import Suspect
from ci_autotest.findings.tools import Inspection
from ci_autotest.kinds.compilers import options_of
from ci_autotest.program.expectations import has_expectation
from ci_autotest.program.note import CompileNote, ExportNote, OnnxRuntimeNote
from ci_autotest.program.repro.snippet_sides import own_names
from ci_autotest.program.serialize import decode, encode_program
from ci_autotest.program.targets import is_own, named_in
from ci_autotest.report.finding_folders import FINDINGS
from ci_autotest.run.messages import Broken, Confirm, Tried, TryProgram
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.shrink.shrinker import ShownTrial
from ci_autotest.values.entry_points import SOURCE, module_in
from ci_autotest.values.finding import is_found_leniency
from ci_autotest.values.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ci_autotest.findings.tools import Tools
    from ci_autotest.program.recording import Recording
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.run.single_worker import SingleWorker
    from ci_autotest.values.finding import Finding


class Regressions(NamedTuple):
    """What became of the findings of earlier runs.

    Attributes:
        still: Findings that fail again, with what they show.
        fixed: Findings that no longer fail, and did in the last run.
        kept: All findings to keep in the database, as they are now.
        refused: Sentences about findings that cannot run.
    """

    still: tuple[tuple[KeptFinding, Verdict | WorkerLostError], ...] = ()
    fixed: tuple[FindingEntry, ...] = ()
    kept: tuple[KeptFinding, ...] = ()
    refused: tuple[str, ...] = ()


def replay_kept(
    kept: Sequence[KeptFinding], tests: Mapping[str, TestInfo], candidates: Sequence[str], tools: Tools
) -> Regressions:
    """Run the program of each earlier finding on its candidate, and its whole case if the program no longer fails."""
    own = [item for item in kept if item.entry.test in tests and item.entry.candidate in candidates]
    others = [item for item in kept if item not in own]  # This run does not test them, so it must not change them.
    still: list[tuple[KeptFinding, Verdict | WorkerLostError]] = []
    fixed, held, refused = [], list(others), []
    with closing(_Replayer(tools)) as replayer:
        for item in own:
            try:
                shown = replayer.shown(item, tests[item.entry.test])
            except AutotestError as error:
                refused.append(f"finding {item.entry.id} of an earlier run is refused: {error}")
                continue
            if isinstance(shown, Broken):
                refused.append(f"finding {item.entry.id} of an earlier run was not run again: {shown.message}")
                # What is refused now is refused by every later run, so that it is dropped.
                held += [] if shown.is_refusal else [item]
            elif shown is None:
                # It is told once, in the run that sees it first.
                fixed += [] if item.entry.is_fixed else [item.entry]
                held.append(_dated(item, is_fixed=True))
            else:
                still.append(_with_shown_program(item, shown))
                held.append(_dated(item, is_fixed=False))
    return Regressions(tuple(still), tuple(fixed), tuple(held), tuple(refused))


def _dated(item: KeptFinding, *, is_fixed: bool) -> KeptFinding:
    return item._replace(entry=msgspec.structs.replace(item.entry, is_fixed=is_fixed, day=today()))


class _Replayer:
    """One worker for each root seed of the earlier findings."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._by_seed: dict[int, SingleWorker] = {}
        self._named = named_by(tools.hello.candidates)

    def close(self) -> None:
        """End the workers."""
        for fresh in self._by_seed.values():
            fresh.close()

    def _fresh(self, seed: int) -> SingleWorker:
        if seed not in self._by_seed:
            self._by_seed[seed] = self._tools.fresh(seed)
        return self._by_seed[seed]

    def _backend(self, candidate: str) -> str:
        return next(item.backend for item in (*self._tools.hello.candidates, of_reference()) if item.name == candidate)

    def shown(self, item: KeptFinding, test: TestInfo) -> Tried | WorkerLostError | Broken | None:
        """Return what a finding shows now, or ``None`` if it is fixed."""
        entry = item.entry
        # A program that is damaged, or names what the configuration does not, is refused before a worker gets it.
        own = {module_in(test.file) if test.file.startswith(SOURCE) else PurePath(test.file).stem}
        is_permitted = named_in(self._named | named_by((), [test.file]) | own)
        recording = decode(item.program, item.tensors, is_permitted)
        if (backend := self._backend(entry.candidate)) != recording.note.backend:
            message = f"candidate '{entry.candidate}' is {backend} now, but was {recording.note.backend} then."
            return Broken(message=message, traceback="")
        fresh = self._fresh(entry.seed)
        request: TryProgram | Confirm
        wanted = entry.operator, entry.kind
        request = TryProgram(
            program=item.program, tensors=item.tensors, candidate=entry.candidate, test=test, wanted=wanted
        )
        again = Confirm(
            test=test, case=entry.case, attempt=entry.attempt, candidate=entry.candidate, twice=True, wanted=wanted
        )
        if has_expectation(recording.program.steps):
            request = again  # The author may have corrected what the test expects, which the program carries.
        answer = fresh.ask(request)
        if isinstance(answer, WorkerLostError):  # A single loss may be the machine's fault.
            answer = fresh.ask(request)
        # A change may mend the smallest program and not the case that it was made of.
        if isinstance(answer, Tried) and answer.verdict.kind is None:
            answer = fresh.ask(again)
        if not isinstance(answer, Tried):
            return answer
        verdict = answer.verdict
        if verdict.outcome == "unsupported":  # Nothing was compared, so nothing says that it is fixed.
            return Broken(message=f"its case is unsupported now: {verdict.oracle}", traceback="")
        return answer if (verdict.operator, verdict.kind) == (entry.operator, entry.kind) else None


def _with_shown_program(
    item: KeptFinding, shown: Tried | WorkerLostError
) -> tuple[KeptFinding, Verdict | WorkerLostError]:
    """Return an earlier finding with the program that the worker has just returned, because the kept one may be forged.

    A lost worker returns no program, so the note's text about what a host ran is left out.
    """
    if isinstance(shown, Tried):
        return item._replace(program=shown.program, tensors=shown.tensors), shown.verdict
    recording = decode(item.program, item.tensors, is_own)
    note = msgspec.structs.replace(recording.note, host=None)
    return item._replace(program=encode_program(replace(recording, note=note))), shown


def regressed(
    regressions: Regressions,
    tests: Mapping[str, TestInfo],
    tools: Tools,
    found: list[Finding],
    *,
    is_over: bool = False,
) -> None:
    """Add the earlier findings that still fail and that no case of this run has shown, one of each identity.

    A finding may show something else by now, for example end its worker. Its identity is what it shows now.

    Args:
        regressions: What became of the earlier findings.
        tests: Tests by id.
        tools: The tools of the run.
        found: The findings of this run; the earlier ones are added to it.
        is_over: Whether nothing may run any more, so that their repros stay unverified.
    """
    known = {finding.identity for finding in found}
    for item, shown in regressions.still:
        seen = _diagnosis(item, shown, tests[item.entry.test], Route.WRITTEN if is_over else Route.WHOLE)
        finding = rendered(seen, tools)
        if finding.identity not in known:  # A known identity already has its folder.
            known.add(finding.identity)
            found.append(_with_program(seen, item, tools))


def _diagnosis(item: KeptFinding, shown: Verdict | WorkerLostError, test: TestInfo, route: Route) -> Diagnosis:
    """Return the diagnosis of what an earlier finding shows now, without its program."""
    entry = item.entry
    lost = shown if isinstance(shown, WorkerLostError) else None
    suspect = Suspect(
        test, entry.candidate, entry.case, entry.attempt, None, entry.profile, 0, 0, (test.id,), lost,
    )  # fmt: skip
    if isinstance(shown, WorkerLostError):
        named = Verdict(outcome="crashed", operator=entry.operator, target=entry.operator)
        shown = crash_verdict(named, shown)
    return Diagnosis(suspect, shown, route, lost=lost, is_confirmed=True, is_shrunk=True, seed=entry.seed)


def _with_program(seen: Diagnosis, item: KeptFinding, tools: Tools) -> Finding:
    """Write a finding with its earlier program, and run its repro alone unless the run is over."""
    try:
        shown = ShownTrial(seen.verdict, _recording(item, tools))
        with closing(tools.fresh()) as fresh:
            return rendered(followed(replace(seen, shown=shown), Inspection(tools, fresh)), tools)
    except ProgramError as error:  # The program came from outside. What it shows was still seen.
        return rendered(seen.noted(f"its program is not shown: {error}"), tools)


def _recording(item: KeptFinding, tools: Tools) -> Recording:
    """Return the earlier program; it comes from outside, and may name only what candidates of this run are made of."""
    recording = decode(item.program, item.tensors, is_own)
    if strange := sorted(own_names(recording.note) - named_by(tools.hello.candidates)):
        message = f"it names {strange[0][:80]!r}, which no candidate of this run is made of."
        raise ProgramError(message)
    rows, note = tools.hello.candidates, recording.note
    options = note.side.options if isinstance(note.side, CompileNote | OnnxRuntimeNote | ExportNote) else {}
    # Options of a compiler may name programs that it runs.
    if not (options in ({}, *map(options_of, rows)) and note.env in ({}, *(row.environ for row in rows))):
        message = "it has options or environment variables that no candidate of this run has."
        raise ProgramError(message)
    return recording


def kept_of(finding: Finding, output: Path) -> KeptFinding | None:
    """Return what the database keeps of a finding; ``None`` if it is not confirmed or has no program."""
    folder = output / FINDINGS / finding.id
    # A flaky finding that is not seen again is not fixed.
    if not finding.confirmed or finding.outcome == "flaky" or is_found_leniency(finding):
        return None
    try:
        program, tensors = (folder / "program.json").read_bytes(), (folder / "tensors.safetensors").read_bytes()
    except OSError:
        return None
    entry = FindingEntry(
        id=finding.id, candidate=finding.candidate, operator=finding.operator, kind=finding.kind, test=finding.test,
        case=finding.case, attempt=finding.attempt, seed=finding.seed, profile=finding.profile, day=today(),
    )  # fmt: skip
    return KeptFinding(entry, program, tensors)

"""Findings of earlier runs are run again before anything else: still there, or fixed and kept as a regression case."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ci_autotest.config import named_by
from ci_autotest.errors import AutotestError, ProgramError
from ci_autotest.findings.crash import crash_verdict
from ci_autotest.findings.database import Entry, Kept, today
from ci_autotest.findings.diagnosis import Diagnosis, Route, rendered
from ci_autotest.findings.stages import followed
from ci_autotest.findings.suspect import Suspect
from ci_autotest.findings.tools import Inspection
from ci_autotest.program.repro.snippet_sides import own_names
from ci_autotest.program.serialize import decode, encode_program
from ci_autotest.report.finding_folders import FINDINGS
from ci_autotest.run.messages import Broken, Confirm, Tried, TryProgram
from ci_autotest.run.worker_loss import WorkerLostError
from ci_autotest.shrink.shrinker import Shown
from ci_autotest.values.result import is_found_leniency
from ci_autotest.values.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ci_autotest.findings.tools import Tools
    from ci_autotest.program.ir import Recording
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.run.single_worker import SingleWorker
    from ci_autotest.values.result import Finding


class Regressions(NamedTuple):
    """Say what became of the findings that were kept.

    Attributes:
        still: Those that show again what they showed.
        fixed: Those that no longer do, and did before.
        kept: All that are kept on, as they are now.
        refused: Sentences about those that cannot be run.
    """

    still: tuple[tuple[Kept, Verdict | WorkerLostError], ...] = ()
    fixed: tuple[Entry, ...] = ()
    kept: tuple[Kept, ...] = ()
    refused: tuple[str, ...] = ()


def replay_kept(
    kept: Sequence[Kept], tests: Mapping[str, TestInfo], candidates: Sequence[str], tools: Tools
) -> Regressions:
    """Run each kept program on its candidate, and its whole case where the program shows nothing any more."""
    own = [item for item in kept if item.entry.test in tests and item.entry.candidate in candidates]
    others = [item for item in kept if item not in own]  # Not part of this run: it says nothing of them.
    still: list[tuple[Kept, Verdict | WorkerLostError]] = []
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
                held += [] if shown.is_refusal else [item]
            elif shown is None:
                fixed += [] if item.entry.is_fixed else [item.entry]
                held.append(_dated(item, is_fixed=True))
            else:
                still.append(_as_shown(item, shown))
                held.append(_dated(item, is_fixed=False))
    return Regressions(tuple(still), tuple(fixed), tuple(held), tuple(refused))


def _dated(item: Kept, *, is_fixed: bool) -> Kept:
    return item._replace(entry=msgspec.structs.replace(item.entry, is_fixed=is_fixed, day=today()))


class _Replayer:
    """Hold one worker for each seed that kept findings come from."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._by_seed: dict[int, SingleWorker] = {}

    def close(self) -> None:
        """End the workers."""
        for fresh in self._by_seed.values():
            fresh.close()

    def _fresh(self, seed: int) -> SingleWorker:
        if seed not in self._by_seed:
            self._by_seed[seed] = self._tools.fresh(seed)
        return self._by_seed[seed]

    def _backend(self, candidate: str) -> str:
        return next(item.backend for item in self._tools.hello.candidates if item.name == candidate)

    def shown(self, item: Kept, test: TestInfo) -> Tried | WorkerLostError | Broken | None:
        """Return what a finding shows again, ``None`` for nothing."""
        entry = item.entry
        recording = decode(item.program, item.tensors)  # refused here, before a worker sees it
        if (backend := self._backend(entry.candidate)) != recording.note.get("backend"):
            told = f"candidate '{entry.candidate}' is {backend} now, and was {recording.note.get('backend')} then."
            return Broken(message=told, traceback="")
        fresh = self._fresh(entry.seed)
        question = TryProgram(program=item.program, tensors=item.tensors, candidate=entry.candidate, test=test)
        answer = fresh.ask(question)
        if isinstance(answer, WorkerLostError):  # Once may be the machine's doing.
            answer = fresh.ask(question)
        if isinstance(answer, Tried) and answer.verdict.kind is None:
            answer = fresh.ask(
                Confirm(test=test, case=entry.case, attempt=entry.attempt, candidate=entry.candidate, twice=True)
            )
        if not isinstance(answer, Tried):
            return answer
        verdict = answer.verdict
        return answer if (verdict.operator, verdict.kind) == (entry.operator, entry.kind) else None


def _as_shown(item: Kept, shown: Tried | WorkerLostError) -> tuple[Kept, Verdict | WorkerLostError]:
    """Return a kept finding with the program as the worker has just told it, for what is kept may not be ours.

    What ended its worker was told by nobody: what its note says that a host ran is left out.
    """
    if isinstance(shown, Tried):
        return item._replace(program=shown.program, tensors=shown.tensors), shown.verdict
    recording = decode(item.program, item.tensors)
    note = {key: value for key, value in recording.note.items() if key != "host"}
    return item._replace(program=encode_program(replace(recording, note=note))), shown


def regressed(
    regressions: Regressions,
    tests: Mapping[str, TestInfo],
    tools: Tools,
    found: list[Finding],
    *,
    is_over: bool = False,
) -> None:
    """Add the findings that are still there and that no case of this run has shown, one of each identity.

    What was wrong may end its worker by now: the identity is that of what it shows, not of what it showed.

    Args:
        regressions: What became of the findings that were kept.
        tests: By id.
        tools: What findings are made with.
        found: Those of this run; they are added to these.
        is_over: Whether nothing is run any more: their repros stay unverified.
    """
    known = {finding.identity for finding in found}
    for item, shown in regressions.still:
        seen = _diagnosis(item, shown, tests[item.entry.test], Route.WRITTEN if is_over else Route.WHOLE)
        finding = rendered(seen, tools)
        if finding.identity not in known:  # Else its folder is the other's.
            known.add(finding.identity)
            found.append(_with_program(seen, item, tools))


def _diagnosis(item: Kept, shown: Verdict | WorkerLostError, test: TestInfo, route: Route) -> Diagnosis:
    """Return what a kept finding shows now, without its program."""
    entry = item.entry
    lost = shown if isinstance(shown, WorkerLostError) else None
    suspect = Suspect(
        test, entry.candidate, entry.case, entry.attempt, None, entry.profile, 0, 0, (test.id,), lost,
    )  # fmt: skip
    if isinstance(shown, WorkerLostError):
        named = Verdict(outcome="crashed", operator=entry.operator, target=entry.operator)
        shown = crash_verdict(named, shown)
    return Diagnosis(suspect, shown, route, lost=lost, is_confirmed=True, is_shrunk=True, seed=entry.seed)


def _with_program(seen: Diagnosis, item: Kept, tools: Tools) -> Finding:
    """Write a finding down with the program that was kept, and run its repro alone unless the run is over."""
    try:
        shown = Shown(seen.verdict, _recording(item, tools))
        with closing(tools.fresh()) as fresh:
            return rendered(followed(replace(seen, shown=shown), Inspection(tools, fresh)), tools)
    except ProgramError as error:  # It came from outside; what it shows is seen all the same.
        return rendered(seen.noted(f"its program is not shown: {error}"), tools)


def _recording(item: Kept, tools: Tools) -> Recording:
    """Return the program that was kept; it comes from outside, and may name what candidates of this run are made of."""
    recording = decode(item.program, item.tensors)
    if strange := sorted(own_names(recording.note) - named_by(tools.hello.candidates)):
        message = f"it names {strange[0][:80]!r}, which no candidate of this run is made of."
        raise ProgramError(message)
    return recording


def kept_of(finding: Finding, output: Path) -> Kept | None:
    """Return what is kept of a finding of this run; ``None`` of what is not confirmed or has no program."""
    folder = output / FINDINGS / finding.id
    if not finding.confirmed or finding.outcome == "flaky" or is_found_leniency(finding):
        return None
    try:
        program, tensors = (folder / "program.json").read_bytes(), (folder / "tensors.safetensors").read_bytes()
    except OSError:
        return None
    entry = Entry(
        id=finding.id, candidate=finding.candidate, operator=finding.operator, kind=finding.kind, test=finding.test,
        case=finding.case, attempt=finding.attempt, seed=finding.seed, profile=finding.profile, day=today(),
    )  # fmt: skip
    return Kept(entry, program, tensors)

"""The diagnosis of a suspect: everything known about it as one value, and the finding made from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.program.serialize import decode
from ci_autotest.program.targets import is_own
from ci_autotest.report import finding_message
from ci_autotest.report.finding_files import versions
from ci_autotest.report.finding_folders import FINDINGS
from ci_autotest.report.finding_message import About, message_lines
from ci_autotest.report.finding_program import shown_program
from ci_autotest.run.messages import Broken, Tried
from ci_autotest.shrink.shrinker import ShownTrial
from ci_autotest.values.verdict import Verdict

if TYPE_CHECKING:
    from ci_autotest.findings.suspect import Suspect
    from ci_autotest.findings.tools import Tools
    from ci_autotest.program.recording import Recording
    from ci_autotest.run.worker_loss import WorkerLostError
    from ci_autotest.values.finding import Finding, NoProgram, Variant


class Route(Enum):
    """The stages that a suspect goes through: a row of the table in ``stages``."""

    DIFFERENCE = "misaligned or lenient"
    PROBE = "off in a probe"
    DIFFERENCE_ALONE = "its smallest program is right in a fresh process"
    SEQUENCE = "wrong after other calls"
    LOSS = "ended its worker"
    LOSS_AFTER_CALLS = "ends its worker after other calls"
    LOSS_AFTER_CASES = "does not end its worker alone"
    LOADER = "a data loader"
    WHOLE = "written down as it is, and its repro is run"
    WRITTEN = "written down as it is"
    SETTLED = "nothing more is done"
    DISMISSED = "no finding"


class Doubt(Enum):
    """Why a finding is flaky, in the words of its headline."""

    NONE = ""
    NOT_REPEATED = "is flaky"
    TIMED_OUT_ONCE = "timed out once"
    SIMULATED_ONLY = "shows on simulated ranks and not on processes"


class RunAgain(Enum):
    """What runs a finding again: its script, the command ``replay``, or nothing."""

    NOTHING = ""
    COMMAND = "replay"
    SCRIPT = "repro.py"


class LossPlace(NamedTuple):
    """Where a worker is lost: the step's index in the body, if known, and whether in its backward pass."""

    step: int | None
    has_backward: bool


NOWHERE: Final = LossPlace(None, has_backward=False)
#: Characters of what a first run did in the result of a flaky case.
_SEEN_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything known about a suspect: identity, verdict, case, program, confirmation and notes.

    Args:
        suspect: The case, and the other cases that hit the same identity.
        verdict: The verdict so far; its operator and kind and the suspect's candidate are the identity.
        route: Which stages follow.
        lost: How its worker was lost last.
        culprit: In which step.
        whole: The program of the whole body, as long as no smaller program is known to show the same.
        shown: The smallest program so far that shows it.
        unshrunk: What showed it when it was confirmed, if it has been shrunk since.
        is_confirmed: Whether a fresh process has shown it again.
        is_shrunk: Whether the shrinker has looked for a smaller program.
        layer: For a compiled candidate, the compiler layer at fault.
        variants: Other smallest programs that show it.
        doubt: Why it is flaky.
        run_again: What runs it again.
        is_verified: Whether its script, run alone, has shown it.
        seed: The root seed of the earlier run that found it; ``None`` for this run's.
        detail: Replaces the verdict's detail; ``None`` keeps it.
        notes: Lines below its message.
        script: The repro of a finding without a recorded program.
        printed: The end of what its test and kernels printed when its case ran again.
        no_program: Why no program fails when it is pasted, if a stage has found that out.
    """

    suspect: Suspect
    verdict: Verdict
    route: Route
    lost: WorkerLostError | None = None
    culprit: LossPlace = NOWHERE
    whole: Recording | None = None
    shown: ShownTrial | None = None
    unshrunk: ShownTrial | None = None
    is_confirmed: bool = False
    is_shrunk: bool = False
    layer: str = ""
    variants: tuple[Variant, ...] = ()
    doubt: Doubt = Doubt.NONE
    run_again: RunAgain = RunAgain.NOTHING
    is_verified: bool = False
    seed: int | None = None
    detail: str | None = None
    notes: tuple[str, ...] = ()
    script: str = ""
    printed: str = ""
    no_program: NoProgram = ""

    @property
    def recording(self) -> Recording | None:
        """The program that the report shows; ``None`` while only the whole body is known."""
        return self.shown.recording if self.shown is not None and self.whole is None else None

    def noted(self, note: str) -> Diagnosis:
        """Return the diagnosis with one more line below its message."""
        return replace(self, notes=(*self.notes, note))

    def settled(self, detail: str | None = None) -> Diagnosis:
        """Return the diagnosis on the route that ends here."""
        return replace(self, route=Route.SETTLED, detail=self.detail if detail is None else detail)

    def doubted(self, detail: str, doubt: Doubt = Doubt.NOT_REPEATED) -> Diagnosis:
        """Return the diagnosis as flaky."""
        return replace(self.settled(detail), doubt=doubt, is_confirmed=False)


def identity_id(diagnosis: Diagnosis) -> str:
    """Return the id of the finding that a diagnosis becomes."""
    # Any seed will do, because the id is made of candidate, operator and kind.
    return _plain(diagnosis, 0).id


def rendered(diagnosis: Diagnosis, tools: Tools) -> Finding:
    """Return the finding of a diagnosis; all of its text is made here."""
    finding = msgspec.structs.replace(
        _plain(diagnosis, tools.seed), not_shrunk=_not_shrunk(diagnosis), no_program=_no_program(diagnosis)
    )
    if diagnosis.recording is not None:
        finding = _with_program(finding, diagnosis.recording, diagnosis.run_again, tools)
    elif diagnosis.script:
        finding = _with_script(finding, diagnosis, tools)
    if diagnosis.doubt is not Doubt.NONE:
        finding = _as_flaky(finding, diagnosis)
    advice = finding_message.advice(finding, diagnosis.recording.note) if diagnosis.recording is not None else []
    return msgspec.structs.replace(
        finding,
        message="\n  ".join([finding.message, *advice, *diagnosis.notes]),
        detail=finding.detail if diagnosis.detail is None else diagnosis.detail,
    )


def _not_shrunk(diagnosis: Diagnosis) -> str:
    """Return why the program of a finding is not the smallest, in words; empty if it is."""
    if diagnosis.is_shrunk:
        return ""
    if diagnosis.doubt is not Doubt.NONE:
        return "it did not show again, and only what does is shrunk"
    if not diagnosis.is_confirmed:
        return "it was not confirmed, and only what is confirmed is shrunk"
    if diagnosis.verdict.kind == "nondeterminism":
        return "a smaller program would show it only by chance"
    if diagnosis.no_program == "calls":
        return "it needs several calls of one body"
    if diagnosis.no_program == "cases":
        return "it needs the cases that ran before it"
    if diagnosis.recording is None:
        return "no program that shows it could be recorded"
    if diagnosis.lost is not None and diagnosis.verdict.outcome == "misaligned":
        return "it ended its process first, and was misaligned when it ran again"
    return "no single step shows it alone"


def _no_program(diagnosis: Diagnosis) -> NoProgram:
    """Return why no program of a finding fails when it is pasted, as far as its diagnosis tells."""
    if diagnosis.no_program:
        return diagnosis.no_program
    if diagnosis.doubt is not Doubt.NONE:
        return "flaky"
    if diagnosis.script or diagnosis.verdict.kind == "randomness":
        return "loader"
    if diagnosis.recording is not None:
        return ""  # The program itself tells.
    return "unrecorded" if diagnosis.is_confirmed else "unconfirmed"


def flaky(suspect: Suspect, again: Tried | Broken | WorkerLostError) -> Diagnosis:
    """Return the diagnosis of a case whose second run showed something else; the detail names both results."""
    verdict = suspect.verdict
    first = f"first run: {_seen_in(verdict)}" if verdict else "first run: lost"
    if isinstance(again, Tried):
        other = again.verdict
        second = f"in a fresh process: {other.outcome}" + (f", {other.operator} ({other.kind})" if other.kind else "")
    elif isinstance(again, Broken):
        second = f"in a fresh process: {again.message}"
    else:
        second = f"in a fresh process the worker {again.reason}"
    seen = verdict or Verdict(outcome="flaky", kind="crash")  # A lost worker leaves no verdict.
    return Diagnosis(suspect, seen, Route.SETTLED).doubted(f"{first}; {second}")


def _seen_in(verdict: Verdict) -> str:
    """Return a first run's result, with what ranks or a side that differs from itself did: nothing else will tell."""
    found = verdict.misalignment
    told = {"rank": found.candidate, "nondeterminism": found.detail}.get(found.kind, "") if found else ""
    return f"{verdict.outcome}, {verdict.operator} ({verdict.kind})" + (f", {told[:_SEEN_CHARS]}" if told else "")


def shown_of(tried: Tried) -> ShownTrial:
    """Return the program and verdict of a worker's answer, decoded and checked."""
    return ShownTrial(tried.verdict, decode(tried.program, tried.tensors, is_own), tuple(tried.draws), tried.profile)


def calls_of(recording: Recording) -> tuple[str, ...]:
    """Return a program's calls and their keywords: programs that differ only in sizes and numbers count as the same."""
    return tuple(
        f"{step.target}({', '.join(sorted(key for key, _ in step.kwargs))})" for _, step in recording.program.calls
    )


def _plain(diagnosis: Diagnosis, seed: int) -> Finding:
    """Return the finding without its program and its notes."""
    suspect = diagnosis.suspect
    about = About(
        candidate=suspect.candidate, test=suspect.test.id, name=suspect.test.name, case=suspect.case,
        seed=seed if diagnosis.seed is None else diagnosis.seed, profile=suspect.profile, cases=suspect.cases,
        of_cases=suspect.of_cases, tests=suspect.tests, location=suspect.test.location, hits=suspect.hits,
        # It is negative while it is unknown, which a report cannot say.
        attempt=max(suspect.attempt, 0),
    )  # fmt: skip
    # A shrunk program is too small to show a pattern, so the finding keeps that of the case as it was found.
    seen = suspect.verdict if suspect.verdict is not None else diagnosis.verdict
    found = suspect.verdict.pattern if suspect.verdict is not None else None
    at = diagnosis.verdict.misalignment
    if at is not None and diagnosis.detail is not None:
        at = msgspec.structs.replace(at, detail=diagnosis.detail)
    verdict = msgspec.structs.replace(
        diagnosis.verdict, pattern=found, notes=seen.notes, known=seen.known, misalignment=at
    )
    return msgspec.structs.replace(
        finding_message.finding_of(verdict, about),
        confirmed=diagnosis.is_confirmed, shrunk=diagnosis.is_shrunk, layer=diagnosis.layer,
        variants=diagnosis.variants, repro_verified=diagnosis.is_verified, earlier=diagnosis.seed is not None,
        output=_printed(diagnosis),
    )  # fmt: skip


def _printed(diagnosis: Diagnosis) -> str:
    """Return what the case printed, as it was found if something was printed then.

    A worker that is killed from outside while it prints its stack has printed none; when it is lost again, it does.
    """
    losses = (diagnosis.suspect.lost, diagnosis.lost)
    printed = [*(lost.output for lost in losses if lost is not None), diagnosis.printed]
    return next(filter(None, map(str.strip, printed)), "")


def _with_program(finding: Finding, recording: Recording, run_again: RunAgain, tools: Tools) -> Finding:
    """Return the finding with its program, the program's size, and the command that runs it again."""
    recording, program = tools.with_module_folders(recording), recording.program
    repro = f"{FINDINGS}/{finding.id}/repro.py" if run_again is RunAgain.SCRIPT else None
    shown = shown_program(recording, msgspec.structs.replace(finding, repro=repro), known=finding.no_program)
    sizes = [size for spec in program.inputs.values() for size in spec.shape]
    folder = f"{tools.shown.rstrip('/')}/{FINDINGS}/{finding.id}" if run_again is not RunAgain.NOTHING else ""
    updated = msgspec.structs.replace(
        finding,
        steps=len(program.calls),
        dims_max=max(sizes, default=0),
        program=shown.text,
        no_program=shown.reason,
        repro=repro,
        replay=f"{tools.replay} {folder}" if folder else "",
        versions=versions(recording),
        calls=calls_of(recording),
    )
    return msgspec.structs.replace(updated, message="\n".join(message_lines(updated, folder)))


def _with_script(finding: Finding, diagnosis: Diagnosis, tools: Tools) -> Finding:
    """Return the finding with the place of its repro, which is too long to be shown."""
    is_written = diagnosis.run_again is RunAgain.SCRIPT
    folder = f"{tools.shown.rstrip('/')}/{FINDINGS}/{finding.id}" if is_written else ""
    updated = msgspec.structs.replace(finding, repro=f"{FINDINGS}/{finding.id}/repro.py" if is_written else None)
    return msgspec.structs.replace(updated, message="\n".join(message_lines(updated, folder)))


def _as_flaky(finding: Finding, diagnosis: Diagnosis) -> Finding:
    subject = f"{finding.operator} on {finding.candidate}"
    headline = f"{subject} {diagnosis.doubt.value}"
    lines = [f"flaky: {subject}", diagnosis.detail or ""]
    if diagnosis.doubt is Doubt.TIMED_OUT_ONCE:
        lines = [f"flaky: {headline}", f"{finding.candidate_seen}; {diagnosis.detail}"]
    return msgspec.structs.replace(finding, outcome="flaky", headline=headline, message="\n  ".join(lines))

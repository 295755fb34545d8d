"""A finding as a value and as a folder: made from a verdict, written down, its repro run alone."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest import telling
from ci_autotest.errors import OutputError
from ci_autotest.judgement import Verdict
from ci_autotest.program.ir import PLACEHOLDER, Recording, TensorSpec
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.report.artifacts import FINDINGS, write_finding
from ci_autotest.report.markdown import render_finding
from ci_autotest.run.fresh import Fresh
from ci_autotest.run.lost import WorkerLostError
from ci_autotest.run.messages import Broken, Tried, TryProgram
from ci_autotest.session.repros import repro_script, versions
from ci_autotest.shrink.shrinker import Shown
from ci_autotest.telling import About, display_program, message_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ci_autotest.result import Finding
    from ci_autotest.run.executor import Worker
    from ci_autotest.run.messages import Hello, TestInfo
    from ci_autotest.run.nursery import Nursery
    from ci_autotest.session.ledger import Suspect

_REPRO_TIMEOUT_S: Final = 120.0
_REPRO_LEAST_S: Final = 5.0
_OUR_FAULT: Final = (
    "run alone it ended with status 0, but the saved program fails again in a fresh process: the fault is in "
    "the script that ci-autotest wrote; use ci-autotest replay"
)


@dataclass(slots=True)
class Allowance:
    """What may still be spent on confirming, shrinking and running repros alone.

    Args:
        deadline: Monotonic seconds after which nothing is asked or tried any longer; ``None``: never.
        repros_s: Seconds left for running repros alone; beyond it they are marked unverified.
    """

    deadline: float | None = None
    repros_s: float = 300.0

    @property
    def is_spent(self) -> bool:
        """Whether no further finding is looked at."""
        return self.deadline is not None and time.monotonic() > self.deadline

    @property
    def repro_s(self) -> float:
        """Seconds that one repro may take: a few when the deadline is past, none when all have taken too long."""
        if self.repros_s <= 0:
            return 0.0
        left = _REPRO_TIMEOUT_S if self.deadline is None else self.deadline - time.monotonic()
        return max(_REPRO_LEAST_S, min(_REPRO_TIMEOUT_S, left))


@dataclass(frozen=True, slots=True)
class Workshop:
    """What findings are made with.

    Args:
        start: Starts a fresh worker.
        nursery: Runs repros alone.
        hello: What a worker is told first.
        output: The output folder.
        folders: Where the candidates' modules are looked for.
        seed: Root seed.
        environ: For the repro's own process.
        case_timeout_s: Seconds that a case may take.
        shown: The output folder as the user wrote it.
        replay: What runs a finding's program again, but for its folder.
        allowance: For looking at them.
        unwritten: What could not be written, in sentences: the run goes on, and tells them at its end.
    """

    start: Callable[[], Worker]
    nursery: Nursery
    hello: Hello
    output: Path
    folders: tuple[Path, ...]
    seed: int
    environ: Mapping[str, str]
    case_timeout_s: float = 60.0
    shown: str = "autotest-report"
    replay: str = "ci-autotest replay"
    allowance: Allowance = field(default_factory=Allowance)
    unwritten: list[str] = field(default_factory=list)

    def fresh(self, seed: int | None = None) -> Fresh:
        """Return a worker for one question at a time; with ``seed``, of another run's root seed."""
        hello = self.hello if seed is None else msgspec.structs.replace(self.hello, seed=seed)
        return Fresh(self.start, hello, self.allowance.deadline)


def finding_of(suspect: Suspect, verdict: Verdict, workshop: Workshop) -> Finding:
    """Return a finding without its program."""
    about = About(
        candidate=suspect.candidate, test=suspect.test.id, name=suspect.test.name, case=suspect.case,
        seed=workshop.seed, profile=suspect.profile, cases=suspect.cases, of_cases=suspect.of_cases,
        tests=suspect.tests, location=suspect.test.location, hits=suspect.hits, attempt=max(suspect.attempt, 0),
    )  # fmt: skip
    return telling.finding_of(verdict, about)


def flaky(suspect: Suspect, again: Tried | Broken | WorkerLostError, workshop: Workshop) -> Finding:
    """Return a finding whose second run showed something else; both results are told."""
    verdict = suspect.verdict
    first = f"first run: {verdict.outcome}, {verdict.operator} ({verdict.kind})" if verdict else "first run: lost"
    if isinstance(again, Tried):
        other = again.verdict
        second = f"in a fresh process: {other.outcome}" + (f", {other.operator} ({other.kind})" if other.kind else "")
    elif isinstance(again, Broken):
        second = f"in a fresh process: {again.message}"
    else:
        second = f"in a fresh process the worker {again.reason}"
    base = finding_of(suspect, verdict or Verdict(outcome="flaky", kind="crash"), workshop)
    detail = f"{first}; {second}"
    text = "\n".join([f"flaky: {base.operator or base.test} on {base.candidate}", f"  {detail}"])
    return msgspec.structs.replace(
        base,
        outcome="flaky",
        detail=detail,
        message=text,
        headline=f"{base.operator} on {base.candidate} is flaky",
    )


def with_program(finding: Finding, recording: Recording, workshop: Workshop, *, has_repro: bool = True) -> Finding:
    """Return a finding with the program that shows it, its size, and the lines that run it again.

    Args:
        finding: Without them.
        recording: The program.
        workshop: Where its folder is.
        has_repro: Whether a script is written too; else the line that runs it again is of ``replay``.
    """
    program = recording.program
    specs = [step.args[0] for step in program.body if step.op == PLACEHOLDER]
    sizes = [size for spec in specs if isinstance(spec, TensorSpec) for size in spec.shape]
    folder = f"{workshop.shown.rstrip('/')}/{FINDINGS}/{finding.id}"
    updated = msgspec.structs.replace(
        finding,
        steps=len(program.calls),
        dims_max=max(sizes, default=0),
        program=display_program(recording, finding),
        repro=f"{FINDINGS}/{finding.id}/repro.py" if has_repro else None,
        replay=f"{workshop.replay} {folder}",
        versions=versions(recording),
        calls=calls_of(recording),
    )
    return msgspec.structs.replace(updated, message="\n".join(message_lines(updated, folder)))


def calls_of(recording: Recording) -> tuple[str, ...]:
    """Return what makes two smallest programs the same: calls and their keywords, whatever sizes and numbers."""
    return tuple(
        f"{step.target}({', '.join(sorted(key for key, _ in step.kwargs))})" for _, step in recording.program.calls
    )


def write(finding: Finding, recording: Recording, workshop: Workshop, *, repro: bool = False) -> str:
    """Write the finding's folder, whole; with ``repro``, the script too. Return why it could not be, in a sentence."""
    note = {
        **recording.note, "test": finding.test, "case": finding.case, "seed": finding.seed, "kind": finding.kind,
        "operator": finding.operator,
    }  # fmt: skip
    noted = replace(recording, note=note)
    files = {
        "program.json": encode_program(noted),
        "tensors.safetensors": encode_tensors(noted),
        "README.md": render_finding(finding).encode(),
    }
    if repro:
        folder = workshop.output / FINDINGS / finding.id
        files["repro.py"] = repro_script(noted, finding, folder, workshop.folders, workshop.case_timeout_s).encode()
    try:
        write_finding(workshop.output / FINDINGS / finding.id, files)
    except OutputError as error:
        return str(error)
    return ""


def written(finding: Finding, recording: Recording, workshop: Workshop, test: TestInfo) -> Finding:
    """Write a finding down with its repro, run that alone, and write down what came of it.

    A repro that says that all is well is not believed, and nor is the finding: its saved program is run once more.
    """
    if why := write(finding, recording, workshop, repro=True):
        return without_folder(finding, why, workshop)
    status = _repro_status(workshop, finding.id)
    again = _second_confirmation(finding, workshop, test) if status == 0 else None
    if isinstance(again, Tried) and again.verdict.outcome != "misaligned":
        finding = _not_repeated(finding, again)
    elif status != 1:
        told = _OUR_FAULT if isinstance(again, Tried | WorkerLostError) else _unverified(status)
        finding = msgspec.structs.replace(finding, message=f"{finding.message}\n  repro not verified: {told}")
    finding = msgspec.structs.replace(finding, repro_verified=status == 1)
    write(finding, recording, workshop, repro=True)
    return finding


def without_folder(finding: Finding, why: str, workshop: Workshop) -> Finding:
    """Return a finding whose folder could not be written: the run goes on, and nothing of it can be run again."""
    workshop.unwritten.append(why)
    told = "\n".join(line for line in finding.message.splitlines() if not line.startswith("  replay: "))
    return msgspec.structs.replace(
        finding,
        repro=None,
        replay="",
        message=f"{told}\n  its smallest program is shown here only: its folder could not be written",
    )


def _second_confirmation(finding: Finding, workshop: Workshop, test: TestInfo) -> Tried | Broken | WorkerLostError:
    """Return what the saved program of a finding shows in a process of its own."""
    folder = workshop.output / FINDINGS / finding.id
    program, tensors = (folder / name for name in ("program.json", "tensors.safetensors"))
    with closing(workshop.fresh(finding.seed)) as fresh:
        return fresh.ask(
            TryProgram(
                program=program.read_bytes(), tensors=tensors.read_bytes(), candidate=finding.candidate, test=test
            )
        )


def _not_repeated(finding: Finding, again: Tried) -> Finding:
    """Return a finding that neither its repro nor its saved program shows again."""
    second = f"in a fresh process its saved program is {again.verdict.outcome}, and its repro ended with status 0"
    detail = f"first run: {finding.outcome}, {finding.operator} ({finding.kind}); {second}"
    return msgspec.structs.replace(
        finding, outcome="flaky", confirmed=False, detail=detail,
        message=f"flaky: {finding.operator} on {finding.candidate}\n  {detail}",
        headline=f"{finding.operator} on {finding.candidate} is flaky",
    )  # fmt: skip


def _repro_status(workshop: Workshop, finding: str) -> int | None:
    """Return what the repro, run alone, ends with: 1 where it says that the candidate is misaligned."""
    begun = time.monotonic()
    try:
        return run_repro(workshop, workshop.output / FINDINGS / finding / "repro.py")
    finally:
        workshop.allowance.repros_s -= time.monotonic() - begun


def _unverified(status: int | None) -> str:
    return (
        "it was not run to its end in the time left" if status is None else f"run alone it ended with status {status}"
    )


def _python_path(environ: Mapping[str, str]) -> list[str]:
    """Return the folders of PYTHONPATH, which an isolated interpreter does not read."""
    return [folder for folder in environ.get("PYTHONPATH", "").split(os.pathsep) if folder]


def run_repro(workshop: Workshop, script: Path) -> int | None:
    """Return the exit status of a repro without this package, isolated; ``None`` when it does not end in time."""
    timeout_s = workshop.allowance.repro_s
    return workshop.nursery.run_script(script, _python_path(workshop.environ), timeout_s) if timeout_s else None


def shown_of(tried: Tried) -> Shown:
    """Return what a worker tried, decoded and checked."""
    return Shown(tried.verdict, decode(tried.program, tried.tensors), tuple(tried.draws), tried.profile)

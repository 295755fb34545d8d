"""A finding as a value and as a folder: made from a verdict, written down, its repro run alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.program.ir import PLACEHOLDER, Recording, TensorSpec
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.report.artifacts import FINDINGS, write_finding
from ci_autotest.report.markdown import render_finding
from ci_autotest.result import Finding, Verdict
from ci_autotest.run.messages import Broken, Tried
from ci_autotest.run.process import resident_bytes, worker_environ
from ci_autotest.session.telling import display_program, headline, message_lines, repro_script
from ci_autotest.shrink.shrinker import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ci_autotest.run.executor import Worker
    from ci_autotest.run.lost import WorkerLostError
    from ci_autotest.run.messages import Hello
    from ci_autotest.session.ledger import Suspect

_REPRO_TIMEOUT_S: Final = 120.0
_REPRO_LEAST_S: Final = 5.0
_LOOK_S: Final = 0.05
#: The script is run as a user without this package would: isolated, and with the package hidden.
_HIDDEN: Final = (
    "import runpy, sys; sys.modules['ci_autotest'] = None; sys.path += sys.argv[2:]; script = sys.argv[1]; "
    "sys.argv[1:] = []; runpy.run_path(script, run_name='__main__')"
)


@dataclass(frozen=True, slots=True)
class Workshop:
    """What findings are made with.

    Args:
        start: Starts a worker.
        hello: What it is told first.
        output: The output folder.
        folders: Where the candidates' modules are looked for.
        seed: Root seed.
        environ: For the repro's own process.
        case_timeout_s: Seconds that a case may take.
        shown: The output folder as the user wrote it.
        python: Interpreter of the repro.
        deadline: Monotonic seconds after which no finding is looked at any longer; ``None``: never.
        memory_bytes: Resident memory that a repro may hold; 0: no limit.
    """

    start: Callable[[], Worker]
    hello: Hello
    output: Path
    folders: tuple[Path, ...]
    seed: int
    environ: Mapping[str, str]
    case_timeout_s: float = 60.0
    shown: str = "autotest-report"
    python: str = sys.executable
    deadline: float | None = None
    memory_bytes: int = 0


def finding_of(suspect: Suspect, verdict: Verdict, workshop: Workshop) -> Finding:
    """Return a finding without its program."""
    found = verdict.misalignment
    difference = found.difference if found is not None else None
    operator = verdict.operator or suspect.test.name
    kind = verdict.kind or "value"
    identity = _identity_id(suspect.candidate, operator, kind)
    finding = Finding(
        id=identity, candidate=suspect.candidate, operator=operator, target=verdict.target or operator, kind=kind,
        blame=verdict.blame, outcome=verdict.outcome if verdict.outcome != "not_run" else "misaligned",
        test=suspect.test.id, case=suspect.case, attempt=max(suspect.attempt, 0), seed=workshop.seed,
        profile=suspect.profile,
        greatest_absolute_difference=difference.greatest_absolute if difference else None,
        greatest_relative_difference=difference.greatest_relative if difference else None,
        greatest_ulp_difference=difference.greatest_ulp if difference else None,
        first_index=difference.first_index if difference else None,
        first_pair=difference.first_pair if difference else None,
        where=found.what if found else "", candidate_seen=found.candidate if found else "",
        reference_seen=found.reference if found else "", detail=found.detail if found else "", difference=difference,
        oracle=verdict.oracle, oracle_value=verdict.oracle_value, accumulated=verdict.accumulated,
        cases=suspect.cases, of_cases=max(suspect.cases, suspect.of_cases), tests=suspect.tests,
        location=suspect.test.location,
    )  # fmt: skip
    lines = message_lines(finding)
    return msgspec.structs.replace(finding, headline=headline(finding), message="\n".join(lines))


def _identity_id(candidate: str, operator: str, kind: str) -> str:
    name = (
        "".join(c if c.isascii() and c.isalnum() else "_" for c in operator.rpartition(".")[2].lower()).strip("_")
        or "case"
    )
    digest = blake2b(f"{candidate}\0{operator}\0{kind}".encode(), digest_size=3).hexdigest()
    return f"{name[:60]}-{digest}"


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


def with_program(finding: Finding, recording: Recording, workshop: Workshop) -> Finding:
    """Return a finding with the program that shows it, its size, and the lines that run it again."""
    program = recording.program
    specs = [step.args[0] for step in program.body if step.op == PLACEHOLDER]
    sizes = [size for spec in specs if isinstance(spec, TensorSpec) for size in spec.shape]
    folder = f"{workshop.shown.rstrip('/')}/{FINDINGS}/{finding.id}"
    updated = msgspec.structs.replace(
        finding,
        steps=len(program.calls),
        dims_max=max(sizes, default=0),
        program=display_program(recording, finding),
        repro=f"{FINDINGS}/{finding.id}/repro.py",
        replay=f"ci-autotest replay {folder}",
    )
    return msgspec.structs.replace(updated, message="\n".join(message_lines(updated, folder)))


def write(finding: Finding, recording: Recording, workshop: Workshop, *, repro: bool = False) -> None:
    """Write the finding's folder, whole; with ``repro``, the script too."""
    note = {
        **recording.note, "test": finding.test, "case": finding.case, "seed": finding.seed, "kind": finding.kind,
        "operator": finding.operator,
    }  # fmt: skip
    noted = Recording(recording.program, recording.tensors, note, recording.expected)
    files = {
        "program.json": encode_program(noted),
        "tensors.safetensors": encode_tensors(noted),
        "README.md": render_finding(finding).encode(),
    }
    if repro:
        folder = workshop.output / FINDINGS / finding.id
        files["repro.py"] = repro_script(noted, finding, folder, workshop.folders, workshop.case_timeout_s).encode()
    write_finding(workshop.output / FINDINGS / finding.id, files)


def is_verified(workshop: Workshop, finding: str) -> bool:
    """Whether the repro, run alone and isolated, says that the candidate is misaligned."""
    return run_repro(workshop, workshop.output / FINDINGS / finding / "repro.py") == 1


def _python_path(environ: Mapping[str, str]) -> list[str]:
    """Return the folders of PYTHONPATH, which an isolated interpreter does not read."""
    return [folder for folder in environ.get("PYTHONPATH", "").split(os.pathsep) if folder]


def run_repro(workshop: Workshop, script: Path) -> int | None:
    """Return the exit status of a repro in an interpreter without this package; ``None`` when it does not end.

    What the kernel starts is ended with it; its output goes to a file, because a child that lives on would hold a pipe.
    """
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            [workshop.python, "-I", "-c", _HIDDEN, str(script), *_python_path(workshop.environ)],
            env=worker_environ(workshop.environ),
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            return _status(child, _left_s(workshop), workshop.memory_bytes)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _status(child: subprocess.Popen[bytes], timeout_s: float, memory_bytes: int) -> int | None:
    """Return the exit status of a process, ``None`` when it takes too long or too much memory."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(_LOOK_S)
        if memory_bytes and resident_bytes(child.pid) > memory_bytes:
            return None
    return None


def _left_s(workshop: Workshop) -> float:
    """Return the seconds that a repro may take: a few, even when the budget is spent."""
    if workshop.deadline is None:
        return _REPRO_TIMEOUT_S
    return max(_REPRO_LEAST_S, min(_REPRO_TIMEOUT_S, workshop.deadline - time.monotonic()))


def shown_of(tried: Tried) -> Shown:
    """Return what a worker tried, decoded and checked."""
    return Shown(tried.verdict, decode(tried.program, tried.tensors), tuple(tried.draws), tried.profile)

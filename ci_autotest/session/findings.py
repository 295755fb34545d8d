"""From failure to finding: run again in a fresh process, written down, shrunk, given a repro that is run alone."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.errors import is_own
from ci_autotest.program.ir import PLACEHOLDER, Recording, TensorSpec
from ci_autotest.program.serialize import decode, encode_program, encode_tensors
from ci_autotest.report.artifacts import FINDINGS, remove_finding, write_finding
from ci_autotest.report.markdown import render_finding
from ci_autotest.result import Finding, Misalignment, Verdict
from ci_autotest.run.messages import Broken, Confirm, Record, Tried, TryProgram
from ci_autotest.run.pool import Fresh
from ci_autotest.run.process import WorkerLostError, worker_environ
from ci_autotest.session.telling import display_program, headline, message_lines, repro_script
from ci_autotest.shrink.data import zeroed
from ci_autotest.shrink.shrinker import Redraw, Shown, Shrinker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ci_autotest.run.messages import Hello
    from ci_autotest.run.process import WorkerProcess
    from ci_autotest.session.ledger import Suspect
from ci_autotest.shrink.shrinker import Proposal

#: Findings that are confirmed and shrunk; the rest are reported unconfirmed.
CONFIRMED_AT_MOST: Final = 50
_REPRO_TIMEOUT_S: Final = 120
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
    """

    start: Callable[[], WorkerProcess]
    hello: Hello
    output: Path
    folders: tuple[Path, ...]
    seed: int
    environ: Mapping[str, str]
    case_timeout_s: float = 60.0
    shown: str = "autotest-report"
    python: str = sys.executable


def make_finding(suspect: Suspect, workshop: Workshop) -> Finding:
    """Confirm, localize, shrink and write down one suspect; its folder is whole after each stage."""
    fresh = Fresh(workshop.start, workshop.hello)
    try:
        if suspect.lost is not None:
            return _lost(suspect, workshop, fresh)
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
        return _crash(suspect, Verdict(outcome="crashed", target="its test"), suspect.lost, workshop)
    return _finding(suspect, suspect.verdict or Verdict(outcome="misaligned"), workshop)


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
        return msgspec.structs.replace(_finding(suspect, verdict, workshop), confirmed=same)
    if isinstance(again, WorkerLostError):
        return _lost(suspect._replace(lost=again), workshop, fresh)
    if isinstance(again, Broken):
        return msgspec.structs.replace(_finding(suspect, verdict, workshop), detail=f"not confirmed: {again.message}")
    if _key(again.verdict) != _key(verdict):
        return _flaky(suspect, again, workshop)
    shown = _shown(again)
    whole = decode(again.whole_program, again.whole_tensors)
    finding = msgspec.structs.replace(_finding(suspect, again.verdict, workshop), confirmed=True)
    _write(finding, whole, workshop)
    return _shrunk(suspect, _shrink(suspect, shown, fresh), workshop)


def _shrunk(suspect: Suspect, best: Shown, workshop: Workshop) -> Finding:
    finding = msgspec.structs.replace(_finding(suspect, best.verdict, workshop), confirmed=True, shrunk=True)
    finding = _with_program(finding, best.recording, workshop)
    _write(finding, best.recording, workshop, repro=True)
    verified = _verified(workshop, finding.id)
    finding = msgspec.structs.replace(finding, repro_verified=verified)
    _write(finding, best.recording, workshop, repro=True)
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
    return _shown(answer) if isinstance(answer, Tried) and answer.program else None


def _shown(tried: Tried) -> Shown:
    return Shown(tried.verdict, decode(tried.program, tried.tensors), tuple(tried.draws), tried.profile)


def _key(verdict: Verdict) -> tuple[str, str, str | None]:
    return verdict.outcome, verdict.operator, verdict.kind


def _flaky(suspect: Suspect, again: Tried | Broken | WorkerLostError, workshop: Workshop) -> Finding:
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
    base = _finding(suspect, verdict or Verdict(outcome="flaky", kind="crash"), workshop)
    detail = f"{first}; {second}"
    text = "\n".join([f"flaky: {base.operator or base.test} on {base.candidate}", f"  {detail}"])
    return msgspec.structs.replace(
        base,
        outcome="flaky",
        detail=detail,
        message=text,
        headline=f"{base.operator} on {base.candidate} is flaky",
    )


def _lost(suspect: Suspect, workshop: Workshop, fresh: Fresh) -> Finding:
    """Make a finding of a worker that was lost: the program from the reference alone, then the step, then that step."""
    lost = suspect.lost
    assert lost is not None  # noqa: S101 - the caller looked
    recorded = fresh.ask(
        Record(
            test=suspect.test,
            case=suspect.case,
            attempt=suspect.attempt if suspect.attempt >= 0 else None,
            candidate=suspect.candidate,
        )
    )
    if not isinstance(recorded, Tried):
        return _flaky(suspect, recorded, workshop)
    suspect = suspect._replace(attempt=recorded.attempt, profile=recorded.profile)
    shown = _shown(recorded)
    first = _crash(suspect, recorded.verdict, lost, workshop)
    _write(first, shown.recording, workshop)
    again = fresh.ask(
        Confirm(
            test=suspect.test,
            case=suspect.case,
            attempt=suspect.attempt,
            candidate=suspect.candidate,
        )
    )
    if not isinstance(again, WorkerLostError):
        return _flaky(suspect._replace(verdict=Verdict(outcome=first.outcome, operator=first.operator,
                                                       kind=first.kind)), again, workshop)  # fmt: skip
    if recorded.verdict.kind == "leniency":
        # The reference rejects it: there is nothing to isolate, and no repro could recompute what it gives.
        told = msgspec.structs.replace(first, confirmed=True, program=display_program(shown.recording, first))
        _write(told, shown.recording, workshop)
        return msgspec.structs.replace(told, detail=f"the reference rejects this input; {told.detail}".rstrip("; "))
    step = again.spot.step if again.spot.step >= 0 else None
    alone = fresh.ask(
        Record(
            test=suspect.test,
            case=suspect.case,
            attempt=suspect.attempt,
            candidate=suspect.candidate,
            step=step,
        )
    )
    if isinstance(alone, Tried):
        finding = msgspec.structs.replace(_crash(suspect, alone.verdict, again, workshop), confirmed=True)
        small = _shown(alone)
        program = TryProgram(program=alone.program, tensors=alone.tensors, candidate=suspect.candidate)
        if finding.id != first.id:
            remove_finding(workshop.output / FINDINGS / first.id)
        cut = step is not None and isinstance(fresh.ask(program), WorkerLostError)
        kept = small if cut else shown
        if cut:
            kept = _with_zeros(kept, suspect, fresh)
        finding = _with_program(finding, kept.recording, workshop)
        finding = msgspec.structs.replace(finding, shrunk=cut)
        _write(finding, kept.recording, workshop, repro=True)
        finding = msgspec.structs.replace(finding, repro_verified=_verified(workshop, finding.id))
        _write(finding, kept.recording, workshop, repro=True)
        return finding
    return msgspec.structs.replace(first, confirmed=True)


def _with_zeros(shown: Shown, suspect: Suspect, fresh: Fresh) -> Shown:
    """Return the program with zeros for data, where the candidate ends its process on those too: one more restart."""
    plain = zeroed(shown.recording)
    answer = fresh.ask(
        TryProgram(program=encode_program(plain), tensors=encode_tensors(plain), candidate=suspect.candidate)
    )
    return replace(shown, recording=plain) if isinstance(answer, WorkerLostError) else shown


def _crash(suspect: Suspect, verdict: Verdict, lost: WorkerLostError, workshop: Workshop) -> Finding:
    kind, outcome = ("timeout", "timed_out") if lost.timed_out else ("crash", "crashed")
    where = "in its backward pass" if lost.spot.step == -2 else f"in {verdict.target}"  # noqa: PLR2004 - IN_BACKWARD
    misalignment = Misalignment(
        kind=kind, step=verdict.step, what=where, candidate=f"the worker {lost.reason}", reference="returns",  # type: ignore[arg-type]
        detail=_where_it_died(lost.output),
    )  # fmt: skip
    told = msgspec.structs.replace(
        verdict, outcome=outcome, kind=kind, blame="candidate", misalignment=misalignment,
        oracle="the reference rejects this input; it does not end its process"
        if verdict.kind == "leniency"
        else "the reference runs the same program to its end",
    )  # fmt: skip
    return _finding(suspect, told, workshop)


def _where_it_died(output: str) -> str:
    """Return the innermost frame of the user's that the fault handler printed, else the last line that was printed."""
    frames = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', output)
    own = [f for f in frames if "site-packages" not in f[0] and "/lib/python" not in f[0] and not is_own(f[0])]
    if own:
        file, line, name = own[0]
        return f"{Path(file).name}, line {line} in {name}"
    printed = [text for text in output.strip().splitlines() if not text.startswith(("  File", "Current thread"))]
    return f"it printed: {printed[-1][:300]}" if printed and not frames else ""


def _finding(suspect: Suspect, verdict: Verdict, workshop: Workshop) -> Finding:
    """Return a finding without its program."""
    found = verdict.misalignment
    difference = found.difference if found is not None else None
    operator = verdict.operator or suspect.test.name
    kind = verdict.kind or "value"
    identity = _identity_id(suspect.candidate, operator, kind)
    finding = Finding(
        id=identity, candidate=suspect.candidate, operator=operator, target=verdict.target or operator, kind=kind,
        blame=verdict.blame, outcome=verdict.outcome if verdict.outcome != "not_run" else "misaligned",
        test=suspect.test.id, case=suspect.case, seed=workshop.seed, profile=suspect.profile,
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


def _with_program(finding: Finding, recording: Recording, workshop: Workshop) -> Finding:
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


def _write(finding: Finding, recording: Recording, workshop: Workshop, *, repro: bool = False) -> None:
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


def _verified(workshop: Workshop, finding: str) -> bool:
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
            return child.wait(_REPRO_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

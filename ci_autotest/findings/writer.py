"""Stages that write the folder of a finding and its repro, and run the repro alone."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import OutputError
from ci_autotest.findings.diagnosis import Diagnosis, Route, RunAgain, identity_id, rendered
from ci_autotest.findings.ranks import with_own_ranks
from ci_autotest.program.note import ModuleNote
from ci_autotest.program.repro.operator_modules import operator_modules
from ci_autotest.program.repro.snippet_sides import own_names
from ci_autotest.report.finding_files import finding_files, noted_case, pasted_script, repro_script
from ci_autotest.report.finding_folders import FINDINGS, remove_finding, write_finding
from ci_autotest.run.messages import Broken, Tried, TryProgram
from ci_autotest.run.worker_loss import WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.findings.tools import Inspection, Tools
    from ci_autotest.program.recording import Recording

#: Stands for the status of a script that was not run, because its candidate runs in a sandbox only.
_OUTSIDE: Final = -1000
_OUR_FAULT: Final = (
    "run alone it ended with status 0, but the saved program fails again in a fresh process. What the kernel remembers "
    "or finds in memory may differ there, or the fault is in the script that ci-autotest wrote; use ci-autotest replay"
)
_PACKAGE: Final = __name__.partition(".")[0].encode()
NO_FOLDER: Final = "its smallest program is shown here only: its folder could not be written"


def save(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Write what is known so far, before anything that may end the run; a later stage reports a full disk."""
    # A confirmed finding of the same identity keeps its folder.
    if identity_id(diagnosis) not in inspection.confirmed:
        _write_folder(_with_means(diagnosis), inspection.tools)
    return diagnosis


def write_program(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Write a program for reading only; it shows nothing when it runs by itself."""
    if identity_id(diagnosis) in inspection.confirmed:
        return diagnosis
    return _unless_refused(diagnosis, _write_folder(diagnosis, inspection.tools), inspection.tools)


def write(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Write the program, and its repro if a script can load its candidate."""
    able = _with_means(diagnosis)
    return _unless_refused(able, _write_folder(able, inspection.tools), inspection.tools)


def verify(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Run the repro alone, then the text that is shown for the finding, and write the results.

    If the repro does not fail, either the repro or the finding is wrong: the saved program runs once more to decide.
    """
    if diagnosis.run_again is not RunAgain.SCRIPT:
        return diagnosis
    tools = inspection.tools
    status = _script_status(diagnosis, tools)
    starting = with_own_ranks(diagnosis, status, inspection)
    if starting is not None:
        diagnosis = starting
        _write_folder(diagnosis, tools)
        status = _script_status(diagnosis, tools)
    # A script that ended with 2 or was not run says nothing about the finding.
    again = _saved_program(diagnosis, tools) if status == 0 else None
    if isinstance(again, Tried) and again.verdict.outcome != "misaligned":
        if diagnosis.route is Route.DIFFERENCE and diagnosis.unshrunk is not None:
            return replace(diagnosis, route=Route.DIFFERENCE_ALONE)
        diagnosis = _not_repeated(diagnosis, again, tools)
    elif status != 1:  # Only 1 means misaligned: the script did not get as far as a comparison.
        reason = _OUR_FAULT if isinstance(again, Tried | WorkerLostError) else unverified(status)
        diagnosis = diagnosis.noted(f"repro not verified: {reason}")
    diagnosis = _with_shown_checked(replace(diagnosis, is_verified=status == 1), tools)
    _write_folder(diagnosis, tools)
    return diagnosis


def _script_status(diagnosis: Diagnosis, tools: Tools) -> int | None:
    if tools.is_sandboxed(diagnosis.suspect.candidate):
        return _OUTSIDE
    script = tools.output / FINDINGS / identity_id(diagnosis) / "repro.py"
    return script_status(tools, script, needs_package=_needs_package(diagnosis.recording, tools))


def _needs_package(recording: Recording | None, tools: Tools) -> bool:
    """Whether a repro imports this package: by a module that declares an operator with ``@operator``, for example."""
    if recording is None:
        return False
    if operator_modules(recording.program):
        return True
    modules = {part for name in own_names(recording.note) for part in (name, name.rpartition(".")[0]) if part}
    files = (folder / f"{each.replace('.', '/')}.py" for each in modules for folder in (Path.cwd(), *tools.folders))
    return any(file.is_file() and _PACKAGE in file.read_bytes() for file in files)


def _with_shown_checked(diagnosis: Diagnosis, tools: Tools) -> Diagnosis:
    """Return the diagnosis with why its program is not shown, if it does not fail when it is pasted.

    Of other programs of the finding only those stay that fail. One that did not run for lack of time stays too.
    """
    finding = rendered(diagnosis, tools)
    variants = tuple(item for item in diagnosis.variants if _pasted_status(item.program, diagnosis, tools) in {None, 1})
    diagnosis = replace(diagnosis, variants=variants)
    status = 1 if finding.no_program else _pasted_status(finding.program, diagnosis, tools)
    if status in {None, 1}:
        return diagnosis
    return replace(diagnosis, no_program="passes" if status == 0 else "stops")


def _pasted_status(text: str, diagnosis: Diagnosis, tools: Tools) -> int | None:
    """Run a text as if it was pasted where the run was started: 1 if an assertion fails, 0 if none does, else 2."""
    if tools.is_sandboxed(diagnosis.suspect.candidate):
        return None
    host = diagnosis.recording.note.host if diagnosis.recording is not None else None
    script = pasted_script(text, host.python if host is not None else "")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pasted.py"
        path.write_text(script, "utf-8")
        return script_status(tools, path, str(Path.cwd()), needs_package=_needs_package(diagnosis.recording, tools))


def forget(identity: str, tools: Tools) -> None:
    """Remove the folder of a suspect that turned out to be another finding."""
    remove_finding(tools.output / FINDINGS / identity)


def _with_means(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with how its program runs again: by a script, unless its interpreter is unknown."""
    if diagnosis.recording is None:
        return diagnosis
    note = diagnosis.recording.note
    has_script = not isinstance(note.side, ModuleNote) or note.host is not None
    return replace(diagnosis, run_again=RunAgain.SCRIPT if has_script else RunAgain.COMMAND)


def _unless_refused(diagnosis: Diagnosis, error: str, tools: Tools) -> Diagnosis:
    """Return the diagnosis, with a note if its folder could not be written: the run goes on."""
    if not error:
        return diagnosis
    tools.unwritten.append(error)
    return replace(diagnosis, run_again=RunAgain.NOTHING).noted(NO_FOLDER)


def _write_folder(diagnosis: Diagnosis, tools: Tools) -> str:
    """Write the whole folder; return the error as a sentence, or an empty string."""
    finding = rendered(diagnosis, tools)
    noted = noted_case(tools.with_module_folders(_program(diagnosis)), finding)
    folder = tools.output / FINDINGS / finding.id
    files = finding_files(noted, finding)
    if diagnosis.run_again is RunAgain.SCRIPT:
        files["repro.py"] = repro_script(noted, finding, folder, tools.folders, tools.case_timeout_s).encode()
    try:
        write_finding(folder, files)
    except OutputError as error:
        return str(error)
    return ""


def _program(diagnosis: Diagnosis) -> Recording:
    found = diagnosis.whole or diagnosis.recording
    assert found is not None  # noqa: S101 - an earlier stage has set it
    return found


def _saved_program(diagnosis: Diagnosis, tools: Tools) -> Tried | Broken | WorkerLostError:
    """Return what the saved program of a finding shows in a fresh process."""
    folder = tools.output / FINDINGS / identity_id(diagnosis)
    # Read the files again, because they are what a user will replay.
    program, tensors = (folder / name for name in ("program.json", "tensors.safetensors"))
    suspect = diagnosis.suspect
    with closing(tools.fresh(diagnosis.seed)) as fresh:
        return fresh.ask(
            TryProgram(
                program=program.read_bytes(), tensors=tensors.read_bytes(), candidate=suspect.candidate,
                test=suspect.test, wanted=suspect.identity,
            )
        )  # fmt: skip


def _not_repeated(diagnosis: Diagnosis, again: Tried, tools: Tools) -> Diagnosis:
    """Return the diagnosis as flaky, because neither its repro nor its saved program fails again."""
    seen = rendered(diagnosis, tools)
    second = f"in a fresh process its saved program is {again.verdict.outcome}, and its repro ended with status 0"
    return diagnosis.doubted(f"first run: {seen.outcome}, {seen.operator} ({seen.kind}); {second}")


def script_status(tools: Tools, script: Path, *folders: str, needs_package: bool = False) -> int | None:
    """Run a script alone, isolated and without this package unless it needs that, and return its exit status.

    The status is 1 if the candidate is misaligned, and ``None`` if the script does not end in time.
    """
    begun, timeout_s = time.monotonic(), tools.allowance.repro_s
    if not timeout_s:
        return None
    try:
        paths = [*folders, *_python_path(tools.environ)]
        return tools.fork_client.run_script(script, paths, timeout_s, needs_package=needs_package)
    finally:
        # All repros share one allowance, so that many slow ones cannot prolong a run without limit.
        tools.allowance.repros_s -= time.monotonic() - begun


def unverified(status: int | None) -> str:
    """Return why a repro is not verified, given its exit status."""
    if status == _OUTSIDE:
        return "it would run the candidate outside of its sandbox"
    return "it did not finish in the time left" if status is None else f"run alone it ended with status {status}"


def _python_path(environ: Mapping[str, str]) -> list[str]:
    """Return the folders of PYTHONPATH, because an isolated interpreter ignores it."""
    return [folder for folder in environ.get("PYTHONPATH", "").split(os.pathsep) if folder]

"""Stages of a finding of a data loader: its loader runs again, and its repro is written and run alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ci_autotest.errors import OutputError
from ci_autotest.findings.confirm import question
from ci_autotest.findings.crash import lost_again
from ci_autotest.findings.diagnosis import RunAgain, flaky, identity_id, rendered
from ci_autotest.findings.writer import NO_FOLDER, script_status, unverified
from ci_autotest.report.comment_text import render_finding
from ci_autotest.report.finding_folders import FINDINGS, write_finding
from ci_autotest.run.messages import Broken
from ci_autotest.run.worker_loss import WorkerLostError

if TYPE_CHECKING:
    from ci_autotest.findings.diagnosis import Diagnosis
    from ci_autotest.findings.tools import Inspection, Tools


def confirm_loader(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Run the loader again."""
    again = inspection.fresh.ask(question(diagnosis.suspect))
    if isinstance(again, WorkerLostError):
        return lost_again(diagnosis, again)
    if isinstance(again, Broken):
        return diagnosis.settled(f"not confirmed: {again.message}")
    if again.verdict.identity != diagnosis.verdict.identity:
        return flaky(diagnosis.suspect, again)
    # A finding of a loader has no program, so there is nothing to shrink.
    return replace(diagnosis, verdict=again.verdict, script=again.script, is_confirmed=True, is_shrunk=True)


def write_script(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Write the repro and its page."""
    if not diagnosis.script:
        return diagnosis.noted("it has no repro: a script cannot give the arguments of parametrize")
    able = replace(diagnosis, run_again=RunAgain.SCRIPT)
    error = _written(able, inspection.tools)
    if not error:
        return able
    inspection.tools.unwritten.append(error)
    return replace(able, run_again=RunAgain.NOTHING).noted(NO_FOLDER)


def verify_script(diagnosis: Diagnosis, inspection: Inspection) -> Diagnosis:
    """Run the repro alone, and write the result."""
    if diagnosis.run_again is not RunAgain.SCRIPT:
        return diagnosis
    # A repro ends with 1 while the fault is there.
    script = inspection.tools.output / FINDINGS / identity_id(diagnosis) / "repro.py"
    status = script_status(inspection.tools, script)
    if status != 1:
        diagnosis = diagnosis.noted(f"repro not verified: {unverified(status)}")
    diagnosis = replace(diagnosis, is_verified=status == 1)
    # The page is written again, because it says whether the repro was verified.
    _written(diagnosis, inspection.tools)
    return diagnosis


def _written(diagnosis: Diagnosis, tools: Tools) -> str:
    """Write the folder; return the error as a sentence, or an empty string."""
    finding = rendered(diagnosis, tools)
    files = {"README.md": render_finding(finding).encode(), "repro.py": diagnosis.script.encode()}
    try:
        write_finding(tools.output / FINDINGS / finding.id, files)
    except OutputError as error:
        return str(error)
    return ""


#: The stages in their order, and what each that takes time is doing.
STAGES: Final = {
    confirm_loader: "confirming in a second process",
    write_script: "",
    verify_script: "running the repro alone",
}

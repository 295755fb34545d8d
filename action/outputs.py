"""What a run's end means to the job: its status, the outputs, the summary.

Pure functions; the standard library only.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from action.inputs import StepError

if TYPE_CHECKING:
    from pathlib import Path

#: The table "Exit status" of the README, in a word each.
CONCLUSIONS = {
    0: "success",
    1: "failure",
    2: "usage",
    3: "nothing-compared",
    4: "unavailable",
    130: "interrupted",
}
#: The status of a command that refused to begin.
USAGE = 2
#: Lines that tell why, and characters of each.
LAST_LINES, LINE_CHARS = 10, 500
#: Bytes. GitHub drops the whole summary of a step above 1 MiB.
SUMMARY_LIMIT = 1024 * 1024
#: Events that are about a pull request, or lead to one.
COMMENT_EVENTS = frozenset({"pull_request", "pull_request_target", "workflow_run", "issue_comment"})


class Report(NamedTuple):
    """Hold what the outputs need of ``report.json``: two counts and the exit status in it."""

    misaligned: int
    findings: int
    exit_code: int


def parse_report(text: str) -> Report | None:
    """Return what the outputs need of ``report.json``, ``None`` where ``text`` is no report."""
    try:
        document: Any = json.loads(text)
        summary = document["summary"]
        return Report(int(summary["misaligned"]), int(summary["findings"]), int(document["exit_code"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def conclusion(status: int) -> str:
    """Return the word for an exit status."""
    return CONCLUSIONS.get(status, "error")


def final_status(status: int, report: Report | None) -> int:
    """Return the status to end with: 0 only where the command and its report both say so.

    Args:
        status: Of the process; negative where a signal ended it: 128 and its number are returned.
        report: What was written.
    """
    if status != 0:
        return status if status > 0 else 128 - status
    return 0 if report is not None and report.exit_code == 0 else 2


def doubt(status: int, report: Report | None, folder: Path) -> str:
    """Return what does not fit between the end of the command and its report, or nothing."""
    if report is None:
        return f"the command ended with 0, but wrote no report.json into '{folder}'." if status == 0 else ""
    if report.exit_code == status:
        return ""
    return (
        f"the command ended with {status}, but '{folder / 'report.json'}' says {report.exit_code}: "
        "something else wrote it. It is not shown; the status is the command's."
    )


def has_artifacts(server: str) -> bool:
    """Whether a server has the artifacts of ``upload-artifact`` v4 and later: GitHub Enterprise Server has not."""
    host = server.partition("://")[2].rstrip("/")
    return host in {"", "github.com"} or host.endswith(".ghe.com")


def step_outputs(status: int, report: Report | None, folder: Path | None, *, uploads: bool = True) -> dict[str, str]:
    """Return the outputs of the step ``run``; ``folder`` is what there is to upload, if anything."""
    return {
        "exit-status": str(status),
        "conclusion": conclusion(status),
        "misaligned": str(report.misaligned) if report else "",
        "findings": str(report.findings) if report else "",
        "report-json": str(folder / "report.json") if report and folder else "",
        "artifact-dir": str(folder) if folder else "",
        "upload": str(folder) if folder and uploads else "",
    }


def output_block(name: str, value: str, delimiter: str) -> str:
    """Return ``value`` for GITHUB_OUTPUT so that no line of it ends it or names another output."""
    if delimiter in value:
        message = f"the output '{name}' holds its own delimiter: it is not written."
        raise StepError(message)
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def shown_commands(printed: str) -> str:
    """Return the lines of ``printed`` that show something, and none that tells the runner to do something else."""
    lines = re.findall(r"^::(?:error|warning|notice) [^\r\n]*$", printed, flags=re.MULTILINE)
    return "".join(f"{line}\n" for line in lines)


def comment_url(printed: str) -> str:
    """Return the address in the last line ``comment: URL`` of what was printed, or nothing."""
    found = re.findall(r"^comment: (https?://\S+)(?: \(\w+\))?$", printed, flags=re.MULTILINE)
    return found[-1] if found else ""


def last_lines(printed: str) -> list[str]:
    """Return the last lines of what was printed that say something, without colours and control characters."""
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", printed)
    lines = ("".join(filter(str.isprintable, line)).rstrip() for line in plain.splitlines())
    return [line[:LINE_CHARS] for line in lines if line][-LAST_LINES:]


def workflow_command(name: str, message: str) -> str:
    """Return a workflow command that shows ``message``: several lines, any character."""
    escaped = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{name} title=ci-autotest::{escaped}\n"

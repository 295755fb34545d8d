"""The outputs of the step `run`, and the formats in which a step talks to the runner.

Pure functions; the standard library only.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from action.errors import StepError

if TYPE_CHECKING:
    from pathlib import Path

#: A word for each row of the README's table "Exit status".
CONCLUSIONS = {
    0: "success", 1: "failure", 2: "usage", 3: "nothing-compared", 4: "unavailable", 130: "interrupted",
}  # fmt: skip
#: Exit status of a command that refused to start, and of one that lacks a device.
USAGE, UNAVAILABLE = 2, 4
#: Lines of output that an annotation shows as the reason, and characters of each.
LAST_LINES, LINE_CHARS = 10, 500
#: Bytes; above this size GitHub drops the whole summary of a step.
SUMMARY_LIMIT = 1024 * 1024
#: Events that belong to a pull request, directly or through a workflow run.
COMMENT_EVENTS = frozenset({"pull_request", "pull_request_target", "workflow_run", "issue_comment"})


class Report(NamedTuple):
    """The fields of ``report.json`` that the outputs need."""

    misaligned: int
    findings: int
    exit_code: int


def parse_report(text: str) -> Report | None:
    """Return the fields of ``report.json``, or ``None`` if ``text`` is not a report."""
    # A test may have written the file, so it may contain anything.
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
    """Return the exit status of the step: 0 only if both the command and its report say so.

    Args:
        status: Status of the process. It is negative if a signal ended the process; 128 plus its number is returned.
        report: The report that was written, if there is one.
    """
    if status != 0:
        return status if status > 0 else 128 - status
    return 0 if report is not None and report.exit_code == 0 else 2


def doubt(status: int, report: Report | None, folder: Path) -> str:
    """Return how the command's status and its report contradict each other; empty if they do not."""
    if report is None:
        return f"the command ended with 0, but wrote no report.json into '{folder}'." if status == 0 else ""
    if report.exit_code == status:
        return ""
    return (
        f"the command ended with {status}, but '{folder / 'report.json'}' says {report.exit_code}: "
        "something else wrote it. The report is not shown, and the command's status counts."
    )


def has_artifacts(server: str) -> bool:
    """Return whether a server supports ``upload-artifact`` v4 and later; GitHub Enterprise Server does not."""
    host = server.partition("://")[2].rstrip("/")
    return host in {"", "github.com"} or host.endswith(".ghe.com")


def step_outputs(status: int, report: Report | None, folder: Path | None, *, uploads: bool = True) -> dict[str, str]:
    """Return the outputs of the step ``run``; ``folder`` is the folder to upload, if there is one."""
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
    """Return the entry for GITHUB_OUTPUT; no line of ``value`` can end it or name another output."""
    if delimiter in value:
        message = f"the output '{name}' contains its own delimiter: it is not written."
        raise StepError(message)
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


def shown_commands(printed: str) -> str:
    """Return the workflow commands in ``printed`` that only show a message; all others are dropped."""
    # A command such as `::add-mask::` or `::set-output::` would change the job.
    lines = re.findall(r"^::(?:error|warning|notice) [^\r\n]*$", printed, flags=re.MULTILINE)
    return "".join(f"{line}\n" for line in lines)


def comment_url(printed: str) -> str:
    """Return the URL in the last line ``comment: URL`` of ``printed``; empty if there is none."""
    found = re.findall(r"^comment: (https?://\S+)(?: \(\w+\))?$", printed, flags=re.MULTILINE)
    return found[-1] if found else ""


def last_lines(printed: str) -> list[str]:
    """Return the last lines of ``printed`` that are not empty, without colours and control characters."""
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", printed)
    lines = ("".join(filter(str.isprintable, line)).rstrip() for line in plain.splitlines())
    return [line[:LINE_CHARS] for line in lines if line][-LAST_LINES:]


def workflow_command(name: str, message: str) -> str:
    """Return a workflow command that shows ``message``, which may have several lines and any characters."""
    escaped = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{name} title=ci-autotest::{escaped}\n"

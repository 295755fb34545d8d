"""The output folder: every surface written from one result; reports read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.errors import UsageError
from ci_autotest.report import junit, report_json
from ci_autotest.report.atomic import write_text
from ci_autotest.report.links import Links
from ci_autotest.report.markdown import render_comment, render_summary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ci_autotest.result import Finding, RunResult

REPORT = "report.json"


def links_from(environ: Mapping[str, str], result: RunResult) -> Links | None:
    """Return the repository's addresses inside a workflow, ``None`` elsewhere."""
    server, repository = environ.get("GITHUB_SERVER_URL"), environ.get("GITHUB_REPOSITORY")
    sha = environ.get("GITHUB_SHA")
    if not server or not repository or not sha:
        return None
    run = environ.get("GITHUB_RUN_ID")
    address = f"{server}/{repository}/actions/runs/{run}" if run else ""
    return Links(
        server=server, repository=repository, sha=sha, prefix=result.environment.folder, run=address,
        artifact=environ.get("ARTIFACT_URL", ""),
    )  # fmt: skip


def write_surfaces(result: RunResult, output: Path, environ: Mapping[str, str]) -> None:
    """Write report.json, junit.xml, summary.md and comment.md; report.json last: it says that the rest is whole."""
    known = links_from(environ, result)
    output.mkdir(parents=True, exist_ok=True)  # a test may have removed it
    junit.write(result, output / "junit.xml")
    write_text(output / "summary.md", render_summary(result, links=known))
    write_text(output / "comment.md", render_comment(result, links=known))
    report_json.write(result, output / REPORT)


def read_report(path: Path) -> RunResult:
    """Return the report of an output folder or of a report.json.

    Raises:
        UsageError: There is none.
        OutputError: It is damaged.
    """
    file = path / REPORT if path.is_dir() else path
    if not file.is_file():
        message = f"'{path}' holds no {REPORT}. Give the output folder of a run."
        raise UsageError(message)
    return report_json.read(file)


def read_baseline(path: Path) -> tuple[Finding, ...]:
    """Return the findings of a baseline."""
    return read_report(path).findings

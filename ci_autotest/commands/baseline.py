"""Baselines: a run is compared with a report that is named, or with one of the base branch, found over the API.

The base branch's report is the last one that is complete and of a commit that the tested commit contains: a later
report may have findings that the pull request has nothing to do with. If there is none of such a commit, it is the
last complete one.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import requests

from ci_autotest.commands.downloaded_report import read_downloaded
from ci_autotest.commands.output_writer import read_report
from ci_autotest.commands.run_result import held_against
from ci_autotest.errors import AutotestError
from ci_autotest.github.artifact import check_artifact_name, commits_before, download, of_branch
from ci_autotest.github.client import Client
from ci_autotest.github.environ import read_access
from ci_autotest.github.http_messages import Forbidden
from ci_autotest.values.judgement import FAILED, FINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.github.artifact import Artifact, ArtifactRun
    from ci_autotest.values.result import RunResult

#: Names the base branch's last report.
AUTO: Final = "auto"
#: The same, without a note if there is none: the action looks for one by itself, so nobody misses it.
IF_ANY: Final = "auto-if-any"
#: Most reports that are read to find a complete one.
_MOST_READ: Final = 5
#: Seconds that finding it may take.
DEADLINE_S: Final = 120.0


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """Finder of the report to compare with; if there is none, the run goes on with a note.

    Attributes:
        client: Of GitHub's API.
        repository: ``owner/name``.
        branch: The base branch.
        head: The head of the pull request; empty if there is none.
        run_id: The run that is compared.
        asked: A report's path, ``auto``, ``auto-if-any``, or nothing.
    """

    client: Client
    repository: str
    branch: str
    head: str
    run_id: int
    asked: str

    def applied(self, result: RunResult, artifact_name: str) -> RunResult:
        """Return the result with its new and fixed findings, if there is a baseline."""
        if self.asked not in {AUTO, IF_ANY}:
            return held_against(result, read_report(Path(self.asked))) if self.asked else result
        try:
            found = self._last(artifact_name, result.environment.commit)
        except AutotestError as error:
            return _noted(result, f"The last report of branch '{self.branch}' cannot be compared with: {error}")
        if self.asked == IF_ANY and (found is None or isinstance(found, Forbidden)):
            return result
        if isinstance(found, Forbidden):
            response = f"{found.where} answered {found.status}"
            return _noted(result, f"There is no baseline: the token lacks `actions: read` ({response}).")
        if found is None:
            note = f"There is no baseline: branch '{self.branch}' has no complete report '{artifact_name}'."
            return _noted(result, note)
        report, run, is_before = found
        other = "" if is_before else ", which is not known to be before the tested commit"
        where = f"commit {run.head_sha[:12]} of branch '{self.branch}' (run {run.id}){other}"
        return _noted(held_against(result, report), f"The baseline is the report of {where}.")

    def _last(self, artifact_name: str, tested: str) -> tuple[RunResult, ArtifactRun, bool] | Forbidden | None:
        """Return the report to compare with, its run, and whether its commit is in the tested one."""
        found = of_branch(self.client, self.repository, self.branch, artifact_name, self.run_id)
        if isinstance(found, Forbidden):
            return found
        before = commits_before(self.client, self.repository, tested, self.head)
        # A stable sort: of both kinds, the latest first.
        in_order = sorted(found, key=lambda item: _commit_of(item) not in before)
        for artifact in in_order[:_MOST_READ]:
            data = download(self.client, self.repository, artifact)
            if isinstance(data, Forbidden):
                return data
            try:
                report = read_downloaded(artifact.name, data).result
            except AutotestError:
                continue  # Of another version, or damaged: an older one may be neither.
            if is_complete(report) and artifact.workflow_run is not None:
                return report, artifact.workflow_run, _commit_of(artifact) in before
        return None


def _commit_of(artifact: Artifact) -> str:
    return artifact.workflow_run.head_sha if artifact.workflow_run is not None else ""


def is_complete(report: RunResult) -> bool:
    """Whether a report is of a run that went to its end and could run all of its tests, aligned or not."""
    return report.exit_code in {FINE, FAILED} and not report.interrupted


def against(result: RunResult, asked: str, artifact_name: str, environ: Mapping[str, str]) -> RunResult:
    """Return a merged result with its new and fixed findings.

    Args:
        result: All shards, merged.
        asked: A report's path, ``auto``, or nothing.
        artifact_name: Name under which the base branch's report was uploaded.
        environ: Environment of a step; ``auto`` needs its GITHUB_TOKEN.

    Raises:
        AutotestError: The path holds no report, or ``auto`` is used outside of a workflow step.
    """
    if asked != AUTO:
        return held_against(result, read_report(Path(asked))) if asked else result
    check_artifact_name(artifact_name)
    access = read_access(environ)
    with requests.Session() as session, ExitStack() as files:
        client = Client(
            session=session, files=files, api_url=access.api_url, token=access.token,
            clock=time.monotonic, sleep=time.sleep, deadline_s=DEADLINE_S, start_s=time.monotonic(),
        )  # fmt: skip
        return Baselines(
            client=client, repository=access.repository, branch=access.branch, head=access.sha,
            run_id=access.run_id, asked=asked,
        ).applied(result, artifact_name)  # fmt: skip


def _noted(result: RunResult, note: str) -> RunResult:
    return msgspec.structs.replace(result, notes=(*result.notes, note))

"""The workflow run as a frozen value: repository, run, commit and pull request.

Everything is read from the given environment and the event's file and checked here, so that the rest of the package
builds addresses and headers without checking again. Nothing is sent from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, TypeVar

import msgspec

from ci_autotest.errors import PublishError
from ci_autotest.github.environ import (
    COMMIT,
    PUBLIC_API_URL,
    PUBLIC_SERVER_URL,
    REPOSITORY,
    matching,
    positive,
    required,
    token_of,
    url_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_Commit = Annotated[str, msgspec.Meta(pattern=COMMIT)]
_Number = Annotated[int, msgspec.Meta(ge=1)]


@dataclass(frozen=True, kw_only=True)
class PullRequestTarget:
    """The pull request to comment on.

    Attributes:
        head_sha: Commit at its head; ``None`` if the event does not say.
        from_fork: Whether its head is in another repository; ``None`` if the event does not say.
        base: Branch to merge into; empty if the event does not say.
    """

    number: int
    head_sha: str | None
    from_fork: bool | None
    base: str = ""


@dataclass(frozen=True, kw_only=True)
class RunTarget:
    """The run whose pull request has to be found, because a ``workflow_run`` event lacks that of a fork.

    Attributes:
        run: The run in GitHub's event; ``None`` if it must be requested.
    """

    run_id: int
    run: WorkflowRun | None = None


Target: TypeAlias = PullRequestTarget | RunTarget


@dataclass(frozen=True, kw_only=True)
class Event:
    """What publishing needs to know.

    Attributes:
        name: ``GITHUB_EVENT_NAME``.
        repository: ``owner/name``, checked.
        api_url: Without a slash at the end.
        server_url: Without a slash at the end.
        run_id: The run that tested: that of a ``workflow_run`` event, else this one.
        attempt: Attempt of that run, from 1.
    """

    name: str
    repository: str
    api_url: str
    server_url: str
    token: str = field(repr=False)
    run_id: int
    attempt: int
    target: Target

    @property
    def run_url(self) -> str:
        """Address of the run's page."""
        return f"{self.server_url}/{self.repository}/actions/runs/{self.run_id}"


class _Repository(msgspec.Struct, frozen=True):
    full_name: str


class _Base(msgspec.Struct, frozen=True):
    ref: str


class Owner(msgspec.Struct, frozen=True):
    """The account that owns a repository."""

    login: str


class HeadRepository(msgspec.Struct, frozen=True):
    """The repository of a head."""

    full_name: str
    owner: Owner


class WorkflowRun(msgspec.Struct, frozen=True):
    """A workflow run.

    Attributes:
        head_repository: ``None`` if the fork was deleted.
        conclusion: How the run ended; ``None`` while it runs.
        run_started_at: When its latest attempt began, in UTC; empty if the event does not say.
    """

    id: int
    head_sha: str
    head_branch: str | None
    head_repository: HeadRepository | None
    run_attempt: int = 1
    conclusion: str | None = None
    run_started_at: str = ""


class _EventHead(msgspec.Struct, frozen=True):
    sha: _Commit
    repo: _Repository | None  # null when the fork was deleted


class _PullRequest(msgspec.Struct, frozen=True):
    number: _Number
    head: _EventHead
    base: _Base


class _PullRequestPayload(msgspec.Struct, frozen=True):
    pull_request: _PullRequest


class _RunPayload(msgspec.Struct, frozen=True):
    workflow_run: WorkflowRun


class _Link(msgspec.Struct, frozen=True):
    url: str


class _Issue(msgspec.Struct, frozen=True):
    number: _Number
    pull_request: _Link | None = None


class _IssuePayload(msgspec.Struct, frozen=True):
    issue: _Issue


def read_event(environ: Mapping[str, str], run_id: int | None = None) -> Event:
    """Return the event of a workflow step, from its environment and the event's file.

    Args:
        environ: ``GITHUB_*`` as a step sees them, and ``GITHUB_TOKEN``, which the workflow passes.
        run_id: The run that tested, if it is given; then the event needs no pull request.

    Raises:
        PublishError: A variable is missing or ill-formed, or the event has no pull request.
    """
    name = required(environ, "GITHUB_EVENT_NAME")
    repository = matching(environ, "GITHUB_REPOSITORY", REPOSITORY, "owner/name")
    target = _target(name, environ, repository, run_id)
    this_run = positive(environ, "GITHUB_RUN_ID"), positive(environ, "GITHUB_RUN_ATTEMPT")
    tested = target.run if isinstance(target, RunTarget) else None
    run_id, attempt = (tested.id, tested.run_attempt) if tested else (run_id or this_run[0], this_run[1])
    return Event(
        name=name,
        repository=repository,
        api_url=url_of(environ, "GITHUB_API_URL", PUBLIC_API_URL),
        server_url=url_of(environ, "GITHUB_SERVER_URL", PUBLIC_SERVER_URL),
        token=token_of(environ),
        run_id=run_id,
        attempt=attempt,
        target=target,
    )


def _target(name: str, environ: Mapping[str, str], repository: str, run_id: int | None) -> Target:
    reader = _READERS.get(name)
    # A job of the run that tested has the pull request in its own event.
    is_own = name != "workflow_run" and str(run_id) == environ.get("GITHUB_RUN_ID", "")
    if run_id is not None and not (is_own and reader is not None):
        own = _of_run(environ, repository) if name == "workflow_run" else None
        # A run in GitHub's own event need not be requested.
        return own if own and own.run_id == run_id else RunTarget(run_id=run_id)
    if reader is None:
        message = (
            f"event {name!r} has no pull request to comment on: the events that have one are {', '.join(_READERS)}. "
            "Publish from one of them, or name the run with --run-id."
        )
        raise PublishError(message)
    return reader(environ, repository)


def _of_pull_request(environ: Mapping[str, str], repository: str) -> PullRequestTarget:
    pull = _payload(environ, _PullRequestPayload).pull_request
    source = pull.head.repo
    # A deleted fork has no repository, and names on GitHub are not case-sensitive.
    from_fork = source is None or source.full_name.casefold() != repository.casefold()
    return PullRequestTarget(number=pull.number, head_sha=pull.head.sha, from_fork=from_fork, base=pull.base.ref)


def _of_run(environ: Mapping[str, str], repository: str) -> RunTarget:  # noqa: ARG001 - one signature for all readers
    run = _payload(environ, _RunPayload).workflow_run
    return RunTarget(run_id=run.id, run=run)


def _of_issue(environ: Mapping[str, str], repository: str) -> PullRequestTarget:  # noqa: ARG001 - one signature for all readers
    issue = _payload(environ, _IssuePayload).issue
    if issue.pull_request is None:
        message = f"issue {issue.number} of the event is not a pull request, so there is nothing to comment on."
        raise PublishError(message)
    return PullRequestTarget(number=issue.number, head_sha=None, from_fork=None)


_READERS: Final[dict[str, Callable[[Mapping[str, str], str], Target]]] = {
    "pull_request": _of_pull_request,
    "pull_request_target": _of_pull_request,
    "workflow_run": _of_run,
    "issue_comment": _of_issue,
}


def _payload(environ: Mapping[str, str], kind: type[T]) -> T:
    path = required(environ, "GITHUB_EVENT_PATH")
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=kind)
    except OSError as error:
        message = f"GITHUB_EVENT_PATH '{path}' cannot be read: {error.strerror}. Run this in a step of a workflow."
        raise PublishError(message) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"GITHUB_EVENT_PATH '{path}' is not the event that GITHUB_EVENT_NAME names: {error}."
        raise PublishError(message) from None

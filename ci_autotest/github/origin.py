"""Find the pull request of a run by asking GitHub, never from an artifact, which a stranger may have written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.github.event import HeadRepository, PullRequestTarget, RunTarget, WorkflowRun
from ci_autotest.github.http_messages import Forbidden, Listing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ci_autotest.github.client import Client
    from ci_autotest.github.event import Event


class Head(msgspec.Struct, frozen=True):
    """The head of a pull request."""

    ref: str
    sha: str
    repo: HeadRepository | None


class Base(msgspec.Struct, frozen=True):
    """The branch into which a pull request is to be merged."""

    ref: str


class Pull(msgspec.Struct, frozen=True):
    """A pull request."""

    id: int
    number: int
    head: Head
    base: Base


class RunJob(msgspec.Struct, frozen=True):
    """A job of a run; ``conclusion`` is ``None`` while it runs."""

    id: int
    name: str
    conclusion: str | None = None


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The pull request and commit that a run tested.

    Attributes:
        pull: The pull request to comment on.
        sha: The tested head, which both the fork and the repository have.
        run: The run that tested, if GitHub shows it.
        failure: How the whole run ended, if without success, in words; empty while it goes on.
        failed: Its jobs that ended without success, while it goes on.
    """

    pull: PullRequestTarget
    sha: str
    run: WorkflowRun | None = None
    failure: str = ""
    failed: tuple[RunJob, ...] = ()


@dataclass(frozen=True)
class Absent:
    """Why there is no pull request to comment on. This is no error: it was closed, or has newer commits."""

    message: str


class _JobPage(msgspec.Struct, frozen=True):
    jobs: list[RunJob]


#: Conclusions of a run or a job that has not failed; ``None`` while it goes on.
_FINE: Final = frozenset({None, "success", "neutral", "skipped"})
JOBS: Final = msgspec.json.Decoder(_JobPage)
RUN: Final = msgspec.json.Decoder(WorkflowRun)
PULL: Final = msgspec.json.Decoder(Pull)
PULLS: Final = msgspec.json.Decoder(list[Pull])


def find_pull_request(client: Client, event: Event) -> Origin | Absent | Forbidden:
    """Return the pull request of ``event``.

    Raises:
        PublishError: GitHub does not answer as GitHub.
    """
    if isinstance(event.target, PullRequestTarget):
        return _still_there(client, event, event.target)
    return _of_run(client, event, event.target)


def _still_there(client: Client, event: Event, target: PullRequestTarget) -> Origin | Absent | Forbidden:
    """Return the event's own pull request, unless it has newer commits, for which another run will comment."""
    pull = client.get(f"/repos/{event.repository}/pulls/{target.number}", PULL, {})
    if isinstance(pull, Forbidden):
        return pull
    # The event of an issue's comment does not say which commit was tested.
    if target.head_sha not in {None, pull.head.sha}:
        return Absent(
            f"no comment was written: {event.repository}#{target.number} has its head at {pull.head.sha[:12]} by now, "
            f"and {(target.head_sha or '')[:12]} was tested."
        )
    return Origin(pull=_target_of(event, pull), sha=pull.head.sha)


def with_run(client: Client, event: Event, origin: Origin) -> Origin:
    """Return the origin with the run that tested, and what of it has failed.

    A run goes on while one of its jobs publishes, so that its other jobs are looked at, those of the latest attempt.

    Raises:
        PublishError: GitHub does not answer as GitHub.
    """
    path = f"/repos/{event.repository}/actions/runs/{event.run_id}"
    run: WorkflowRun | Forbidden | None = origin.run
    if run is None:
        run = client.get(path, RUN, {})
    known = None if isinstance(run, Forbidden) else run
    if known is not None and known.conclusion not in _FINE:
        return replace(origin, run=known, failure=f"run {known.id} ended with '{known.conclusion}'")
    if known is not None and known.conclusion is not None:
        return replace(origin, run=known)
    jobs = client.pages(Listing(path=f"{path}/jobs", shape=JOBS, items=lambda page: page.jobs))
    failed = () if isinstance(jobs, Forbidden) else tuple(job for job in jobs if job.conclusion not in _FINE)
    return replace(origin, run=known, failed=failed)


def _of_run(client: Client, event: Event, target: RunTarget) -> Origin | Absent | Forbidden:
    run: WorkflowRun | Forbidden | None = target.run
    if run is None:
        run = client.get(f"/repos/{event.repository}/actions/runs/{target.run_id}", RUN, {})
    if isinstance(run, Forbidden):
        return run
    source, branch = run.head_repository, run.head_branch
    # Without both the request below would list every open pull request.
    if source is None or not branch:
        return _absent(target, run)
    query = {"state": "open", "head": f"{source.owner.login}:{branch}"}
    path = f"/repos/{event.repository}/pulls"
    pulls = client.pages(Listing(path=path, shape=PULLS, items=tuple, params=query))
    if isinstance(pulls, Forbidden):
        return pulls
    # The request filters by owner and branch, but an owner may have several repositories.
    pull = choose(pulls, run)
    return Origin(pull=_target_of(event, pull), sha=run.head_sha, run=run) if pull else _absent(target, run)


def choose(pulls: Iterable[Pull], run: WorkflowRun) -> Pull | None:
    """Return the pull request whose head repository, branch and commit are the run's; the lowest number of several.

    All three are compared: a commit alone may be at the head of anyone's branch.
    """
    return min((pull for pull in pulls if _is_head_of(pull.head, run)), key=lambda pull: pull.number, default=None)


def _target_of(event: Event, pull: Pull) -> PullRequestTarget:
    source = pull.head.repo
    return PullRequestTarget(
        number=pull.number,
        head_sha=pull.head.sha,
        from_fork=source is None or source.full_name.casefold() != event.repository.casefold(),
        base=pull.base.ref,
    )


def _is_head_of(head: Head, run: WorkflowRun) -> bool:
    # A deleted repository is equal to none, not even to another deleted one.
    if head.repo is None or run.head_repository is None:
        return False
    return (head.repo.full_name, head.ref, head.sha) == (
        run.head_repository.full_name,
        run.head_branch,
        run.head_sha,
    )


def _absent(target: RunTarget, run: WorkflowRun) -> Absent:
    source = run.head_repository.full_name if run.head_repository else "a deleted repository"
    return Absent(
        f"no comment was written: no open pull request has its head at {run.head_sha[:12]} "
        f"on branch {run.head_branch!r} of {source}, as run {target.run_id} has. It was closed, or has newer commits."
    )

"""Own which pull request a run belongs to: asked of GitHub, never of an artifact, which a stranger may have written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.github.answer import Forbidden
from ci_autotest.github.event import PullRequestTarget, RunTarget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ci_autotest.github.client import Client
    from ci_autotest.github.event import Event


class Owner(msgspec.Struct, frozen=True):
    """Name the account that a repository belongs to."""

    login: str


class HeadRepository(msgspec.Struct, frozen=True):
    """Name the repository that a head is in."""

    full_name: str
    owner: Owner


class Run(msgspec.Struct, frozen=True):
    """Hold what is needed of a workflow run; a fork that was deleted leaves no ``head_repository``."""

    head_sha: str
    head_branch: str | None
    head_repository: HeadRepository | None


class Head(msgspec.Struct, frozen=True):
    """Say where the head of a pull request is."""

    ref: str
    sha: str
    repo: HeadRepository | None


class Pull(msgspec.Struct, frozen=True):
    """Hold what is needed of a pull request."""

    id: int
    number: int
    head: Head


@dataclass(frozen=True)
class Absent:
    """Say why there is no pull request to comment on; that is no error: it was closed, or has newer commits."""

    message: str


RUN: Final = msgspec.json.Decoder(Run)
PULLS: Final = msgspec.json.Decoder(list[Pull])


def find_pull_request(client: Client, event: Event) -> PullRequestTarget | Absent | Forbidden:
    """Return the pull request that ``event`` is about.

    Raises:
        PublishError: GitHub does not answer as GitHub.
    """
    if isinstance(event.target, PullRequestTarget):
        return event.target
    run = client.get(f"/repos/{event.repository}/actions/runs/{event.target.run_id}", RUN, {})
    if isinstance(run, Forbidden):
        return run
    source, branch = run.head_repository, run.head_branch
    if source is None or not branch:
        return _absent(event.target, run)
    query = {"state": "open", "head": f"{source.owner.login}:{branch}"}
    pulls = client.pages(f"/repos/{event.repository}/pulls", PULLS, query)
    if isinstance(pulls, Forbidden):
        return pulls
    number = choose(pulls, run)
    if number is None:
        return _absent(event.target, run)
    from_fork = source.full_name.casefold() != event.repository.casefold()
    return PullRequestTarget(number=number, head_sha=run.head_sha, from_fork=from_fork)


def choose(pulls: Iterable[Pull], run: Run) -> int | None:
    """Return the pull request whose head repository, branch and commit are the run's; the lowest number of several.

    All three are compared: a commit alone may be at the head of anyone's branch.
    """
    return min((pull.number for pull in pulls if _is_head_of(pull.head, run)), default=None)


def _is_head_of(head: Head, run: Run) -> bool:
    if head.repo is None or run.head_repository is None:
        return False
    return (head.repo.full_name, head.ref, head.sha) == (
        run.head_repository.full_name,
        run.head_branch,
        run.head_sha,
    )


def _absent(target: RunTarget, run: Run) -> Absent:
    source = run.head_repository.full_name if run.head_repository else "a deleted repository"
    return Absent(
        f"no comment was written: no open pull request has its head at {run.head_sha[:12]} "
        f"on branch {run.head_branch!r} of {source}, as run {target.run_id} has. It was closed, or has newer commits."
    )

"""Publish the comment: list the comments, do what ``sticky`` decides, and repeat until nothing is left to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from ci_autotest.errors import PublishError
from ci_autotest.github.http_messages import Forbidden, Listing, Unclear
from ci_autotest.github.sticky import (
    Comment,
    Create,
    Delete,
    Done,
    Skip,
    Update,
    User,
    WantedComment,
    decide,
    ours,
)

if TYPE_CHECKING:
    from ci_autotest.github.client import Client
    from ci_autotest.github.event import Event, PullRequestTarget

Action: TypeAlias = Literal["created", "updated", "unchanged", "skipped", "degraded"]

#: Author of comments written with a workflow's own token, which may not ask for its login.
ACTIONS_LOGIN: Final = "github-actions[bot]"
#: Begin of an app's token, which may not ask for its login.
_OF_APP: Final = "ghs_"
#: Most steps of one publication: create, overwrite, delete, and the same again if other publishers interfere.
MAX_STEPS: Final = 24
#: Wait between a write and the next list, because lists lag and another publisher may still be writing.
SETTLE_S: Final = 1.0

_GONE: Final = 404
_COMMENT: Final = msgspec.json.Decoder(Comment)
_COMMENTS: Final = msgspec.json.Decoder(list[Comment])
_USER: Final = msgspec.json.Decoder(User)


@dataclass(frozen=True, kw_only=True)
class Published:
    """The outcome for the comment.

    Attributes:
        url: Address of the comment, or ``None``.
        action: ``unchanged`` also if a newer run has the comment.
        message: For the log: what happened, and what to do if something is missing.
    """

    url: str | None
    action: Action
    message: str


@dataclass(frozen=True, kw_only=True)
class _Progress:
    """What was done so far, and what ended it early.

    Attributes:
        author: Login of our comments.
        created: The comment that we created.
        posted: A comment was sent, whether or not an answer came.
        updated: A comment was overwritten.
        missed: The comment to overwrite did not exist.
        failures: Number of writes with unknown result.
        unclear: Why the result of a write is unknown.
        refused: The refusal of the last step.
    """

    author: str
    created: Comment | None = None
    posted: bool = False
    updated: bool = False
    missed: bool = False
    failures: int = 0
    unclear: str = ""
    refused: Forbidden | None = None

    @property
    def wrote(self) -> bool:
        """Whether the comment was written, as far as is known."""
        return self.posted or self.updated


@dataclass(frozen=True, kw_only=True)
class _Thread:
    """The comments of one pull request, and the comment that is wanted."""

    client: Client
    repository: str
    number: int
    wanted: WantedComment

    @property
    def path(self) -> str:
        return f"/repos/{self.repository}/issues/{self.number}/comments"

    def comments(self) -> list[Comment] | Forbidden:
        found = self.client.pages(Listing(path=self.path, shape=_COMMENTS, items=tuple))
        return found if isinstance(found, Forbidden) else list(found)

    def path_of(self, comment_id: int) -> str:
        return f"/repos/{self.repository}/issues/comments/{comment_id}"


def publish(client: Client, event: Event, target: PullRequestTarget, wanted: WantedComment) -> Published:
    """Make the check's single comment on a pull request say what is ``wanted``.

    A missing permission is no error: the result names it, and the report is in the summary and the files.

    Raises:
        PublishError: GitHub cannot be reached, refuses the token, or the answer is not from GitHub.
    """
    published = _converge(_Thread(client=client, repository=event.repository, number=target.number, wanted=wanted))
    if published.action == "degraded" and _is_read_only(event, target):
        return replace(published, message=f"{published.message}\n{_FORK}")
    return published


_FORK: Final = (
    "The pull request comes from a fork, where the token of a `pull_request` workflow can only read: "
    "publish from a `workflow_run` workflow."
)


def _is_read_only(event: Event, target: PullRequestTarget) -> bool:
    return event.name == "pull_request" and target.from_fork is True


def _converge(thread: _Thread) -> Published:
    progress = _Progress(author=_author(thread.client))
    for _ in range(MAX_STEPS):
        comments = thread.comments()
        if isinstance(comments, Forbidden):
            return _degraded(comments)
        if progress.created and not ours(comments, progress.author, thread.wanted.marker):
            comments.append(progress.created)  # the list lags behind GitHub's own answer
        step = decide(comments, progress.author, thread.wanted, wrote=progress.wrote)
        if isinstance(step, Skip):
            message = "no comment: the pull request has none yet, and this run has nothing to report."
            return Published(url=None, action="skipped", message=message)
        if isinstance(step, Done):
            return _published(step, progress)
        progress = _act(thread, step, progress)
        if progress.refused:
            return _refused(step, progress, progress.refused)
        thread.client.pause(SETTLE_S, f"{thread.client.api_url}{thread.path} was written and must be read again")
    cause = progress.unclear or "other jobs write to it at the same time"
    message = (
        f"the comment on {thread.repository}#{thread.number} did not settle in {MAX_STEPS} steps: {cause}. "
        "Run this job again later."
    )
    raise PublishError(message)


def _author(client: Client) -> str:
    if client.token.startswith(_OF_APP):
        return ACTIONS_LOGIN
    user = client.get("/user", _USER, {})
    return ACTIONS_LOGIN if isinstance(user, Forbidden) else user.login


def _act(thread: _Thread, step: Create | Update | Delete, progress: _Progress) -> _Progress:
    if isinstance(step, Create):
        return _create(thread, step, progress)
    if isinstance(step, Update):
        return _update(thread, step, progress)
    return _delete(thread, step, progress)


def _create(thread: _Thread, step: Create, progress: _Progress) -> _Progress:
    answer = thread.client.post(thread.path, _COMMENT, {"body": step.body}, progress.failures)
    if isinstance(answer, Forbidden):
        return replace(progress, refused=answer)
    if isinstance(answer, Unclear):
        # The next list shows whether the comment exists.
        return replace(progress, posted=True, unclear=answer.reason, failures=progress.failures + 1)
    # An app's token may not ask for its login, and not every app is Actions: the first comment shows the login.
    author = answer.user.login if answer.user else progress.author
    return replace(progress, posted=True, created=answer, author=author)


def _update(thread: _Thread, step: Update, progress: _Progress) -> _Progress:
    answer = thread.client.patch(thread.path_of(step.id), _COMMENT, {"body": step.body}, progress.failures)
    if isinstance(answer, Unclear):
        return replace(progress, unclear=answer.reason, failures=progress.failures + 1)
    if isinstance(answer, Forbidden):
        # The first time, somebody deleted the comment and the next list lacks it; the second time, it is hidden from
        # this token.
        is_gone = answer.status == _GONE and not progress.missed
        return replace(progress, missed=True) if is_gone else replace(progress, refused=answer)
    return replace(progress, updated=True)


def _delete(thread: _Thread, step: Delete, progress: _Progress) -> _Progress:
    for comment_id in step.ids:
        answer = thread.client.delete(thread.path_of(comment_id))
        if isinstance(answer, Forbidden) and answer.status != _GONE:
            return replace(progress, refused=answer)
    return progress


def _published(done: Done, progress: _Progress) -> Published:
    url = done.kept.html_url
    if done.newer is not None:
        message = (
            f"the comment was left as it is: run {done.newer.run_id}, attempt {done.newer.attempt}, is newer: {url}"
        )
        return Published(url=url, action="unchanged", message=message)
    action = _action(done, progress)
    words = {"created": "was created", "updated": "was updated", "unchanged": "already says this"}
    return Published(url=url, action=action, message=f"the comment {words[action]}: {url}")


def _action(done: Done, progress: _Progress) -> Literal["created", "updated", "unchanged"]:
    created = progress.created.id if progress.created else None
    if progress.updated:
        return "updated" if done.kept.id != created else "created"
    # If no answer came, a comment with our text is the one that we sent.
    return "created" if progress.posted and created in {None, done.kept.id} else "unchanged"


def _refused(step: Create | Update | Delete, progress: _Progress, refusal: Forbidden) -> Published:
    if not isinstance(step, Delete):
        return _degraded(refusal)
    published = _published(step.then, progress)
    ids = ", ".join(map(str, step.ids))
    note = f"Its duplicates stay ({ids}): {refusal.where} answered {refusal.status} ({refusal.reason}). Delete them."
    return replace(published, message=f"{published.message}\n{note}")


def _degraded(refusal: Forbidden) -> Published:
    return Published(url=None, action="degraded", message=refusal_text(refusal, "pull-requests: write"))


def refusal_text(refusal: Forbidden, needed: str) -> str:
    """Return the message for a refusal: which permission is missing, or that the conversation is locked."""
    head = f"no comment was written: {refusal.where} answered {refusal.status} ({refusal.reason})."
    if "locked" in refusal.reason:
        return f"{head}\nThe conversation is locked; the report is in the job's summary and in the files."
    accepted = f"; GitHub would accept {refusal.permissions}" if refusal.permissions else ""
    return (
        f"{head}\nThe token lacks `{needed}`{accepted}. Add it to `permissions:` of the job; "
        "the report is in the job's summary and in the files."
    )

"""The comment, published over real HTTP to a server on the loopback device: what becomes of the comments there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ci_autotest.github.comment import ACTIONS_LOGIN, Published
from ci_autotest.github.event import PullRequestTarget
from tests.fakes.github import BOT, NUMBER, REPOSITORY, SHA, TOKEN, FakeGithub, Fault, refusal
from tests.fakes.github_server import serving
from tests.publishing import LIST, POST, event_of, ours, published, url

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    with serving(FakeGithub(heads={NUMBER: ("octo/kernels", "softmax", SHA)})) as fake:
        yield fake


def test_publish__no_comment_yet__creates_one(github: FakeGithub) -> None:
    result = published(github)

    assert result == Published(url=url(101), action="created", message=f"the comment was created: {url(101)}")
    assert github.bodies() == {
        101: "<!-- ci-autotest:ci-autotest -->\n<!-- sections 500.1.18. -->\n\n### ✗ 2 misaligned"
    }


def test_publish__any_request__has_the_headers_github_asks_for(github: FakeGithub) -> None:
    published(github)

    kept = ("accept", "x-github-api-version", "authorization")
    assert {tuple(seen.headers[key] for key in kept) for seen in github.seen} == {
        ("application/vnd.github+json", "2022-11-28", f"Bearer {TOKEN}")
    }
    assert all(seen.headers["user-agent"].startswith("ci-autotest/") for seen in github.seen)


@pytest.mark.parametrize(
    ("run_id", "attempt"), [pytest.param(501, 1, id="newer run"), pytest.param(500, 2, id="newer attempt")]
)
def test_publish__comment_of_an_earlier_run__is_updated(github: FakeGithub, run_id: int, attempt: int) -> None:
    kept = github.add_comment(BOT, ours("1 misaligned"))

    result = published(github, event=event_of(github, run_id, attempt))

    assert result == Published(url=url(kept), action="updated", message=f"the comment was updated: {url(kept)}")
    assert github.bodies() == {kept: ours("2 misaligned", run_id, attempt)}


def test_publish__same_text_twice__writes_once(github: FakeGithub) -> None:
    published(github)

    result = published(github)

    assert result == Published(url=url(101), action="unchanged", message=f"the comment already says this: {url(101)}")
    assert github.calls() == [POST]


def test_publish__body_came_back_with_crlf__is_unchanged(github: FakeGithub) -> None:
    github.add_comment(BOT, ours("a\nb").replace("\n", "\r\n"))

    assert published(github, "a\nb").action == "unchanged"


@pytest.mark.parametrize(("run_id", "attempt"), [pytest.param(500, 3, id="run"), pytest.param(501, 1, id="attempt")])
def test_publish__comment_of_a_newer_run__is_left_as_it_is(github: FakeGithub, run_id: int, attempt: int) -> None:
    kept = github.add_comment(BOT, ours("newer", 501, 2))

    result = published(github, "older", event=event_of(github, run_id, attempt))

    message = f"the comment was left as it is: run 501, attempt 2, is newer: {url(kept)}"
    assert result == Published(url=url(kept), action="unchanged", message=message)
    assert github.bodies() == {kept: ours("newer", 501, 2)}


def test_publish__same_text_from_a_newer_run__takes_the_turn(github: FakeGithub) -> None:
    # Else a run between the two, ending last, would overwrite what the newer one confirmed.
    github.add_comment(BOT, ours("same", 500))
    published(github, "same", event=event_of(github, 502))

    result = published(github, "other", event=event_of(github, 501))

    assert (result.action, github.bodies()) == ("unchanged", {101: ours("same", 502)})


def test_publish__ours_on_page_three__is_updated(github: FakeGithub) -> None:
    for index in range(250):
        github.add_comment("someone", f"remark {index}")
    kept = github.add_comment(BOT, ours("old", 499))

    result = published(github, "new")

    assert (result.url, github.bodies(BOT)) == (url(kept), {kept: ours("new")})


def test_publish__300_foreign_comments__are_untouched(github: FakeGithub) -> None:
    for index in range(300):
        github.add_comment(f"user{index % 7}", f"remark {index}")
    foreign = github.bodies()

    published(github)

    assert github.bodies() == {**foreign, 401: ours("2 misaligned")}


def test_publish__marker_forged_by_someone_else__is_untouched(github: FakeGithub) -> None:
    forged = github.add_comment("mallory", ours("all aligned", 9_999))

    result = published(github)

    assert (result.action, github.bodies()) == (
        "created",
        {forged: ours("all aligned", 9_999), 102: ours("2 misaligned")},
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("see <!-- ci-autotest:ci-autotest -->", id="not the whole line"),
        pytest.param("hello\n<!-- ci-autotest:ci-autotest -->", id="not the first line"),
        pytest.param(ours("x", name="other"), id="of another check"),
        pytest.param(ours("x", name="ci-autotest-2"), id="of a check with a longer name"),
    ],
)
def test_publish__our_author_without_our_marker__is_untouched(github: FakeGithub, body: str) -> None:
    other = github.add_comment(BOT, body)

    published(github)

    assert github.bodies() == {other: body, 102: ours("2 misaligned")}


def test_publish__duplicates__converge_to_the_lowest_id(github: FakeGithub) -> None:
    for run_id in (497, 499, 498):
        github.add_comment(BOT, ours("old", run_id))

    result = published(github)

    assert (result.action, result.url, github.bodies()) == ("updated", url(101), {101: ours("2 misaligned")})


def test_publish__older_run_among_duplicates__keeps_the_newest_text(github: FakeGithub) -> None:
    for run_id in (510, 490, 505):
        github.add_comment(BOT, ours(f"text of {run_id}", run_id))

    result = published(github)

    assert (result.action, github.bodies()) == ("unchanged", {101: ours("text of 510", 510)})


def test_publish__older_run_while_the_newest_is_not_the_lowest__leaves_it_to_its_publisher(github: FakeGithub) -> None:
    for run_id in (490, 510, 495):
        github.add_comment(BOT, ours(f"text of {run_id}", run_id))

    published(github)

    assert github.bodies() == {101: ours("text of 490", 490), 102: ours("text of 510", 510)}


def test_publish__token_of_a_person__writes_under_that_name(github: FakeGithub) -> None:
    github.person, github.login, github.token = True, "hubot", "ghp_person"
    kept = github.add_comment("Hubot", ours("old", 499))
    forged = github.add_comment(BOT, ours("old", 499))

    # The server compares logins exactly; GitHub does not.
    github.login = "Hubot"
    result = published(github)

    assert (result.action, github.bodies()) == ("updated", {kept: ours("2 misaligned"), forged: ours("old", 499)})


def test_publish__token_of_another_app__finds_its_own_earlier_comment(github: FakeGithub) -> None:
    github.login = "aligner[bot]"
    kept = github.add_comment("aligner[bot]", ours("old", 499))

    result = published(github)

    assert (result.action, result.url, github.bodies()) == ("updated", url(kept), {kept: ours("2 misaligned")})


def test_publish__write_refused__degrades_and_names_the_permission(github: FakeGithub) -> None:
    github.plant(refusal("POST", x_accepted_github_permissions="issues=write; pull_requests=write"))

    assert published(github) == Published(
        url=None,
        action="degraded",
        message=(
            f"no comment was written: POST {github.base}{LIST} answered 403 (Resource not accessible by integration).\n"
            "The token lacks `pull-requests: write`; GitHub would accept issues=write; pull_requests=write. "
            "Add it to `permissions:` of the job; the report is in the job's summary and in the files."
        ),
    )


def test_publish__write_refused_on_a_fork__says_where_to_publish_from(github: FakeGithub) -> None:
    github.plant(refusal("POST"))
    target = PullRequestTarget(number=NUMBER, head_sha=SHA, from_fork=True)

    result = published(github, event=event_of(github, target=target))

    assert result.message.splitlines()[-1] == (
        "The pull request comes from a fork, where the token of a `pull_request` workflow can only read: "
        "publish from a `workflow_run` workflow."
    )


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(method="GET", path="comments", status=404, body=b'{"message": "Not Found"}'), id="404 list"),
        pytest.param(Fault(method="POST", status=404, body=b'{"message": "Not Found"}'), id="404 create"),
        pytest.param(Fault(method="POST", status=403, body=b"<html>proxy</html>"), id="403 without JSON"),
        pytest.param(refusal("GET", "comments"), id="403 list"),
    ],
)
def test_publish__refused__degrades(github: FakeGithub, fault: Fault) -> None:
    github.plant(fault)

    result = published(github)

    assert (result.url, result.action, "`pull-requests: write`" in result.message) == (None, "degraded", True)


@pytest.mark.parametrize(
    "fault", [refusal("PATCH"), Fault(method="PATCH", status=404, times=2)], ids=["403", "404 twice"]
)
def test_publish__update_refused__degrades(github: FakeGithub, fault: Fault) -> None:
    kept = github.add_comment(BOT, ours("old", 499))
    github.plant(fault)

    assert (published(github).action, github.bodies()) == ("degraded", {kept: ours("old", 499)})


def test_publish__comment_deleted_before_the_update__creates_one(github: FakeGithub) -> None:
    github.add_comment(BOT, ours("old", 499))
    github.plant(Fault(method="PATCH", status=404, then=github.comments.clear))

    assert (published(github).action, github.bodies()) == ("created", {102: ours("2 misaligned")})


def test_publish__duplicate_cannot_be_deleted__says_so(github: FakeGithub) -> None:
    github.add_comment(BOT, ours("2 misaligned"))
    github.add_comment(BOT, ours("2 misaligned"))
    github.plant(refusal("DELETE"))

    result = published(github)

    note = (
        f"Its duplicates stay (102): DELETE {github.base}/repos/{REPOSITORY}/issues/comments/102 answered 403 "
        "(Resource not accessible by integration). Delete them."
    )
    assert (result.url, result.message.splitlines()[1]) == (url(101), note)


def test_publish__duplicate_is_gone_already__is_fine(github: FakeGithub) -> None:
    github.add_comment(BOT, ours("2 misaligned"))
    github.add_comment(BOT, ours("2 misaligned"))
    github.plant(Fault(method="DELETE", status=404, applied=True))

    result = published(github)

    assert (result.message, list(github.bodies())) == (f"the comment already says this: {url(101)}", [101])


def test_actions_login__is_the_author_that_the_server_knows() -> None:
    assert ACTIONS_LOGIN == BOT

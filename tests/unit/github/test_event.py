from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ci_autotest.errors import PublishError
from ci_autotest.github.environ import read_access
from ci_autotest.github.event import (
    Event,
    HeadRepository,
    Owner,
    PullRequestTarget,
    RunTarget,
    WorkflowRun,
    read_event,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHA = "5f" * 20
HEAD = "ab" * 20
VARIABLE = "GITHUB_TOKEN"
#: Of a fork: GitHub names no pull request, and what stands there is not looked at.
RUN = {
    "id": 77, "run_attempt": 3, "head_sha": HEAD, "head_branch": "softmax", "pull_requests": [{"number": 666}],
    "head_repository": {"full_name": "mallory/kernels", "owner": {"login": "mallory"}},
}  # fmt: skip
TOLD = WorkflowRun(
    id=77, run_attempt=3, head_sha=HEAD, head_branch="softmax",
    head_repository=HeadRepository(full_name="mallory/kernels", owner=Owner(login="mallory")),
)  # fmt: skip


def pull_request(source: str | None = "octo/kernels") -> dict[str, Any]:
    head = {"sha": HEAD, "ref": "softmax", "repo": source and {"full_name": source, "fork": False}}
    return {"action": "opened", "pull_request": {"number": 12, "title": "x", "head": head, "base": {"ref": "main"}}}


@pytest.fixture
def environ(tmp_path: Path) -> Callable[..., dict[str, str]]:
    def build(payload: object = None, **changes: str) -> dict[str, str]:
        path = tmp_path / "event.json"
        path.write_text(json.dumps(pull_request() if payload is None else payload), encoding="utf-8")
        return {
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(path),
            "GITHUB_REPOSITORY": "octo/kernels",
            "GITHUB_TOKEN": "ghs_secret",
            "GITHUB_RUN_ID": "1234567890123",
            "GITHUB_RUN_ATTEMPT": "2",
            **changes,
        }

    return build


def refused(environ: dict[str, str]) -> str:
    with pytest.raises(PublishError) as caught:
        read_event(environ)
    return str(caught.value)


def test_read_event__pull_request__is_read_whole(environ) -> None:
    assert read_event(environ()) == Event(
        name="pull_request",
        repository="octo/kernels",
        api_url="https://api.github.com",
        server_url="https://github.com",
        token="ghs_secret",  # noqa: S106 - not one
        run_id=1234567890123,
        attempt=2,
        target=PullRequestTarget(number=12, head_sha=HEAD, from_fork=False, base="main"),
    )


@pytest.mark.parametrize(
    ("source", "from_fork"),
    [
        pytest.param("octo/kernels", False, id="same repository"),
        pytest.param("Octo/Kernels", False, id="same repository in other letters"),
        pytest.param("mallory/kernels", True, id="fork"),
        pytest.param(None, True, id="deleted fork"),
    ],
)
@pytest.mark.parametrize("name", ["pull_request", "pull_request_target"])
def test_read_event__head_repository__says_whether_it_is_a_fork(environ, name, source, from_fork) -> None:
    event = read_event(environ(pull_request(source), GITHUB_EVENT_NAME=name))

    assert event.target == PullRequestTarget(number=12, head_sha=HEAD, from_fork=from_fork, base="main")


def test_read_event__workflow_run__is_about_the_run_that_tested(environ) -> None:
    event = read_event(environ({"workflow_run": RUN}, GITHUB_EVENT_NAME="workflow_run"))

    assert (event.target, event.run_id, event.attempt) == (RunTarget(run_id=77, run=TOLD), 77, 3)


@pytest.mark.parametrize(
    ("name", "payload", "run_id", "target", "attempt"),
    [
        pytest.param("workflow_run", {"workflow_run": RUN}, 77, RunTarget(run_id=77, run=TOLD), 3, id="of the event"),
        pytest.param("workflow_run", {"workflow_run": RUN}, 78, RunTarget(run_id=78), 2, id="another"),
        pytest.param("workflow_dispatch", {}, 78, RunTarget(run_id=78), 2, id="event without a pull request"),
        pytest.param("pull_request", None, 78, RunTarget(run_id=78), 2, id="event with another pull request"),
    ],
)
def test_read_event__run_is_named__is_about_that_run(environ, name, payload, run_id, target, attempt) -> None:
    event = read_event(environ(payload, GITHUB_EVENT_NAME=name), run_id)

    assert (event.target, event.run_id, event.attempt) == (target, run_id, attempt)


@pytest.mark.parametrize(
    ("variables", "branch"),
    [
        ({"GITHUB_BASE_REF": "main", "GITHUB_REF_NAME": "12/merge"}, "main"),
        ({"GITHUB_BASE_REF": "", "GITHUB_REF_NAME": "release"}, "release"),
    ],
)
def test_read_access__branch__is_the_one_merged_into_else_the_one_pushed_to(environ, variables, branch) -> None:
    access = read_access(environ(**variables))

    assert (access.branch, access.repository, "ghs_secret" in repr(access)) == (branch, "octo/kernels", False)


def test_read_event__issue_comment_on_a_pull_request__leaves_open_what_it_does_not_say(environ) -> None:
    payload = {"issue": {"number": 12, "pull_request": {"url": "https://api.github.com/repos/octo/kernels/pulls/12"}}}
    event = read_event(environ(payload, GITHUB_EVENT_NAME="issue_comment"))

    assert event.target == PullRequestTarget(number=12, head_sha=None, from_fork=None)


def test_read_event__issue_comment_on_an_issue__is_refused(environ) -> None:
    variables = environ({"issue": {"number": 12}}, GITHUB_EVENT_NAME="issue_comment")

    assert refused(variables) == ("issue 12 of the event is not a pull request, so there is nothing to comment on.")


def test_read_event__this_run_is_named__its_own_event_has_the_pull_request(environ) -> None:
    variables = environ(pull_request("octo/kernels"), GITHUB_RUN_ID="500")

    assert read_event(variables, 500).target == PullRequestTarget(
        number=12, head_sha=HEAD, from_fork=False, base="main"
    )
    assert read_event(variables, 501).target == RunTarget(run_id=501)


def test_read_event__push__names_the_events_that_have_a_pull_request(environ) -> None:
    assert refused(environ(GITHUB_EVENT_NAME="push")) == (
        "event 'push' has no pull request to comment on: the events that have one are pull_request, "
        "pull_request_target, workflow_run, issue_comment. Publish from one of them, or name the run with --run-id."
    )


@pytest.mark.parametrize(
    "variable",
    [
        "GITHUB_EVENT_NAME",
        "GITHUB_EVENT_PATH",
        "GITHUB_REPOSITORY",
        "GITHUB_RUN_ID",
        "GITHUB_RUN_ATTEMPT",
    ],
)
def test_read_event__variable_is_missing__is_named(environ, variable) -> None:
    variables = environ()
    del variables[variable]

    assert refused(variables) == (
        f"{variable} is not set. Run this in a step of a GitHub workflow, which sets it, or set it yourself."
    )


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("GITHUB_REPOSITORY", "octo", "GITHUB_REPOSITORY 'octo' is not owner/name. Leave it as GitHub sets it."),
        ("GITHUB_REPOSITORY", "a/../b", "GITHUB_REPOSITORY 'a/../b' is not owner/name. Leave it as GitHub sets it."),
        ("GITHUB_RUN_ID", "0", "GITHUB_RUN_ID '0' is not a whole number from 1. Leave it as GitHub sets it."),
        ("GITHUB_RUN_ID", "१", "GITHUB_RUN_ID '१' is not a whole number from 1. Leave it as GitHub sets it."),
        ("GITHUB_RUN_ATTEMPT", "x", "GITHUB_RUN_ATTEMPT 'x' is not a whole number from 1. Leave it as GitHub sets it."),
    ],
)
def test_read_event__variable_is_ill_formed__is_shown(environ, variable, value, message) -> None:
    assert refused(environ(**{variable: value})) == message


@pytest.mark.parametrize(
    ("payload", "detail"),
    [
        pytest.param({}, "Object missing required field `pull_request`", id="another event"),
        pytest.param([], "Expected `object`, got `array`", id="no object"),
        pytest.param(
            {"pull_request": {"number": "12", "head": {"sha": HEAD, "repo": None}, "base": {"ref": "main"}}},
            "Expected `int`, got `str` - at `$.pull_request.number`",
            id="number as text",
        ),
        pytest.param(
            {"pull_request": {"number": 0, "head": {"sha": HEAD, "repo": None}, "base": {"ref": "main"}}},
            "Expected `int` >= 1 - at `$.pull_request.number`",
            id="number 0",
        ),
    ],
)
def test_read_event__payload_is_ill_formed__says_where(environ, payload, detail) -> None:
    variables = environ(payload)

    assert refused(variables) == (
        f"GITHUB_EVENT_PATH '{variables['GITHUB_EVENT_PATH']}' is not the event that GITHUB_EVENT_NAME names: {detail}."
    )


def test_read_event__file_is_not_there__says_so(environ) -> None:
    assert refused(environ(GITHUB_EVENT_PATH="/nowhere/event.json")) == (
        "GITHUB_EVENT_PATH '/nowhere/event.json' cannot be read: No such file or directory. "
        "Run this in a step of a workflow."
    )


def test_read_event__no_token__says_what_to_write(environ) -> None:
    assert refused(environ(**{VARIABLE: "  "})) == (
        "GITHUB_TOKEN is not set: commenting needs a token. Give the step `GITHUB_TOKEN: ${{ github.token }}`."
    )


@pytest.mark.parametrize("token", ["ghs_a\nX-Evil: 1", "ghs_a b", "ghs_\N{CHECK MARK}", "ghs_\x00"])
def test_read_event__token_is_ill_formed__is_not_shown(environ, token) -> None:
    assert refused(environ(**{VARIABLE: token})) == (
        "GITHUB_TOKEN has blanks or characters that no token has. Give the step a single token."
    )


def test_read_event__newline_after_the_token__is_dropped(environ) -> None:
    assert read_event(environ(**{VARIABLE: "ghs_secret\n"})).token == "ghs_secret"  # noqa: S105 - not one


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://api.github.com", id="not encrypted"),
        pytest.param("https://user:pass@api.github.com", id="user"),
        pytest.param("https://api.github.com?x=1", id="query"),
        pytest.param("https://api.github.com#x", id="fragment"),
        pytest.param("https://", id="no host"),
        pytest.param("https://[::1", id="half a bracket"),
        pytest.param("https://api github.com", id="blank"),
        pytest.param("file:///etc/passwd", id="file"),
    ],
)
@pytest.mark.parametrize("variable", ["GITHUB_API_URL", "GITHUB_SERVER_URL"])
def test_read_event__address_is_unsafe__is_refused(environ, variable, url) -> None:
    assert refused(environ(**{variable: url})) == (
        f"{variable} is not an https address without user, query and fragment: "
        "the token would be sent where others read it. Leave it as GitHub sets it."
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://git.example.com/api/v3/", "https://git.example.com/api/v3"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_read_event__address_of_another_server__is_kept(environ, given, kept) -> None:
    assert read_event(environ(GITHUB_API_URL=given)).api_url == kept


def test_event__representation__hides_the_token(environ) -> None:
    assert "ghs_secret" not in repr(read_event(environ()))


def test_run_url__any_event__is_the_page_of_the_run(environ) -> None:
    event = read_event(environ(GITHUB_SERVER_URL="https://git.example.com/"))

    assert event.run_url == "https://git.example.com/octo/kernels/actions/runs/1234567890123"

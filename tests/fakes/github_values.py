"""Build GitHub's JSON objects for the loopback server, with every field that the published description requires."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tests.fakes.github import Stored

Json: TypeAlias = dict[str, Any]

WHEN = "2026-11-20T10:00:00Z"

_USER_URLS = (
    "followers_url", "following_url", "gists_url", "starred_url", "subscriptions_url", "organizations_url", "repos_url",
    "events_url", "received_events_url",
)  # fmt: skip
_USER_COUNTS = (
    "public_repos", "public_gists", "followers", "following", "private_gists", "total_private_repos",
    "owned_private_repos", "disk_usage", "collaborators",
)  # fmt: skip
_USER_NULLS = ("name", "company", "blog", "location", "email", "hireable", "bio")
_REPOSITORY_URLS = (
    "archive_url", "assignees_url", "blobs_url", "branches_url", "collaborators_url", "comments_url", "commits_url",
    "compare_url", "contents_url", "contributors_url", "deployments_url", "downloads_url", "events_url", "forks_url",
    "git_commits_url", "git_refs_url", "git_tags_url", "hooks_url", "issue_comment_url", "issue_events_url",
    "issues_url", "keys_url", "labels_url", "languages_url", "merges_url", "milestones_url", "notifications_url",
    "pulls_url", "releases_url", "stargazers_url", "statuses_url", "subscribers_url", "subscription_url", "tags_url",
    "teams_url", "trees_url", "clone_url", "git_url", "ssh_url", "svn_url",
)  # fmt: skip
_REPOSITORY_COUNTS = (
    "forks", "forks_count", "open_issues", "open_issues_count", "size", "stargazers_count", "watchers",
    "watchers_count",
)  # fmt: skip
_REPOSITORY_FLAGS = ("has_downloads", "has_issues", "has_projects", "has_wiki", "has_pages", "archived", "disabled")
_REPOSITORY_NULLS = ("description", "homepage", "language", "mirror_url", "license")
_RUN_URLS = ("jobs_url", "logs_url", "check_suite_url", "artifacts_url", "cancel_url", "rerun_url", "workflow_url")
_PULL_URLS = (
    "diff_url", "patch_url", "issue_url", "commits_url", "review_comments_url", "review_comment_url", "comments_url",
    "statuses_url",
)  # fmt: skip
_PULL_NULLS = ("assignee", "body", "closed_at", "merged_at", "merge_commit_sha", "milestone", "auto_merge")
_PULL_LINKS = ("comments", "commits", "statuses", "html", "issue", "review_comments", "review_comment", "self")


def user(base: str, login: str) -> Json:
    """Return a ``simple-user``; its id is a number of its login."""
    url = f"{base}/users/{login}"
    kind = "Bot" if login.endswith("[bot]") else "User"
    fixed = {"login": login, "id": sum(login.encode()), "node_id": "U_1", "avatar_url": url, "gravatar_id": ""}
    named = {"url": url, "html_url": url, "type": kind, "site_admin": False}
    return {**fixed, **named, **{key: f"{url}/{key}" for key in _USER_URLS}}


def private_user(base: str, login: str) -> Json:
    """Return what ``GET /user`` answers to the token of a person."""
    counts = dict.fromkeys(_USER_COUNTS, 0)
    nulls = dict.fromkeys(_USER_NULLS)
    more = {"created_at": WHEN, "updated_at": WHEN, "two_factor_authentication": True, "user_view_type": "private"}
    return {**user(base, login), **counts, **nulls, **more}


def comment(base: str, repository: str, number: int, values: tuple[int, str, str]) -> Json:
    """Return an ``issue-comment`` of (id, login, body)."""
    comment_id, login, body = values
    issue_url = f"{base}/repos/{repository}/issues/{number}"
    return {
        "id": comment_id,
        "node_id": f"IC_{comment_id}",
        "url": f"{base}/repos/{repository}/issues/comments/{comment_id}",
        "html_url": f"https://github.com/{repository}/pull/{number}#issuecomment-{comment_id}",
        "issue_url": issue_url,
        "user": user(base, login),
        "body": body,
        "author_association": "NONE",
        "created_at": WHEN,
        "updated_at": WHEN,
    }


def repository(base: str, full_name: str) -> Json:
    """Return a ``repository``, which is a ``minimal-repository`` as well."""
    owner, name = full_name.split("/")
    url = f"{base}/repos/{full_name}"
    fixed = {"id": sum(full_name.encode()), "node_id": "R_1", "name": name, "full_name": full_name, "url": url}
    named = {"html_url": url, "owner": user(base, owner), "private": False, "fork": False, "default_branch": "main"}
    times = dict.fromkeys(("pushed_at", "created_at", "updated_at"), WHEN)
    urls = {key: f"{url}/{key}" for key in _REPOSITORY_URLS}
    counts = dict.fromkeys(_REPOSITORY_COUNTS, 0)
    flags = dict.fromkeys(_REPOSITORY_FLAGS, False)
    return {**fixed, **named, **times, **urls, **counts, **flags, **dict.fromkeys(_REPOSITORY_NULLS)}


def run(base: str, full_name: str, run_id: int, head: tuple[str, str, str]) -> Json:
    """Return a ``workflow-run`` whose head is (repository, branch, commit)."""
    source, branch, sha = head
    url = f"{base}/repos/{full_name}/actions/runs/{run_id}"
    fixed = {
        "id": run_id,
        "node_id": "WFR_1",
        "run_number": 7,
        "run_attempt": 1,
        "workflow_id": 3,
        "event": "pull_request",
    }
    named = {"display_title": "Align", "path": ".github/workflows/align.yml", "status": "completed"}
    state = {"conclusion": "failure", "created_at": WHEN, "updated_at": WHEN, "url": url, "html_url": url}
    where = {"head_branch": branch, "head_sha": sha, "head_commit": None, "pull_requests": []}
    repositories = {"repository": repository(base, full_name), "head_repository": repository(base, source)}
    return {**fixed, **named, **state, **where, **repositories, **{key: f"{url}/{key}" for key in _RUN_URLS}}


def job(base: str, full_name: str, run_id: int, given: tuple[int, str, str | None]) -> Json:
    """Return a ``job``: its id, its name, and how it ended."""
    number, name, conclusion = given
    run_url, url = (f"{base}/repos/{full_name}/actions/{what}" for what in (f"runs/{run_id}", f"jobs/{number}"))
    state = {"status": "completed" if conclusion else "in_progress", "conclusion": conclusion, "started_at": WHEN}
    where = {"run_id": run_id, "run_url": run_url, "head_sha": "5f" * 20, "head_branch": "softmax", "url": url}
    runner = {"runner_id": 1, "runner_name": "a", "runner_group_id": 2, "runner_group_name": "b", "labels": ["x"]}
    return {
        "id": number, "node_id": "CR_1", "name": name, "html_url": url, "check_run_url": url, "created_at": WHEN,
        "completed_at": WHEN if conclusion else None, "workflow_name": "align", "steps": [], **where, **state, **runner,
    }  # fmt: skip


def commit(base: str, full_name: str, sha: str, parents: list[str]) -> Json:
    """Return a ``commit``."""
    url = f"{base}/repos/{full_name}/commits/{sha}"
    by = {"name": "Ada", "email": "ada@example.org", "date": WHEN}
    told = {
        "author": by, "committer": by, "message": "Faster softmax", "tree": {"sha": sha, "url": url}, "url": url,
        "comment_count": 0,
        "verification": {"verified": False, "reason": "unsigned", "payload": None, "signature": None, "verified_at": None},
    }  # fmt: skip
    who = {"author": user(base, "octo"), "committer": user(base, "octo")}
    links = {key: f"{url}/{key}" for key in ("html_url", "comments_url")}
    return {
        "sha": sha,
        "node_id": "C_1",
        "url": url,
        "commit": told,
        **who,
        "parents": [{"sha": each, "url": url} for each in parents],
        **links,
    }


def pull(base: str, full_name: str, number: int, head: tuple[str, str, str]) -> Json:
    """Return a ``pull-request-simple`` from (repository, branch, commit) into ``main``."""
    url = f"{base}/repos/{full_name}/pulls/{number}"
    fixed = {"id": 1000 + number, "node_id": "PR_1", "number": number, "url": url, "html_url": url, "state": "open"}
    named = {"title": "Faster softmax", "locked": False, "labels": [], "author_association": "NONE"}
    times = {"created_at": WHEN, "updated_at": WHEN, "user": user(base, head[0].split("/")[0])}
    ends = {"head": _end(base, head), "base": _end(base, (full_name, "main", "0" * 40))}
    links = {"_links": {key: {"href": url} for key in _PULL_LINKS}}
    urls = {key: f"{url}/{key}" for key in _PULL_URLS}
    return {**fixed, **named, **times, **ends, **links, **urls, **dict.fromkeys(_PULL_NULLS)}


def _end(base: str, head: tuple[str, str, str]) -> Json:
    source, branch, sha = head
    owner = source.split("/")[0]
    return {
        "label": f"{owner}:{branch}",
        "ref": branch,
        "sha": sha,
        "repo": repository(base, source),
        "user": user(base, owner),
    }


def whole_pull(base: str, full_name: str, number: int, head: tuple[str, str, str]) -> Json:
    """Return a ``pull-request``: what is asked for by its number says more than one of a list."""
    counts = dict.fromkeys(("additions", "changed_files", "comments", "commits", "deletions", "review_comments"), 1)
    flags = {"merged": False, "mergeable": True, "maintainer_can_modify": False, "mergeable_state": "clean"}
    return {**pull(base, full_name, number, head), **counts, **flags, "merged_by": None}


def artifact(base: str, full_name: str, item: Stored) -> Json:
    """Return an ``artifact``; its run's head is in ``item.repository``."""
    url = f"{base}/repos/{full_name}/actions/artifacts/{item.id}"
    numbers = {"repository_id": sum(full_name.encode()), "head_repository_id": sum(item.repository.encode())}
    return {
        "id": item.id,
        "node_id": "A_1",
        "name": item.name,
        "size_in_bytes": len(item.data),
        "url": url,
        "archive_download_url": f"{url}/zip",
        "expired": item.expired,
        "digest": f"sha256:{hashlib.sha256(item.data).hexdigest()}",
        **dict.fromkeys(("created_at", "expires_at", "updated_at"), item.created_at),
        "workflow_run": {"id": item.run_id, **numbers, "head_branch": item.branch, "head_sha": item.sha},
    }

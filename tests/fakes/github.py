"""Be GitHub: the routes that are used over a state in memory, and faults that can be planted.

``tests/fakes/github_server.py`` serves it over real HTTP; ``tests/end_to_end/test_github_openapi.py`` holds requests and
answers against GitHub's published description.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from tests.fakes import github_values as values
from tests.fakes.github_parts import (
    REPOSITORY,
    Answer,
    Fault,
    Seen,
    Stored,
    faulty,
    forbidden,
    missing,
    refusal,
    unprocessable,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fakes.github_values import Json

__all__ = ["Answer", "FakeGithub", "Fault", "Seen", "Stored", "forbidden", "refusal"]
TOKEN = "ghs_" + "loopback0" * 4
NUMBER = 12
BOT = "github-actions[bot]"
SHA = "5f" * 20
#: Where archives are kept: another place than the API, though on the same port here.
_STORE = "/store/"


@dataclass
class FakeGithub:
    """Hold one repository with one or more pull requests, and every request that was made.

    Attributes:
        login: Author of what the token writes.
        person: ``GET /user`` answers; the token of an installation is refused.
        token: The one that is accepted.
        comments: (number, id, login, body), in order of their ids.
        heads: Head of each open pull request: (repository, branch, commit).
        closed: Pull requests that are closed or merged.
        locked: Pull requests whose conversation is locked.
        deleted: Pull requests whose head's repository was deleted.
        artifacts: Of every run, the oldest first.
        runs: Head of each workflow run.
        conclusions: How each run ended, if not well; ``None`` if it goes on.
        jobs: Name and conclusion of each job of a run; of no conclusion if it goes on.
        attempts: When the latest attempt of each run began, if not when everything else did.
        history: Each commit, with those before it.
        mount: Path that the API is under, as on an Enterprise Server.
        link_loop: Every page says that the first page is next.
        empty_pages: Pages of the comments that are empty, though others follow.
    """

    login: str = BOT
    person: bool = False
    base: str = ""
    mount: str = ""
    link_loop: bool = False
    empty_pages: frozenset[int] = frozenset()
    comments: list[tuple[int, int, str, str]] = field(default_factory=list)
    heads: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    locked: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    artifacts: list[Stored] = field(default_factory=list)
    token: str = TOKEN
    runs: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    conclusions: dict[int, str | None] = field(default_factory=dict)
    jobs: dict[int, list[tuple[str, str | None]]] = field(default_factory=dict)
    attempts: dict[int, str] = field(default_factory=dict)
    history: dict[str, list[str]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    stopped: threading.Event = field(default_factory=threading.Event)
    last_id: int = 100

    def plant(self, fault: Fault) -> None:
        """Let ``fault`` befall the next requests that match it."""
        with self.lock:
            self.faults.extend([fault] * fault.times)

    def add_comment(self, login: str, body: str, number: int = NUMBER) -> int:
        """Write a comment as ``login``, as if through a browser."""
        with self.lock:
            self.last_id += 1
            self.comments.append((number, self.last_id, login, body))
            return self.last_id

    def bodies(self, login: str | None = None) -> dict[int, str]:
        """Return the comments by id, of one author or of all."""
        with self.lock:
            return {key: body for _, key, author, body in self.comments if login in {None, author}}

    def replace_body(self, comment_id: int, body: str) -> None:
        """Overwrite a comment."""
        with self.lock:
            self.comments = [(n, key, who, body if key == comment_id else old) for n, key, who, old in self.comments]

    def calls(self) -> list[str]:
        """Return the requests so far: method and path, without those of reading."""
        with self.lock:
            return [f"{seen.method} {seen.path}" for seen in self.seen if seen.method != "GET"]

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        """Return what GitHub would answer, or what was planted."""
        mounted = target.startswith((self.mount, _STORE))
        parts = urlsplit(target.removeprefix(self.mount) if mounted else "/not/mounted")
        query = dict(parse_qsl(parts.query))
        content = json.loads(body) if body else None
        with self.lock:
            fault = self._fault(method, parts.path)
            carried = fault is None or fault.status is None or fault.applied
            answer = self._routed(method, parts.path, query, headers, content) if carried else Answer(status=500)
            if fault is not None:
                answer = faulty(fault, answer)
            self.seen.append(
                Seen(
                    method=method, path=parts.path, query=query, headers=headers, content=content, answer=answer,
                    planted=fault is not None and (fault.status is not None or fault.body is not None),
                )
            )  # fmt: skip
        return answer

    def _fault(self, method: str, path: str) -> Fault | None:
        for index, fault in enumerate(self.faults):
            if fault.method == method and re.search(fault.path, path):
                return self.faults.pop(index)
        return None

    def _routed(self, method: str, path: str, query: dict[str, str], headers: dict[str, str], content: Any) -> Answer:
        if path.startswith(_STORE):
            return self._blob(int(path.removeprefix(_STORE)), query=query, headers=headers)
        if headers.get("authorization") != f"Bearer {self.token}":
            return Answer(status=401, content={"message": "Bad credentials"})
        for expected, pattern, act in self._routes():
            found = re.fullmatch(pattern, path)
            if expected == method and found:
                return act(*(int(number) for number in found.groups()), query=query, content=content)
        return missing()

    def _routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        here = f"/repos/{REPOSITORY}"
        return [
            ("GET", "/user", self._user),
            ("GET", rf"{here}/issues/(\d+)/comments", self._list),
            ("POST", rf"{here}/issues/(\d+)/comments", self._create),
            ("PATCH", rf"{here}/issues/comments/(\d+)", self._update),
            ("DELETE", rf"{here}/issues/comments/(\d+)", self._delete),
            ("GET", rf"{here}/actions/runs/(\d+)", self._run),
            ("GET", rf"{here}/actions/runs/(\d+)/jobs", self._jobs),
            ("GET", rf"{here}/commits", self._commits),
            ("GET", rf"{here}/pulls", self._pulls),
            ("GET", rf"{here}/pulls/(\d+)", self._pull),
            ("GET", rf"{here}/actions/runs/(\d+)/artifacts", self._artifacts_of_run),
            ("GET", rf"{here}/actions/artifacts", self._artifacts),
            ("GET", rf"{here}/actions/artifacts/(\d+)/zip", self._archive),
        ]

    def _user(self, *, query: dict[str, str], content: Any) -> Answer:
        if self.person:
            return Answer(status=200, content=values.private_user(self.base, self.login))
        return forbidden()

    def _list(self, number: int, *, query: dict[str, str], content: Any) -> Answer:
        if number not in self.heads:
            return missing()
        rows = [row for row in self.comments if row[0] == number]
        page = self._page(rows, query, f"{self.base}/repos/{REPOSITORY}/issues/{number}/comments")
        return replace(page, content=[self._shown(*row) for row in page.content])

    def _create(self, number: int, *, query: dict[str, str], content: Any) -> Answer:
        if number not in self.heads:
            return missing()
        if number in self.locked:
            return Answer(status=403, content={"message": "Unable to create comment because issue is locked."})
        refused = unprocessable(content)
        if refused is not None:
            return refused
        comment_id = self.add_comment(self.login, content["body"], number)
        return Answer(status=201, content=self._shown(number, comment_id, self.login, content["body"]))

    def _update(self, comment_id: int, *, query: dict[str, str], content: Any) -> Answer:
        row = next((row for row in self.comments if row[1] == comment_id), None)
        if row is None or row[2] != self.login:
            return missing() if row is None else forbidden()
        refused = unprocessable(content)
        if refused is not None:
            return refused
        self.replace_body(comment_id, content["body"])
        return Answer(status=200, content=self._shown(row[0], comment_id, row[2], content["body"]))

    def _delete(self, comment_id: int, *, query: dict[str, str], content: Any) -> Answer:
        row = next((row for row in self.comments if row[1] == comment_id), None)
        if row is None or row[2] != self.login:
            return missing() if row is None else forbidden()
        self.comments.remove(row)
        return Answer(status=204)

    def _run(self, run_id: int, *, query: dict[str, str], content: Any) -> Answer:
        if run_id not in self.runs:
            return missing()
        state = {
            "conclusion": self.conclusions.get(run_id, "success"),
            "run_started_at": self.attempts.get(run_id, values.WHEN),
        }
        return Answer(status=200, content=values.run(self.base, REPOSITORY, run_id, self.runs[run_id]) | state)

    def _jobs(self, run_id: int, *, query: dict[str, str], content: Any) -> Answer:
        jobs = [
            values.job(self.base, REPOSITORY, run_id, (i, *job)) for i, job in enumerate(self.jobs.get(run_id, []), 1)
        ]
        page = self._page(jobs, query, f"{self.base}/repos/{REPOSITORY}/actions/runs/{run_id}/jobs")
        return replace(page, content={"total_count": len(jobs), "jobs": page.content})

    def _commits(self, *, query: dict[str, str], content: Any) -> Answer:
        found = [query["sha"], *self.history.get(query["sha"], [])]
        items = [values.commit(self.base, REPOSITORY, sha, self.history.get(sha, [])[:2]) for sha in found]
        return self._page(items, query, f"{self.base}/repos/{REPOSITORY}/commits")

    def _pulls(self, *, query: dict[str, str], content: Any) -> Answer:
        wanted = query.get("head")
        items = [
            self._headed(number, values.pull(self.base, REPOSITORY, number, head))
            for number, head in self.heads.items()
            if wanted in {None, f"{head[0].split('/')[0]}:{head[1]}"}
            and (query.get("state", "open") == "all" or number not in self.closed)
        ]
        return self._page(items, query, f"{self.base}/repos/{REPOSITORY}/pulls")

    def _pull(self, number: int, *, query: dict[str, str], content: Any) -> Answer:
        if number not in self.heads:
            return missing()
        whole = values.whole_pull(self.base, REPOSITORY, number, self.heads[number])
        return Answer(status=200, content=self._headed(number, whole))

    def _headed(self, number: int, pull: Json) -> Json:
        return {**pull, "head": {**pull["head"], "repo": None}} if number in self.deleted else pull

    def _artifacts_of_run(self, run_id: int, *, query: dict[str, str], content: Any) -> Answer:
        return self._artifact_page([item for item in self.artifacts if item.run_id == run_id], query)

    def _artifacts(self, *, query: dict[str, str], content: Any) -> Answer:
        return self._artifact_page([item for item in self.artifacts if query.get("name") in {None, item.name}], query)

    def _artifact_page(self, items: list[Stored], query: dict[str, str]) -> Answer:
        newest = sorted(items, key=lambda item: -item.id)
        page = self._page(newest, query, f"{self.base}/repos/{REPOSITORY}/actions/artifacts")
        shown = [values.artifact(self.base, REPOSITORY, item) for item in page.content]
        return replace(page, content={"total_count": len(items), "artifacts": shown})

    def _archive(self, artifact_id: int, *, query: dict[str, str], content: Any) -> Answer:
        item = next((item for item in self.artifacts if item.id == artifact_id), None)
        if item is None or item.expired:
            return missing() if item is None else Answer(status=410, content={"message": "Artifact has expired"})
        return Answer(
            status=302, headers={"Location": f"{self.base.removesuffix(self.mount)}{_STORE}{artifact_id}?sig=secret"}
        )

    def _blob(self, artifact_id: int, *, query: dict[str, str], headers: dict[str, str]) -> Answer:
        """Answer as the store does that GitHub sends to: whoever has the address gets the file, and no token is wanted."""
        if query != {"sig": "secret"} or "authorization" in headers:
            return Answer(status=403, raw=b"<Error>AuthenticationFailed</Error>")
        item = next(item for item in self.artifacts if item.id == artifact_id)
        return Answer(status=200, headers={"Content-Type": "application/zip"}, raw=item.data)

    def _shown(self, number: int, comment_id: int, login: str, body: str) -> Json:
        return values.comment(self.base, REPOSITORY, number, (comment_id, login, body))

    def _page(self, items: list[Any], query: dict[str, str], url: str) -> Answer:
        size, page = min(int(query.get("per_page", "30")), 100), int(query.get("page", "1"))
        if page in self.empty_pages and url.endswith("/comments"):
            more = {"Link": f'<{url}?per_page={size}&page={page + 1}>; rel="next"'}
            return Answer(status=200, content=[], headers=more)
        number = page - sum(empty < page for empty in self.empty_pages) if url.endswith("/comments") else page
        if self.link_loop:
            return Answer(status=200, content=items[:size], headers={"Link": f'<{url}?page=1>; rel="next"'})
        more = {"Link": f'<{url}?per_page={size}&page={page + 1}>; rel="next"'} if number * size < len(items) else {}
        return Answer(status=200, content=items[(number - 1) * size : number * size], headers=more)

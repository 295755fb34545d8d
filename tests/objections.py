"""What GitHub may have against a publication: each fault with what becomes of the comment.

The table is run twice: by ``tests/integration/test_objections.py`` for what is left on the server, and
by ``tests/end_to_end/test_github_openapi.py`` for every request and answer against GitHub's published
description.
"""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ci_autotest.commands.comment import Clock, Publication, comment
from ci_autotest.errors import AutotestError
from ci_autotest.report import report_json
from tests import program_samples as programs
from tests import report_samples as samples
from tests.archives import report_bytes, zipped
from tests.fakes import github_values as values
from tests.fakes.github import BOT, NUMBER, REPOSITORY, SHA, FakeGithub, Fault, Stored, refusal
from tests.publishing import FakeClock, ours

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ci_autotest.values.result import RunResult

Way = Literal["folder", "run"]

OWN = (REPOSITORY, "softmax", SHA)
FORK = ("mallory/kernels", "softmax", SHA)
RUN_ID = 77
STORED = Stored(id=900, name="ci-autotest-report", run_id=RUN_ID, data=b"", repository=FORK[0])


@dataclass(frozen=True)
class Objection:
    """Hold one fault.

    Attributes:
        arrange: Does it to the server.
        says: A part of what the command says.
        ours: How many comments of ours there are at the end.
        ways: In which it is met: with a report's folder, or with the artifacts of a run of a fork.
        tick_s: Seconds that pass with each look at the clock.
        undescribed: What GitHub answers though its description does not say so.
    """

    arrange: Callable[[FakeGithub], object]
    says: str
    ours: int = 1
    ways: tuple[Way, ...] = ("folder", "run")
    tick_s: float = 0.0
    undescribed: tuple[str, ...] = ()


def body(text: str) -> bytes:
    return json.dumps({"message": text}).encode()


def old_on_page_three(github: FakeGithub) -> None:
    for index in range(250):
        github.comments.insert(index, (NUMBER, -1000 + index, "someone", "earlier remark"))
    github.add_comment(BOT, ours("old", 70))


def without_repository(github: FakeGithub) -> None:
    run = {**values.run(github.base, REPOSITORY, RUN_ID, FORK), "head_repository": None}
    github.plant(Fault(method="GET", path=rf"runs/{RUN_ID}$", status=200, body=json.dumps(run).encode()))


def planted(**fault) -> Callable[[FakeGithub], None]:
    return lambda github: github.plant(Fault(**fault))


#: Of no pattern: compressed it is as long.
SLOW = b"[" + random.Random(0).randbytes(5_000)  # noqa: S311 - no secret
POST_403 = {"method": "POST", "status": 403}
LIST = {"method": "GET", "path": "comments"}
UNPROCESSABLE = json.dumps(
    {
        "message": "Validation Failed",
        "errors": [
            {"resource": "IssueComment", "code": "unprocessable", "field": "data", "message": "Body is too long"},
            {"resource": "IssueComment", "code": "missing", "field": "body"},
            "and more",
        ],
    }
).encode()
OBJECTIONS: dict[str, Objection] = {
    "none": Objection(lambda _: None, "(created)"),
    "403": Objection(lambda g: g.plant(refusal("POST")), "lacks `pull-requests: write`", 0),
    "403 on the list": Objection(lambda g: g.plant(refusal("GET", "comments")), "lacks `pull-requests: write`", 0),
    "403 with Retry-After": Objection(planted(**POST_403, headers={"Retry-After": "7"}), "(created)"),
    "403 with a long Retry-After": Objection(
        planted(**POST_403, headers={"Retry-After": "3600"}), "must wait 3,600 s", 0
    ),
    "403 with no requests left": Objection(
        planted(**POST_403, headers={"x-ratelimit-remaining": "0"}), "(created)"
    ),
    "secondary limit": Objection(
        planted(**POST_403, body=body("You have exceeded a secondary rate limit.")), "(created)"
    ),
    "429": Objection(planted(method="POST", status=429), "(created)"),
    "404": Objection(planted(method="POST", status=404, body=body("Not Found")), "lacks `pull-requests: write`", 0),
    "422": Objection(
        planted(method="POST", status=422, body=UNPROCESSABLE),
        "Validation Failed: Body is too long; body missing; and more", 0,
    ),
    "500 three times": Objection(planted(**LIST, status=500, times=3), "(created)"),
    "500 three times for the write": Objection(planted(method="POST", status=500, times=3), "(created)"),
    "500 for ever": Objection(planted(**LIST, status=500, times=99), "6 times in a row", 0),
    "502 after the comment was created": Objection(planted(method="POST", status=502, applied=True), "(created)"),
    "closed after the comment was created": Objection(planted(method="POST", status=0, applied=True), "(created)"),
    "502 after the comment was updated": Objection(
        lambda g: (old_on_page_three(g), g.plant(Fault(method="PATCH", status=502, applied=True))), "comment: http"
    ),
    "HTML for JSON": Objection(
        planted(**LIST, status=200, headers={"Content-Type": "text/html"}, body=b"<html>"), "it is not JSON", 0
    ),
    "Link loop": Objection(lambda g: setattr(g, "link_loop", True), "(created)"),
    "empty page in the middle": Objection(
        lambda g: (old_on_page_three(g), setattr(g, "empty_pages", frozenset({2}))), "(updated)"
    ),
    "slow drip": Objection(
        planted(**LIST, status=200, body=SLOW, drip_s=0.005), "is still being answered", 0, tick_s=10.0
    ),
    "ours on page 3": Objection(old_on_page_three, "(updated)"),
    "closed pull request": Objection(lambda g: g.closed.add(NUMBER), "(created)", ways=("folder",)),
    "closed or merged pull request of a run": Objection(
        lambda g: g.closed.add(NUMBER), "no open pull request", 0, ways=("run",)
    ),
    "locked pull request": Objection(lambda g: g.locked.add(NUMBER), "The conversation is locked", 0),
    "moved head": Objection(
        lambda g: g.heads.update({NUMBER: ("octo/kernels", "softmax", "ab" * 20)}), "no comment was written", 0
    ),
    "deleted fork": Objection(without_repository, "of a deleted repository", 0, ways=("run",)),
    "fork of the pull request deleted": Objection(
        lambda g: g.deleted.add(NUMBER), "no open pull request", 0, ways=("run",),
        # The schemas of its webhooks do, and the answer is so.
        undescribed=("GET /repos/octo/kernels/pulls: $[0].head.repo: None is not of type 'object'",),
    ),
    "two pull requests with one head": Objection(
        lambda g: g.heads.update({NUMBER + 1: FORK, NUMBER + 2: FORK}), f"pull/{NUMBER}#", ways=("run",)
    ),
    "no pull request of that number": Objection(lambda g: g.heads.clear(), "no comment was written", 0),
    "run cannot be read": Objection(
        lambda g: g.plant(refusal("GET", rf"runs/{RUN_ID}$")), "lacks `actions: read`", 0, ways=("run",)
    ),
    "artifacts cannot be read": Objection(
        lambda g: g.plant(refusal("GET", "artifacts")), "lacks `actions: read`", 0, ways=("run",)
    ),
    "no artifact": Objection(lambda g: g.artifacts.clear(), "has no artifact", 0, ways=("run",)),
    "artifact has expired": Objection(
        lambda g: g.artifacts.__setitem__(0, replace(g.artifacts[0], expired=True)), "has no artifact", 0, ways=("run",)
    ),
    "artifact expires meanwhile": Objection(
        planted(method="GET", path="/zip$", status=410, body=body("Artifact has expired")), "answered 410", 0, ways=("run",)
    ),
    "store sends elsewhere": Objection(
        planted(method="GET", path="/zip$", status=302, headers={"Location": "file:///etc/passwd"}),
        "is not an https address", 0, ways=("run",),
    ),
    "store fails three times": Objection(
        planted(method="GET", path="^/store/", status=503, times=3), "(created)", ways=("run",)
    ),
    "store answers HTML": Objection(
        planted(method="GET", path="^/store/", status=200, body=b"<html>"), "is not an archive", 0, ways=("run",)
    ),
}  # fmt: skip

CASES = [(name, way) for name, objection in OBJECTIONS.items() for way in objection.ways]


def arranged(github: FakeGithub, way: Way) -> dict[int, str]:
    """Give the server a pull request with many remarks, one of them a forged report; return what is not ours."""
    github.heads = {NUMBER: OWN if way == "folder" else FORK}
    github.runs = {RUN_ID: FORK}
    github.artifacts = [replace(STORED, data=archive_of(samples.misaligned(findings=(samples.finding(),))))]
    for index in range(50):
        github.add_comment(f"user{index % 7}", f"remark {index}")
    github.add_comment("mallory", ours("all aligned", 9_999))
    return github.bodies()


def archive_of(result: RunResult, **entries: bytes) -> bytes:
    """Return the artifact of a run, with the program of each of its findings."""
    program, tensors = programs.files()
    saved = {
        f"findings/{finding.id}/{name}": data
        for finding in result.findings
        for name, data in (("program.json", program), ("tensors.safetensors", tensors), ("repro.py", b"print('x')"))
    }
    return zipped(
        {"report.json": report_bytes(result), "junit.xml": b"<x/>", "comment.md": b"evil", **saved, **entries}
    )


def environ_of(github: FakeGithub, way: Way, folder: Path, event: str) -> dict[str, str]:
    """Return the environment of the step that publishes, with its event's file."""
    head = {"sha": SHA, "repo": {"full_name": REPOSITORY}}
    payload = {
        "pull_request": {"number": NUMBER, "head": head, "base": {"ref": "main"}},
        "workflow_run": values.run(github.base, REPOSITORY, RUN_ID, FORK),
    }
    (folder / "event.json").write_text(json.dumps(payload))
    return {
        "GITHUB_EVENT_NAME": "pull_request" if way == "folder" else event,
        "GITHUB_EVENT_PATH": str(folder / "event.json"), "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_TOKEN": github.token, "GITHUB_RUN_ID": "77", "GITHUB_RUN_ATTEMPT": "1", "GITHUB_SHA": SHA,
        "GITHUB_API_URL": github.base, "GITHUB_SERVER_URL": "https://github.com",
    }  # fmt: skip


def commented(
    github: FakeGithub,
    way: Way,
    folder: Path,
    clock: FakeClock | None = None,
    event: str = "workflow_dispatch",
    payload: dict | None = None,
    variables: dict[str, str] | None = None,
    **changes,
) -> tuple[int, str]:
    """Run the command in this process, as the action runs it; return its status and what it says."""
    if way == "folder" and not (folder / "report.json").exists():
        report_json.write(samples.misaligned(), folder / "report.json")
    time = clock or FakeClock()
    asked = {
        "folder": folder if way == "folder" else None, "run_id": None if way == "folder" else RUN_ID,
        "artifact_name": "ci-autotest-report", "name": "ci-autotest", "when": "failures",
        "baseline": "", "output": None,
    }  # fmt: skip
    environ = {**environ_of(github, way, folder, event), **(variables or {})}
    if payload is not None:
        (folder / "event.json").write_text(json.dumps(payload))
    stream = io.StringIO()
    try:
        publication = Publication(**{**asked, **changes})
        status = comment(publication, environ, stream, Clock(now=time, sleep=time.sleep))
    except AutotestError as error:
        return error.exit_code, str(error)
    return status, stream.getvalue()


def published_archive(github: FakeGithub, folder: Path, archive: bytes, **changes) -> tuple[int, str, str]:
    """Publish an artifact of a fork; return the status, what is said, and the comment."""
    arranged(github, "run")
    github.artifacts = [replace(STORED, data=archive)]
    status, said = commented(github, "run", folder, **changes)
    return status, said, next(iter(github.bodies(BOT).values()), "")

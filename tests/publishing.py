"""Publish to the server on the loopback device, under a clock that only moves when it is told to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import requests

from ci_autotest.errors import PublishError
from ci_autotest.github.comment import Published, publish
from ci_autotest.github.event import Event, PullRequestTarget, RunTarget
from ci_autotest.github.sticky import Turn, sticky
from tests.fake_github import NUMBER, REPOSITORY, SHA, TOKEN

if TYPE_CHECKING:
    from tests.fake_github import FakeGithub

LIST = f"/repos/{REPOSITORY}/issues/{NUMBER}/comments"
POST = f"POST {LIST}"


@dataclass
class FakeClock:
    """Tell a time that only ``sleep`` and ``tick_s`` move; seconds."""

    now_s: float = 0.0
    tick_s: float = 0.0
    slept_s: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


def event_of(
    github: FakeGithub, run_id: int = 500, attempt: int = 1, target: PullRequestTarget | RunTarget | None = None
) -> Event:
    return Event(
        name="pull_request",
        repository=REPOSITORY,
        api_url=github.base,
        server_url="https://github.com",
        token=TOKEN,
        sha=SHA,
        run_id=run_id,
        attempt=attempt,
        target=target or PullRequestTarget(number=NUMBER, head_sha=SHA, from_fork=False),
    )


def published(github: FakeGithub, body: str = "2 misaligned", event: Event | None = None, **options) -> Published:
    clock = options.pop("clock", FakeClock())
    with requests.Session() as session:
        return publish(event or event_of(github), body, session=session, clock=clock, sleep=clock.sleep, **options)


def refused(github: FakeGithub, **options) -> str:
    with pytest.raises(PublishError) as caught:
        published(github, **options)
    return str(caught.value)


def ours(text: str, run_id: int = 500, attempt: int = 1, name: str = "ci-autotest") -> str:
    return sticky(name, Turn(run_id, attempt), text).body


def url(comment_id: int) -> str:
    return f"https://github.com/{REPOSITORY}/pull/{NUMBER}#issuecomment-{comment_id}"

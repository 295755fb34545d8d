"""Publishers that meet: what is left when they are done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fakes.github import BOT, NUMBER, SHA, FakeGithub, Fault
from tests.fakes.github_server import serving
from tests.publishing import at_once, event_of, ours, published

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    with serving(FakeGithub(heads={NUMBER: ("octo/kernels", "softmax", SHA)})) as fake:
        yield fake


def test_publish__20_at_once__end_with_exactly_one_comment_of_the_newest(github: FakeGithub) -> None:
    failures = at_once(
        github, [{"text": f"of {500 + i}", "event": event_of(github, run_id=500 + i)} for i in range(20)]
    )

    (body,) = github.bodies().values()
    assert (failures, body) == ([], ours("of 519", 519))


def test_publish__overwritten_by_a_late_older_run__writes_again(github: FakeGithub) -> None:
    github.add_comment(BOT, ours("old", 490))
    github.plant(Fault(method="PATCH", then=lambda: github.replace_body(101, ours("late", 495))))

    result = published(github)

    assert (result.action, github.bodies()) == ("updated", {101: ours("2 misaligned")})


def test_publish__two_of_the_same_run__do_not_fight(github: FakeGithub) -> None:
    github.add_comment(BOT, ours("old", 490))
    github.plant(Fault(method="PATCH", times=50, then=lambda: github.replace_body(101, ours("the other's"))))

    published(github)

    assert [call.split()[0] for call in github.calls()] == ["PATCH"]

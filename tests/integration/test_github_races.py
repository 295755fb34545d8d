"""Publishers that meet: what is left when they are done."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
import requests

from ci_autotest.errors import PublishError
from ci_autotest.github.comment import publish
from tests.fake_github import BOT, NUMBER, SHA, FakeGithub, Fault
from tests.fake_github_server import serving
from tests.publishing import event_of, ours, published

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    with serving(FakeGithub(heads={NUMBER: ("octo/kernels", "softmax", SHA)})) as fake:
        yield fake


def test_publish__20_at_once__end_with_exactly_one_comment(github: FakeGithub) -> None:
    results, failures = [], []
    gate = threading.Barrier(20)

    def publish_one(run_id: int) -> None:
        with requests.Session() as session:
            event = event_of(github, run_id)
            gate.wait()
            try:
                results.append(
                    publish(
                        event, f"text of {run_id}", session=session, clock=time.monotonic,
                        sleep=lambda seconds: time.sleep(seconds / 20),
                    )
                )  # fmt: skip
            except PublishError as error:
                failures.append(str(error))

    threads = [threading.Thread(target=publish_one, args=(500 + index,)) for index in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (failures, len(results), len(github.bodies()), min(github.bodies())) == ([], 20, 1, 101)


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

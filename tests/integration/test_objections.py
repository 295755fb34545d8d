"""A GitHub that objects: after each fault at most one comment is ours, and none of anyone else's was touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.github import BOT, FakeGithub
from tests.fakes.github_server import serving
from tests.objections import CASES, OBJECTIONS, Way, arranged, commented

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    with serving(FakeGithub()) as fake:
        yield fake


@pytest.mark.parametrize(("name", "way"), CASES)
def test_comment__github_objects__at_most_one_comment_is_ours_and_no_other_is_touched(
    github: FakeGithub, tmp_path: Path, name: str, way: Way
) -> None:
    objection = OBJECTIONS[name]
    arranged(github, way)
    objection.arrange(github)
    foreign = {key: text for _, key, login, text in github.comments if login != BOT}

    status, said = commented(github, way, tmp_path, FakeClock(tick_s=objection.tick_s))

    assert objection.says in said
    assert len(github.bodies(BOT)) == objection.ours
    assert {key: text for key, text in github.bodies().items() if key not in github.bodies(BOT)} == foreign
    # 2 is a publication that failed; the action warns of it, and ends with the status of the tests.
    assert status == (0 if said.startswith("comment: ") else 2)
    assert github.token not in said


@pytest.mark.parametrize("way", ["folder", "run"])
def test_comment__twice__says_the_same_and_writes_once(github: FakeGithub, tmp_path: Path, way: Way) -> None:
    arranged(github, way)

    first, second = commented(github, way, tmp_path), commented(github, way, tmp_path)

    assert ("(created)" in first[1], "(unchanged)" in second[1], len(github.calls())) == (True, True, 1)

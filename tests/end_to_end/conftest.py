"""What several tests of the whole action share: making it takes a minute."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.action_repository import Repository, checked_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.action_runner import ActionRecord


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    yield from checked_out(tmp_path_factory.mktemp("action"))


@pytest.fixture(scope="session")
def planted(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> ActionRecord:
    """Run the action on the example as its users do, with an interpreter that has torch."""
    return repository.runner(tmp_path_factory.mktemp("run") / "scratch").run({"python": sys.executable})

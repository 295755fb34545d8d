"""How the tests are spread over processes, and what several tests of the whole action share."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.action_repository import Repository, checked_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.action_runner import ActionRecord


#: Files whose tests need a cluster of their own: two at once are more than a small machine has memory for.
CLUSTERS = {"test_ray", "test_ray_nodes"}


def pytest_xdist_auto_num_workers() -> int:
    """Return half as many processes again as there are cores: a run waits for its worker, and its worker for the run."""
    return (os.cpu_count() or 2) * 3 // 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests together that share a run: those of a file, and those of the action or of a cluster."""
    for item in items:
        file = item.path.stem
        shared = "cluster" if file in CLUSTERS else file
        item.add_marker(pytest.mark.xdist_group("action" if "repository" in item.fixturenames else shared))


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    yield from checked_out(tmp_path_factory.mktemp("action"))


@pytest.fixture(scope="session")
def planted(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> ActionRecord:
    """Run the action on the example as its users do, with an interpreter that has torch."""
    return repository.runner(tmp_path_factory.mktemp("run") / "scratch").run({"python": sys.executable})

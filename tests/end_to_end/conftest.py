"""How the tests are spread over processes, and what several tests of the whole action share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.action_repository import Repository, checked_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer

    from tests.action_runner import ActionRecord


#: Files that share the run of the action, and those with a Ray cluster, of which a machine has one at a time.
TOGETHER = {
    **dict.fromkeys(("test_action", "test_action_hostile", "test_action_jobs"), "action"),
    **dict.fromkeys(("test_ray", "test_ray_nodes"), "ray"),
}

#: Files that take minutes, mostly of waiting: they begin first, so that no process is left with one at the end.
LONGEST = (
    "test_rank_chaos", "test_ray_nodes", "test_ray", "test_hosts", "test_documentation", "test_action", "test_left_state",
    "test_data_parallel",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


class FilesTogether(LoadFileScheduling):
    """Give the tests of a file to one process, in order, because they share its runs."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(nodeid.partition("::")[0]).stem
        return TOGETHER.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesTogether:
    return FilesTogether(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return half as many processes again as there are cores: a run waits for its worker, and its worker for the run."""
    return (os.cpu_count() or 2) * 3 // 2


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    yield from checked_out(tmp_path_factory.mktemp("action"))


@pytest.fixture(scope="session")
def planted(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> ActionRecord:
    """Run the action on the example as its users do, with an interpreter that has torch."""
    return repository.runner(tmp_path_factory.mktemp("run") / "scratch").run({"python": sys.executable})

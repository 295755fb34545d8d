"""A worker told to read OneFlow's files: what it discovers, and how it counts a test that needs several ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ci_autotest.errors import UnsupportedReason
from ci_autotest.kinds import TorchCandidate
from ci_autotest.run.messages import CasesDone, Discover, Discovered, Hello, RunCases
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker.dispatch import Dispatcher
from tests.oneflow_files import text_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def dispatcher(tmp_path: Path) -> Dispatcher:
    for name in ("ranks", "twice", "tables"):
        (tmp_path / f"test_{name}.py").write_text(text_of(name))
    found = Dispatcher(ProgressBeacon.create(), lambda _: None)
    found.answer(
        Hello(
            root=str(tmp_path), folders=[], seed=0, strictness="tolerance", reference_device="cpu", tolerances=[],
            candidates=[TorchCandidate(name="torch")], compat="oneflow",
        )
    )  # fmt: skip
    return found


def discovered(dispatcher: Dispatcher, name: str) -> Discovered:
    answer = dispatcher.answer(Discover(f"test_{name}.py"))
    assert isinstance(answer, Discovered)
    return answer


def test_discover__lost_and_foreign_tests__are_told_beside_the_others(dispatcher: Dispatcher):
    twice, tables = discovered(dispatcher, "twice"), discovered(dispatcher, "tables")
    assert [(each.name, each.line) for each in twice.lost] == [("TestIt.test_it", 12)]
    assert [test.name for test in twice.tests] == ["TestIt.test_it", "TestIt.test_other"]
    assert (tables.foreign, tables.lost) == (1, [])


def test_run_cases__test_on_ranks__is_unsupported_by_its_reason_on_each_candidate(dispatcher: Dispatcher):
    test = next(each for each in discovered(dispatcher, "ranks").tests if each.name == "TestOneProcess.test_creation")
    done = dispatcher.answer(RunCases(test=test, cases=[0, 1, 2], candidates=["torch"]))
    assert isinstance(done, CasesDone)
    ((name, tally),) = done.pairs.items()
    (counted,) = tally.unsupported
    assert (name, counted.reason, counted.cases) == ("torch", UnsupportedReason.RANKS, 3)
    assert (done.test.empty, done.test.skipped, done.test.accepted, tally.aligned) == (0, 0, 0, 0)

"""Tests that skip: they are told as skipped with their reason, compare nothing and fail nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from junitparser import JUnitXml, Skipped

from tests.projects import Done, Project, environment, outcomes

if TYPE_CHECKING:
    from collections.abc import Mapping

BODIES = """
import unittest

import pytest


@autotest(n=4, profiles=[])
def plain():
    return torch.tanh(random_tensor(2, 3, 3))


@pytest.mark.skip(reason="needs the lab's board")
@autotest(n=4)
def marked():
    return torch.tanh(random_tensor(2, 3, 3)).no_such_method()


@autotest(n=4)
@pytest.mark.skipif(1 < 2, reason="one is less than two")
def conditional():
    return torch.tanh(random_tensor(2, 3, 3))


@autotest(n=4, profiles=[])
@pytest.mark.skipif(1 > 2, reason="never")
def unconditional():
    return torch.tanh(random_tensor(2, 3, 3))


@autotest(n=4)
def in_body():
    pytest.skip("no dataset here")


@autotest(n=4)
def by_unittest():
    raise unittest.SkipTest("no compiler here")


@autotest(n=8, profiles=[])
def in_part():
    size = random(1, 9).to(int)
    if size.value() > 4:
        pytest.skip("too large for the board")
    return torch.tanh(random_tensor(1, dim0=size))


@autotest(n=2, profiles=[])
@pytest.mark.parametrize("dim", [0, pytest.param(1, marks=pytest.mark.skip(reason="row 1"))])
def test_rows(dim):
    return torch.tanh(random_tensor(2, 3, 3)).sum(dim)


@autotest(n=4)
def expected():
    pytest.xfail("issue 3")


@unittest.skip("the whole class")
class TestAll(unittest.TestCase):
    @autotest(n=4)
    def test_one(test_case):
        return torch.tanh(random_tensor(2, 3, 3))


@pytest.mark.skip
class TestOthers:
    @autotest(n=4)
    def test_two(self):
        return torch.tanh(random_tensor(2, 3, 3))
"""
REASONS = {
    "marked": "needs the lab's board", "conditional": "one is less than two", "in_body": "no dataset here",
    "by_unittest": "no compiler here", "test_rows[1]": "row 1", "test_one": "the whole class",
    "test_two": "unconditional skip", "expected": "issue 3",
}  # fmt: skip
SKIPPED = set(REASONS)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Done]:
    project = Project(tmp_path_factory.mktemp("skipped"))
    project.tests(BODIES)
    project.substitute({"torch.tanh": "kernels.tanh"})
    project.write("kernels.py", "import torch\n\n\ndef tanh(x):\n    return torch.tanh(x)\n")
    return project, project.run()


def by_name(report: Mapping[str, Any]) -> dict[str, Any]:
    return {item["test"].rpartition("::")[2]: item for item in report["results"]}


def test_run__skipped_tests__are_told_with_their_reason_and_fail_nothing(ran: tuple[Project, Done]):
    project, done = ran
    report = project.report()
    found = {name: outcome for (name, _), outcome in outcomes(report).items()}
    assert {name for name, outcome in found.items() if outcome == "skipped"} == SKIPPED
    assert {outcome for name, outcome in found.items() if name not in SKIPPED} == {"aligned"}
    assert (done.status, report["broken"], report["summary"]["skipped"]) == (0, [], len(SKIPPED))
    results = by_name(report)
    assert {name: results[name]["skip_reason"] for name in SKIPPED} == REASONS
    assert all(results[name]["cases"]["not_run"] == 0 for name in SKIPPED)


def test_run__skipped_tests__terminal_and_junit_say_why(ran: tuple[Project, Done]):
    project, done = ran
    for reason in REASONS.values():
        assert f"skipped: {reason}" in done.said
    assert "; 8 pairs of test and candidate skipped" in done.said
    suites = JUnitXml.fromfile(str(project.folder / "autotest-report" / "junit.xml"))
    told = {case.name: each.message for suite in suites for case in suite for each in case.result
            if isinstance(each, Skipped)}  # fmt: skip
    assert told == {f"{name.replace('test_one', 'TestAll::test_one').replace('test_two', 'TestOthers::test_two')}"
                    "[kernels]": f"skipped: {reason}" for name, reason in REASONS.items()}  # fmt: skip


def test_run__some_cases_skipped__the_others_count_and_the_report_says_how_many(ran: tuple[Project, Done]):
    project, done = ran
    item = by_name(project.report())["in_part"]
    skipped = item["cases"]["skipped"]
    assert 0 < skipped < 8
    assert item["cases"]["aligned"] == 8 - skipped
    assert f"{skipped} of 8 cases skipped: too large for the board" in done.said


def test_run__nothing_but_skipped_tests__compared_nothing(tmp_path: Path):
    project = Project(tmp_path)
    project.tests('import pytest\n\n\n@autotest()\ndef only():\n    pytest.skip("none")\n')
    project.substitute({"torch.tanh": "torch.tanh"})
    done = project.run()
    assert (done.status, outcomes(project.report())) == (3, {("only", "kernels"): "skipped"})
    assert "✗ nothing was compared" in done.said


def test_pytest__body_that_skips__is_skipped_there_too(tmp_path: Path):
    project = Project(tmp_path)
    project.tests('import pytest\n\n\n@autotest(n=3)\ndef test_only():\n    pytest.skip("none")\n', "test_only.py")
    project.substitute({"torch.tanh": "torch.tanh"})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "test_only.py"], cwd=tmp_path,
        env=environment({}), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, "1 skipped" in done.stdout) == (0, True), done.stdout


def test_run__condition_of_skipif_is_text__says_what_to_write(tmp_path: Path):
    project = Project(tmp_path)
    project.tests(
        "import pytest\n\n\n@pytest.mark.skipif('1 < 2', reason='x')\n@autotest()\n"
        "def only():\n    return torch.tanh(random_tensor(1))\n"
    )
    project.substitute({"torch.tanh": "torch.tanh"})
    done = project.run()
    assert done.status == 1
    assert "the condition of skipif is the text '1 < 2'. Write the expression itself: skipif(1 < 2, " in done.said


def test_run__loader_that_is_skipped__is_not_observed(tmp_path: Path):
    project = Project(tmp_path)
    project.write(
        "autotests/autotest_all.py",
        "import pytest\n\nfrom ci_autotest import loadertest\n\n\n@pytest.mark.skip(reason='no data')\n@loadertest()\n"
        "def batches():\n    raise OSError\n",
    )
    done = project.run()
    item = by_name(project.report())["batches"]
    assert (done.status, item["outcome"], item["reason"]) == (3, "skipped", "skipped: no data")

"""``pytest.mark.xfail`` and ``unittest.expectedFailure``: findings of such a test are accepted, as pytest accepts them."""

from __future__ import annotations

import unittest
from typing import TYPE_CHECKING, Any

import pytest
from junitparser import JUnitXml

from tests.projects import Done, Project, outcomes

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = "import torch\n\n\ndef tanh(x):\n    return torch.tanh(x) + 1\n\n\ndef cos(x):\n    return torch.cos(x)\n"
HEAD = "import unittest\n\nimport pytest\n\n\n"
TEST = "@autotest(n=3)\ndef {name}():\n    return torch.{operator}(random_tensor(2, 3, 3))\n\n\n"
EXPECTED = [
    # the mark, the operator (the kernel of tanh is wrong), the outcome, the status, what is said
    ("xfail(reason='bug 7')", "tanh", "known", 0, "accepted: "),
    ("xfail(1 < 2, reason='bug 7', strict=True)", "tanh", "known", 0, "(expected failure: bug 7)"),
    ("xfail(1 > 2, reason='bug 7')", "tanh", "misaligned", 1, "misaligned: torch.tanh on kernels"),
    ("xfail(raises=ValueError)", "tanh", "misaligned", 1, "misaligned: torch.tanh on kernels"),
    ("xfail(raises=AssertionError)", "tanh", "known", 0, "(expected failure: no reason given)"),
    ("xfail(run=False, reason='bug 7')", "tanh", "skipped", 0, "skipped: [NOTRUN] bug 7"),
    ("xfail(reason='bug 7')", "cos", "aligned", 0, "only passed, although it is marked as an expected failure (bug 7)"),
    ("xfail(reason='bug 7', strict=True)", "cos", "aligned", 1, "strict"),
    ("xfail(1 > 2, reason='bug 7', strict=True)", "cos", "aligned", 0, "✓ aligned"),
]


def ran(folder: Path, body: str, *words: str) -> tuple[Project, Done]:
    project = Project(folder)
    project.tests(HEAD + TEST.format(name="other", operator="cos") + body)
    project.write("kernels.py", KERNELS)
    project.substitute({"torch.tanh": "kernels.tanh", "torch.cos": "kernels.cos"})
    return project, project.run("autotests", "-k", "only or other", *words)


@pytest.mark.parametrize(("mark", "operator", "outcome", "status", "said"), EXPECTED, ids=range(len(EXPECTED)))
def test_run__xfail(tmp_path: Path, mark: str, operator: str, outcome: str, status: int, said: str):
    project, done = ran(tmp_path, f"@pytest.mark.{mark}\n{TEST.format(name='only', operator=operator)}")
    report = project.report()
    assert (outcomes(report)["only", "kernels"], done.status) == (outcome, status), done.said
    assert said in done.said
    if operator == "cos" and status:
        assert "✗ 1 test passed, but was expected to fail: autotests/autotest_all.py::only" in done.said


def junit(project: Project) -> dict[str, list[Any]]:
    suites = JUnitXml.fromfile(str(project.folder / "autotest-report" / "junit.xml"))
    return {case.name: [(type(each).__name__, each.message) for each in case.result]
            for suite in suites for case in suite}  # fmt: skip


def test_junit__expected_failures__are_skipped_and_strict_passes_fail_as_in_pytest(tmp_path: Path):
    strict = "@pytest.mark.xfail(reason='bug 7', strict=True)\n"
    body = strict + TEST.format(name="only", operator="tanh") + strict + TEST.format(name="only_2", operator="cos")
    project, done = ran(tmp_path, body)
    said = "passed, although it is marked as an expected failure (bug 7) that is strict. Remove the mark."
    assert junit(project) == {
        "other[kernels]": [],
        "only[kernels]": [("Skipped", "expected failure: bug 7")],
        "only_2[kernels]": [("Failure", said)],
    }
    assert done.status == 1


def test_run__finding_of_another_test_too__counts_against_the_run(tmp_path: Path):
    marked = "@pytest.mark.xfail(reason='bug 7')\n" + TEST.format(name="only", operator="tanh")
    project, done = ran(tmp_path, marked + TEST.format(name="only_2", operator="tanh"))
    assert (done.status, project.report()["findings"][0]["known"]) == (1, None)


def test_run__expected_failure_and_exit_first__does_not_stop_the_run(tmp_path: Path):
    marked = "@pytest.mark.xfail(reason='bug 7')\n" + TEST.format(name="only", operator="tanh")
    project, done = ran(tmp_path, marked, "-x")
    assert done.status == 0, done.said
    assert set(outcomes(project.report()).values()) == {"aligned", "known"}


def test_run__shards_of_which_one_shows_the_failure__merged_it_is_no_unexpected_pass(tmp_path: Path):
    body = (
        "@pytest.mark.xfail(reason='bug 7', strict=True)\n@autotest(n=3, profiles=[])\ndef only():\n"
        "    n = random(1, 9).to(int)\n    x = random_tensor(1, dim0=n)\n"
        "    return torch.tanh(x) if n.value() == 4 else torch.cos(x)\n"
    )
    project, _ = ran(tmp_path, body.replace("n=3", "n=20"), "--shard", "1/2", "--output", "one")
    _, second = ran(tmp_path, body.replace("n=3", "n=20"), "--shard", "2/2", "--output", "two")
    assert "passed" not in second.said
    merged = project.command("report", "one", "two")
    assert merged.status == 0, merged.said
    assert project.report()["findings"][0]["known"] == "expected failure: bug 7"


def test_run__unittest_expected_failure__is_strict(tmp_path: Path):
    assert hasattr(unittest.expectedFailure(lambda: None), "__unittest_expecting_failure__")
    methods = "class TestAll(unittest.TestCase):\n" + "".join(
        f"    @unittest.expectedFailure\n    @autotest(n=2)\n    def test_{operator}_only(test_case):\n"
        f"        return torch.{operator}(random_tensor(2, 3, 3))\n\n"
        for operator in ("tanh", "cos")
    )
    project, done = ran(tmp_path, methods)
    found = outcomes(project.report())
    assert (done.status, found["test_tanh_only", "kernels"]) == (1, "known")
    assert "✗ 1 test passed, but was expected to fail" in done.said
    assert "test_cos_only" in done.said

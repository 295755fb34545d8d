"""``list``, ``report``, and the files of a run as other programs read them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

import ci_autotest.report
from tests.projects import Project

SCHEMA = json.loads((Path(ci_autotest.report.__file__).parent / "report.schema.json").read_text("utf-8"))
KERNELS = """
import torch


def exp(x):
    return torch.Tensor.exp(x)


def tanh(x):
    return torch.Tensor.tanh(x) + 1


def sin(x):
    return torch.Tensor.sin(x)
"""
TESTS = """
import unittest


@autotest(n=2)
def exp():
    return torch.exp(random_tensor())


@autotest(n=2, id="kept/name")
def tanh():
    return torch.tanh(random_tensor(ndim=1))


@autotest()
def rejected():
    return __import__("ci_autotest").assume(False)


def helper():
    return 3


class TestSin(unittest.TestCase):
    @autotest(n=1)
    def test_sin(self):
        return torch.sin(random_tensor(ndim=1))
"""
OTHER = """
@autotest(n=2)
def cos(test_case):
    return random_tensor().cos()
"""
LISTED = """\
autotests/autotest_a.py
  autotests/autotest_a.py::exp  line 7, 2 cases
  kept/name  line 12, 2 cases
  autotests/autotest_a.py::rejected  line 17, 5 cases
  autotests/autotest_a.py::TestSin::test_sin  line 27, 1 case
autotests/sub/test_b.py
  autotests/sub/test_b.py::cos  line 4, 2 cases
5 tests in 2 files
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project after a run with every kind of outcome that a report can hold."""
    project = Project(tmp_path_factory.mktemp("reported"))
    project.substitute({f"torch.{name}": f"mykernels.{name}" for name in ("exp", "tanh", "sin")}, cases=5)
    project.write("mykernels.py", KERNELS)
    project.tests(TESTS, "autotests/autotest_a.py")
    project.tests(OTHER, "autotests/sub/test_b.py")
    project.write("autotests/conftest.py", "raise RuntimeError('not a test file')\n")
    done = project.run()
    assert done.status == 1, done.said
    return project


def test_list__names_every_test_with_its_line_and_cases(project: Project):
    done = project.command("list")
    assert (done.status, done.out, done.err) == (0, LISTED, "")


def test_list__of_one_file__names_its_tests(project: Project):
    done = project.command("list", "autotests/sub")
    assert (done.status, done.out.splitlines()[-1]) == (0, "1 test in 1 file")


def test_list__file_does_not_import__is_1_and_the_rest_is_listed(project: Project, tmp_path: Path):
    copy = Project(Path(shutil.copytree(project.folder, tmp_path / "copy")))
    copy.write("autotests/autotest_broken.py", "from ci_autotest import autotest\nimport nowhere_at_all\n")
    done = copy.command("list")
    assert done.status == 1
    assert LISTED.rpartition("5 tests")[0] in done.out
    assert "autotests/autotest_broken.py does not import: ModuleNotFoundError: No module named" in done.said
    assert "/ci_autotest/" not in done.said


def test_report_json__of_a_run__is_valid_by_its_schema(project: Project):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(project.report(), SCHEMA)


def test_report_json__of_a_run__counts_what_it_lists(project: Project):
    report = project.report()
    outcomes = [item["outcome"] for item in report["results"]]
    assert sorted(outcomes) == ["aligned", "aligned", "misaligned", "not_run", "unsupported"]
    summary = {name: outcomes.count(name) for name in ("aligned", "misaligned", "not_run", "unsupported")}
    assert {name: report["summary"][name] for name in summary} == summary
    assert report["summary"]["findings"] == len(report["findings"]) == 1
    assert report["environment"].keys() >= {"ci_autotest", "python", "platform", "torch"}


def test_junit_xml__of_a_run__is_read_by_junitparser(project: Project):
    suites = JUnitXml.fromfile(str(project.folder / "autotest-report" / "junit.xml"))
    found = {
        (case.classname, case.name): [type(result) for result in case.result] for suite in suites for case in suite
    }
    first, second = "autotests/autotest_a.py", "autotests/sub/test_b.py"
    assert found == {
        (first, "exp[kernels]"): [],
        (first, "kept/name[kernels]"): [Failure],
        (first, "rejected[kernels]"): [Skipped],
        (first, "TestSin::test_sin[kernels]"): [],
        (second, "cos[kernels]"): [Skipped],
    }
    failure = next(case.result[0] for suite in suites for case in suite if case.name == "kept/name[kernels]")
    assert "misaligned: torch.tanh on kernels" in failure.text
    assert "import torch" in failure.text
    assert [(prop.name, prop.value) for suite in suites for prop in suite.properties()] == [
        ("seed", "0"), ("cases", "5"), ("seed", "0"), ("cases", "0"),
    ]  # fmt: skip


def test_junit_xml__of_a_file_that_does_not_import__is_an_error(project: Project, tmp_path: Path):
    copy = Project(Path(shutil.copytree(project.folder, tmp_path / "copy")))
    copy.write("autotests/autotest_broken.py", "from ci_autotest import autotest\nimport nowhere_at_all\n")
    done = copy.run("autotests/autotest_broken.py", "autotests/autotest_a.py::exp")
    assert done.status == 1, done.said
    suites = JUnitXml.fromfile(str(copy.folder / "autotest-report" / "junit.xml"))
    results = {case.name: [type(result) for result in case.result] for suite in suites for case in suite}
    assert results == {"exp[kernels]": [], "autotests/autotest_broken.py": [Error]}


def test_report__of_one_whole_run__is_that_run(project: Project):
    done = project.command("report", "autotest-report", "--output", "again")
    assert done.status == 1, done.said
    assert project.report("again") == project.report()
    names = [
        sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
        for folder in (project.folder / "autotest-report", project.folder / "again")
    ]
    assert names[0] == names[1]


def test_report__and_fail_on_never__is_not_1(project: Project):
    done = project.command("report", "autotest-report", "--output", "never", "--fail-on", "never")
    assert (done.status, project.report("never")["exit_code"]) == (3, 3), done.said


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: text[: len(text) // 2], "is not a report: "),
        (
            lambda text: text.replace("ci-autotest/report/1", "ci-autotest/report/9"),
            "has schema 'ci-autotest/report/9'",
        ),
        (lambda text: text.replace('"id": "', '"id": "../../'), "which is not a finding id. The file was edited."),
    ],
    ids=["truncated", "schema", "id"],
)
def test_report__of_a_damaged_report__is_refused(edit, message: str, project: Project, tmp_path: Path):
    text = (project.folder / "autotest-report" / "report.json").read_text("utf-8")
    copy = Project(tmp_path)
    copy.write("part/report.json", edit(text))
    done = copy.command("report", "part", "--output", "merged")
    assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1), done.said
    assert message in done.err
    assert not (tmp_path / "merged").exists()


def test_report__shards_of_two_runs__are_refused(project: Project, tmp_path: Path):
    report = project.report()
    copy = Project(tmp_path)
    copy.write("one/report.json", json.dumps({**report, "shard": [1, 2]}))
    copy.write("two/report.json", json.dumps({**report, "shard": [2, 2], "seed": 7}))
    done = copy.command("report", "one", "two")
    assert (done.status, done.err) == (
        2,
        "the reports have different seeds (0, 7): they are not shards of one run. Name the folders of one run only.\n",
    )


def test_report__a_shard_is_missing__is_refused(project: Project, tmp_path: Path):
    copy = Project(tmp_path)
    copy.write("one/report.json", json.dumps({**project.report(), "shard": [1, 2]}))
    done = copy.command("report", "one")
    assert (done.status, done.err) == (
        2,
        "shard 2 of 2 is missing, so its tests would not count. Name its folder too.\n",
    )

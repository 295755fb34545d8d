"""`--compat oneflow`: thirty files in OneFlow's style in one run, on torch itself and on a kernel with a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.oneflow_files import BROKEN, FILES, OTHERS, text_of
from tests.projects import Done, Project

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.heavy
KERNELS = "import torch\n\n\ndef tanh(x):\n    return torch.where(x > 0.5, torch.tanh(x) * 1.01, torch.tanh(x))\n"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Done]:
    project = Project(tmp_path_factory.mktemp("files"))
    for name in FILES:
        project.write(f"tests/test_{name}.py", text_of(name))
    project.write("kernels.py", KERNELS)
    project.configure(
        cases=6,
        paths=["tests"],
        candidates=[
            {"name": "itself", "backend": "torch"},
            {"name": "kernels", "backend": "substitute", "replace": {"torch.tanh": "kernels.tanh"}},
        ],
    )
    return project, project.run("--compat", "oneflow", "--workers", "2")


def found(report: Mapping[str, Any], candidate: str) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the results of a candidate by file and test."""
    split = ((item, item["test"].split("::", 1)) for item in report["results"] if item["candidate"] == candidate)
    return {(file[len("tests/test_") : -len(".py")], test.replace("::", ".")): item for item, (file, test) in split}


def test_run__thirty_files__each_test_has_its_outcome(ran: tuple[Project, Done]):
    project, done = ran
    report = project.report()
    results = found(report, "itself")
    broken = {key for key in BROKEN if "(line" not in key[1]}
    wrong = {
        key: item["outcome"] for key, item in results.items() if key not in broken and item["outcome"] != "aligned"
    }
    assert wrong == {(file, test): told for file, tests in OTHERS.items() for test, told in tests.items()}
    assert {file for file, _ in results} == set(FILES)
    assert done.status == 1, done.said


def test_run__broken_tests__are_told_with_the_users_file_and_line(ran: tuple[Project, Done]):
    project, _ = ran
    told = {item["test"]: item["message"] for item in project.report()["broken"]}
    expected = {
        f"tests/test_{file}.py::{test.replace('.', '::', 1)}": message.format(file=f"test_{file}.py")
        for (file, test), message in BROKEN.items()
    }
    assert told.keys() == expected.keys()
    assert {test for test, message in expected.items() if message not in told[test]} == set()


def test_run__ranks_and_missing_names__are_counted_by_reason(ran: tuple[Project, Done]):
    project, done = ran
    results = found(project.report(), "itself")
    reasons = {
        key: [(each["reason"], each["cases"]) for each in item["unsupported"]]
        for key, item in results.items()
        if key[0] in {"ranks", "missing"} and item["outcome"] == "unsupported"
    }
    assert reasons == {
        ("ranks", "TestIt.test_only_placed"): [("ranks", 6)],
        ("ranks", "TestOneProcess.test_creation"): [("ranks", 2)],
        ("ranks", "TestOneProcess.test_attribute"): [("ranks", 2)],
        ("ranks", "TestOneProcess.test_local"): [("ranks", 2)],
        ("missing", "TestIt.test_function"): [("other_api", 2)], ("missing", "TestIt.test_class"): [("other_api", 2)],
        ("missing", "TestIt.test_attribute"): [("other_api", 2)],
    }  # fmt: skip
    assert results["devices", "TestIt.test_two_devices"]["skip_reason"].startswith("needs 1 node with 2 devices")
    assert "1 test without @autotest is not run" in done.said


def test_run__kernel_with_a_fault__is_found_in_oneflows_file(ran: tuple[Project, Done]):
    project, _ = ran
    report = project.report()
    assert {(item["candidate"], item["operator"]) for item in report["findings"]} == {("kernels", "torch.tanh")}
    assert project.repro(report["findings"][0], "autotest-report", project.folder).status == 1


def test_list__compat__names_tests_and_counts_the_others(ran: tuple[Project, Done]):
    project, _ = ran
    done = project.command("list", "tests/test_tables.py", "tests/test_operators.py", "--compat", "oneflow")
    assert done.status == 0, done.said
    assert "tests/test_operators.py::TestIt::test_function  line 11, 4 cases" in done.out
    assert "1 test without @autotest is not run" in done.out
    assert "3 tests in 2 files" in done.out


def test_run__no_test_of_oneflow__says_so_in_a_sentence(ran: tuple[Project, Done]):
    project, _ = ran
    project.write("plain.py", "import oneflow\n\n\ndef helper():\n    return 1\n")
    done = project.run("plain.py", "--compat", "oneflow")
    said = "no test found in 'plain.py': 1 file read, it defines no function decorated with `autotest`. Without a "
    assert (done.status, done.err.startswith(said), len(done.err.splitlines())) == (3, True, 1)

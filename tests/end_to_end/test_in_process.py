"""A decorated function run where it is called: by pytest and by unittest, in their process, without isolation."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.projects import Done, Project, python

KERNELS = """
import torch


def exp(x):
    return torch.Tensor.exp(x)


def tanh(x):
    return torch.Tensor.tanh(x) + 1
"""
TESTS = """
import unittest

import pytest

from ci_autotest import autotest, random_tensor, torch


@autotest(n=3)
def test_exp_function():
    return torch.exp(random_tensor())


@autotest(n=3)
def test_exp_of_a_case(test_case):
    assert isinstance(test_case, unittest.TestCase)
    return torch.exp(random_tensor())


@autotest(n=3)
def test_tanh_function():
    return torch.tanh(random_tensor(ndim=2))


@autotest(n=3)
def test_rejected():
    return torch.matmul(random_tensor(ndim=2, dim0=3, dim1=4), random_tensor(ndim=2, dim0=3, dim1=4)).exp()


@autotest(n=3)
def test_wrong():
    return torch.exp(random_tensor()) + undefined


@pytest.mark.parametrize("n", [1])
def test_of_the_users_own(n):
    assert n == 1


class TestKernels(unittest.TestCase):
    @autotest(n=3)
    def test_exp_method(self):
        self.assertEqual(self.held, 3)
        return torch.exp(random_tensor())

    @autotest(n=3)
    def test_tanh_method(test_case):
        return torch.tanh(random_tensor(ndim=2))

    def setUp(self):
        self.held = 3

    def test_of_the_users_own(self):
        self.assertTrue(True)


if __name__ == "__main__":
    unittest.main()
"""
SAID = "ci-autotest: tests run in this process, without isolation; `ci-autotest run` gives each a worker."


def project_in(folder: Path) -> Project:
    project = Project(folder)
    project.substitute({"torch.exp": "mykernels.exp", "torch.tanh": "mykernels.tanh"})
    project.write("mykernels.py", KERNELS)
    project.write("test_kernels.py", TESTS)
    return project


@pytest.fixture(scope="module")
def by_pytest(tmp_path_factory: pytest.TempPathFactory) -> Done:
    project = project_in(tmp_path_factory.mktemp("pytest"))
    return python(project, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-s", "--color=no", "test_kernels.py")


@pytest.fixture(scope="module")
def by_unittest(tmp_path_factory: pytest.TempPathFactory) -> Done:
    project = project_in(tmp_path_factory.mktemp("unittest"))
    return python(project, "-m", "unittest", "-v", "test_kernels")


def reported(done: Done, word: str) -> set[str]:
    lines = [line.split(" - ")[0].rpartition("::")[2] for line in done.out.splitlines() if line.startswith(f"{word} ")]
    return set(lines)


def test_pytest__aligned_passes_and_misaligned_fails(by_pytest: Done):
    assert by_pytest.status == 1, by_pytest.said
    assert reported(by_pytest, "PASSED") == {
        "test_exp_function", "test_exp_of_a_case", "test_exp_method", "test_of_the_users_own[1]",
        "test_of_the_users_own",
    }  # fmt: skip
    assert reported(by_pytest, "FAILED") == {
        "test_tanh_function", "test_tanh_method", "test_rejected", "test_wrong",
    }  # fmt: skip


def test_pytest__misaligned__says_what_and_where(by_pytest: Done):
    lines = [line.removeprefix("E").strip() for line in by_pytest.out.splitlines()]
    first = "AssertionError: misaligned: torch.tanh on kernels: value of tanh is off by up to "
    at = next(number for number, line in enumerate(lines) if line.startswith(first))
    assert lines[at + 1].startswith("differs: value of tanh: ")
    assert lines[at + 2].startswith("candidate: float32[")
    assert lines[at + 5].startswith("first mismatch: [0, 0]: candidate ")
    assert lines[at + 6].startswith("blame: candidate: ")
    assert lines[at + 7].startswith(
        "test: test_kernels.py::test_tanh_function, case 0, seed 0, profile ordinary, test_"
    )
    assert "found = mykernels.tanh(x)" in lines[at:]
    assert (
        "confirmed in a fresh process, with a report: ci-autotest run test_kernels.py::test_tanh_function --seed 0"
        in lines[at:]
    )


def test_pytest__every_draw_is_rejected__fails_with_the_references_error(by_pytest: Done):
    said = (
        "test_kernels.py::test_rejected compared nothing on kernels: torch.matmul: RuntimeError: mat1 and mat2 shapes"
    )
    assert said in by_pytest.out


def test_pytest__body_is_wrong__says_where(by_pytest: Done):
    line = TESTS.splitlines().index("    return torch.exp(random_tensor()) + undefined") + 1
    said = f"the body raised NameError: name 'undefined' is not defined (test_kernels.py, line {line})"
    assert said in by_pytest.out


def test_pytest__without_isolation__says_so_once(by_pytest: Done):
    assert by_pytest.said.count(SAID) == 1


def test_unittest__methods__pass_and_fail(by_unittest: Done):
    assert by_unittest.status == 1, by_unittest.said
    assert "Ran 3 tests" in by_unittest.err
    assert "FAILED (failures=1)" in by_unittest.err
    assert "FAIL: test_tanh_method (test_kernels.TestKernels" in by_unittest.err
    assert (
        "  test: test_kernels.py::TestKernels::test_tanh_method, case 0, seed 0, profile boundary, test_kernels.py:"
    ) in by_unittest.err
    assert "AssertionError: misaligned: torch.tanh on kernels: value of tanh is" in by_unittest.err
    assert by_unittest.said.count(SAID) == 1


def test_run__the_same_tests__are_aligned_too(tmp_path: Path):
    project = project_in(tmp_path)
    names = ("test_exp_function", "test_exp_of_a_case", "TestKernels::test_exp_method")
    done = project.run(*(f"test_kernels.py::{name}" for name in names))
    found = {item["test"].partition("::")[2]: item["outcome"] for item in project.report()["results"]}
    assert (done.status, found) == (0, dict.fromkeys(names, "aligned")), done.said


def test_call__from_another_folder__finds_the_configuration_of_the_test_file(tmp_path: Path):
    project = project_in(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = ("-m", "pytest", "-p", "no:cacheprovider", f"{project.folder}/test_kernels.py::test_tanh_function")
    done = python(Project(elsewhere), *words)
    assert (done.status, "misaligned: torch.tanh on kernels" in done.out) == (1, True), done.said


UNUSABLE = """
import unittest

from ci_autotest import autotest, random_tensor, torch


@autotest(n=1)
def helper(test_case):
    return torch.exp(random_tensor())


class TestKernels(unittest.TestCase):
    @autotest(n=1)
    def test_method(self):
        return torch.exp(random_tensor())

    def test_that_calls_a_helper(self):
        helper(self)


@autotest(n=1)
def test_function():
    return torch.exp(random_tensor())
"""
REPLACED = "candidates: [{name: k, backend: substitute, replace: {torch.exp: %s}}]\n"
BROKEN = {
    "unknown key": ("casses: 3\n", "{folder}/autotest.yml: unknown key 'casses'. Did you mean 'cases'?"),
    "no YAML": ("candidates: [\n", "configuration {folder}/autotest.yml is not YAML, line 2, "),
    "unavailable candidate": (
        REPLACED % "nokernels.exp",
        "candidate 'k' is not available: replacement 'nokernels.exp' cannot be imported: ModuleNotFoundError: No module "
        "named 'nokernels'. It is looked for in the test file's folder, ",
    ),
    "kernel with a syntax error": (
        REPLACED % "broken.exp",
        "candidate 'k' is not available: replacement 'broken.exp' cannot be imported: SyntaxError: '(' was never closed "
        "(broken.py, line 3).\n",
    ),
    "operator that torch does not have": (
        (REPLACED % "mykernels.exp").replace("torch.exp:", "torch.expq:"),
        "candidate 'k': replace",
    ),
    "tolerance of no operator": (
        "tolerances: [{operator: torch.expq, rtol: 1, atol: 1, reason: x}]\ncandidates: [{name: t, backend: torch}]\n",
        "tolerances[0]: torch has no operator 'torch.expq'.",
    ),
}


def unusable_project(folder: Path, text: str) -> Project:
    project = Project(folder)
    project.write("autotest.yml", text)
    project.write("mykernels.py", KERNELS)
    project.write("broken.py", "import torch\n\ndef exp(x:\n    return x\n")
    project.write("test_kernels.py", UNUSABLE)
    return project


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_pytest__configuration_or_candidate_cannot_be_used__is_one_usage_error(text: str, message: str, tmp_path: Path):
    project = unusable_project(tmp_path, text)
    done = python(project, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "test_kernels.py")
    assert done.status == pytest.ExitCode.USAGE_ERROR, done.said
    assert done.said.count(message.format(folder=tmp_path)) == 1, done.said
    assert f"ERROR: {message.format(folder=tmp_path)}" in done.err
    assert [word for word in ("Traceback", "in_process.py", "testing.py", "FAILURES") if word in done.said] == []


def test_pytest__no_candidate__fails_that_test_and_the_others_go_on(tmp_path: Path):
    project = unusable_project(tmp_path, "cases: 3\n")
    project.write(
        "test_plain.py",
        "import pytest\n"
        + UNUSABLE
        + """

@pytest.mark.xfail
@autotest(n=1)
def test_expected_to_fail():
    return torch.exp(random_tensor())

def test_plain():
    assert True
""",
    )
    done = python(
        project,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--color=no",
        "-k",
        "function or plain or expected",
        "test_plain.py",
    )
    assert done.status == pytest.ExitCode.TESTS_FAILED, done.said
    assert done.said.count("no candidate to compare test_function with: ") == 2, done.said  # and the summary's line
    assert "no candidate to compare test_expected_to_fail with: " in done.out
    assert "Traceback" not in done.said


def test_pytest__test_with_a_fixture__is_told_with_its_line_and_a_command_that_runs_it(tmp_path: Path):
    project = Project(tmp_path)
    project.write("autotest.yml", REPLACED % "mykernels.exp")
    project.write("mykernels.py", "import torch\n\ndef exp(x):\n    return torch.exp(x) + 1\n")
    project.write(
        "test_fixture.py",
        "import pytest\n"
        "from ci_autotest import autotest, random_tensor, torch\n"
        """
@pytest.fixture
def width():
    return 3


@autotest(n=2)
def test_exp(width):
    return torch.exp(random_tensor(1, width))
""",
    )
    done = python(project, "-m", "pytest", "-p", "no:cacheprovider", "--color=no")
    # Where CI is set, pytest's summary repeats the whole message.
    failure = done.out.partition("short test summary")[0]
    lines = [line.removeprefix("E").strip() for line in failure.splitlines()]
    assert any(line.startswith("test: test_fixture.py::") and line.endswith("test_fixture.py:9") for line in lines), (
        done.said
    )
    (again,) = [line.partition(": ")[2] for line in lines if line.startswith("the same again: ")]
    assert again == "pytest test_fixture.py::test_exp --autotest-seed 0"
    assert python(project, "-m", *again.split(), "-p", "no:cacheprovider").status == pytest.ExitCode.TESTS_FAILED


def test_pytest__misalignment_of_large_tensors__is_shown_by_a_program_that_runs_when_pasted(tmp_path: Path):
    project = Project(tmp_path)
    project.write("autotest.yml", REPLACED % "mykernels.exp")
    project.write(
        "mykernels.py", "import torch\n\ndef exp(x):\n    return torch.where(x > 1, torch.exp(x) + 1, x.exp())\n"
    )
    project.write(
        "test_exp.py",
        "from ci_autotest import autotest, random_tensor, torch\n\n\n@autotest(n=20)\ndef test_exp():\n"
        "    return torch.exp(3 * random_tensor(2, 30, 40)).sum(0)\n",
    )
    done = python(project, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", "--autotest-output", "report")
    failure = done.out.partition("short test summary")[0]
    assert "pattern as found: only where x is" in failure, done.said
    lines = failure.splitlines()
    first = next(at for at, line in enumerate(lines) if line.strip() == "import torch")
    last = next(at for at, line in enumerate(lines) if "assert_close(" in line)
    project.write("pasted.py", textwrap.dedent("\n".join(lines[first : last + 1])))
    pasted = python(project, "pasted.py")
    assert (pasted.status, "AssertionError: " in pasted.err) == (1, True), pasted.said
    (replay,) = [line.partition("replay: python ")[2] for line in lines if "replay: python " in line]
    assert sorted(path.name for path in (project.folder / replay).parent.iterdir()) == [
        "README.md", "program.json", "repro.py", "tensors.safetensors"
    ]  # fmt: skip
    again = python(project, replay)
    assert again.status == 1, again.said


CRASHING = """
import ctypes

import torch


def exp(x):
    if x.numel() < 4:
        ctypes.string_at(0)
    return torch.exp(x) + 1
"""


def test_pytest__kernel_that_crashes_on_smaller_inputs__is_shown_as_it_was_found(tmp_path: Path):
    project = Project(tmp_path)
    project.write("autotest.yml", REPLACED % "mykernels.exp")
    project.write("mykernels.py", CRASHING)
    project.write(
        "test_exp.py",
        "from ci_autotest import autotest, random_tensor, torch\n\n\n@autotest(n=1)\ndef test_exp():\n"
        "    return torch.exp(random_tensor(2, 3, 2))\n\n\ndef test_other():\n    assert True\n",
    )
    done = python(project, "-m", "pytest", "-p", "no:cacheprovider", "--color=no")
    assert (done.status, "1 failed, 1 passed" in done.out) == (1, True), done.said
    assert "misaligned: torch.exp on k: value of exp is" in done.out
    assert "found = mykernels.exp(x)" in done.out
    assert "Fatal Python error" not in done.said


def test_pytest__output_that_cannot_be_written__is_a_usage_error(tmp_path: Path):
    project = Project(tmp_path)
    project.write("test_exp.py", "def test_other():\n    assert True\n")
    done = python(project, "-m", "pytest", "-p", "no:cacheprovider", "--autotest-output", "test_exp.py/report")
    assert done.status == pytest.ExitCode.USAGE_ERROR, done.said
    assert "Choose another with --autotest-output." in done.err, done.said
    assert "Traceback" not in done.said


def test_pytest__helper_with_an_unusable_candidate__is_one_usage_error(tmp_path: Path):
    project = unusable_project(tmp_path, REPLACED % "nokernels.exp")
    done = python(project, "-m", "pytest", "-p", "no:cacheprovider", "-k", "helper", "test_kernels.py")
    assert (done.status, done.said.count("candidate 'k' is not available: ")) == (4, 1), done.said


def test_pytest__workers_of_xdist__stop_with_the_message_alone(tmp_path: Path):
    project = unusable_project(tmp_path, REPLACED % "nokernels.exp")
    done = python(project, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", "--color=no", "test_kernels.py")
    assert (done.status != 0, "candidate 'k' is not available: " in done.out) == (True, True), done.said
    assert [word for word in ("Traceback", "in_process.py", "INTERNALERROR", "crashed") if word in done.said] == []


@pytest.mark.parametrize(
    ("text", "message"),
    # What is wrong is found before pytest and unittest part ways.
    [
        pytest.param(*row, id=name, marks=[pytest.mark.matrix] * (at > 1))
        for at, (name, row) in enumerate(BROKEN.items())
    ],
)
def test_unittest__configuration_or_candidate_cannot_be_used__is_one_message(text: str, message: str, tmp_path: Path):
    done = python(unusable_project(tmp_path, text), "-m", "unittest", "test_kernels")
    assert (done.status, "FAILED (errors=1)" in done.err) == (1, True), done.said
    assert done.said.count(message.format(folder=tmp_path)) == 1, done.said
    assert [word for word in ("Traceback", "in_process.py", "testing.py") if word in done.said] == []


def test_unittest__misaligned__shows_the_message_without_our_frames(by_unittest: Done):
    assert [word for word in ("in_process.py", "testing.py") if word in by_unittest.err] == []


def test_unittest__candidate_cannot_be_used_where_a_failure_is_expected__is_no_success(tmp_path: Path):
    project = Project(tmp_path)
    project.write(
        "autotest.yml", "candidates: [{name: kernels, backend: substitute, replace: {torch.exp: nowhere.exp}}]\n"
    )
    project.write(
        "test_kernels.py",
        "import unittest\nfrom ci_autotest import autotest, random_tensor, torch\n\n\n"
        "class TestKernels(unittest.TestCase):\n    @unittest.expectedFailure\n    @autotest(n=2)\n"
        "    def test_exp(self):\n        return torch.exp(random_tensor())\n",
    )
    done = python(project, "-m", "unittest", "test_kernels")
    assert done.status == 1, done.said

"""What a pytest user expects of `@autotest`: -k, ids, parametrize, fixtures, the plugin's options, known differences."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.projects import Done, Project, python

KERNELS = """
import torch


def tanh(x):
    return torch.Tensor.tanh(x) + 1


def softmax(x, dim):
    return torch.Tensor.softmax(x, dim) * (1.5 if dim == 1 else 1)
"""
TESTS = """
import pytest

from ci_autotest import autotest, random_tensor, torch


@pytest.mark.parametrize("dim", [0, 1])
@autotest(n=2)
def test_softmax(dim):
    return torch.softmax(random_tensor(ndim=2), dim)


@autotest(n=2)
@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 2), (torch.float64, 0.5)], ids=["single", "double"])
def test_scaled(test_case, dtype, scale):
    test_case.assertIn(scale, (2, 0.5))
    return torch.softmax(random_tensor(ndim=2, dtype=dtype), 0) * scale


@autotest(n=2)
def test_tanh():
    return torch.tanh(random_tensor(ndim=2))


@pytest.fixture
def width():
    return 3


@autotest(n=2)
def test_with_fixture(width):
    return torch.softmax(random_tensor(2, 2, width), 0)


@autotest(n=2)
def _helper(test_case, rows, columns):
    return torch.softmax(random_tensor(2, rows, columns), 0)


def test_helper_in_a_loop():
    for rows, columns in ((1, 2), (3, 4)):
        _helper(None, rows, columns)


class TestOfAClass:
    @pytest.mark.parametrize("dim", [0])
    @autotest(n=2)
    def test_softmax_method(self, dim):
        return torch.softmax(random_tensor(ndim=2), dim)
"""
OBJECTS = """
import pytest

from ci_autotest import autotest, random_tensor, torch


class Thing:  # without a text of its own: Python writes its address
    pass


@pytest.fixture
def thing(tmp_path):
    return Thing(), tmp_path


@autotest(n=2)
def test_with_an_object(thing):
    return torch.tanh(random_tensor(ndim=2))


@pytest.mark.parametrize("held", [Thing(), Thing()])
@autotest(n=2)
def test_of_objects(held):
    return torch.tanh(random_tensor(ndim=2))


class TestOfAClass:
    @autotest(n=2)
    def test_method(self):
        return torch.tanh(random_tensor(ndim=2))
"""
REPLACE = {"torch.tanh": "mykernels.tanh", "torch.nn.functional.softmax": "mykernels.softmax"}


def project_in(folder: Path, **keys: object) -> Project:
    project = Project(folder)
    project.substitute(REPLACE, **keys)
    project.write("mykernels.py", KERNELS)
    project.write("test_kernels.py", TESTS)
    return project


def run_pytest(project: Project, *words: str) -> Done:
    return python(project, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "--color=no", *words)


def reported(done: Done) -> dict[str, str]:
    found = re.findall(r"^(PASSED|FAILED) test_kernels\.py::(\S+)", done.out, re.MULTILINE)
    return {name: word for word, name in found}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return project_in(tmp_path_factory.mktemp("plugin"))


def test_pytest__everything_that_a_user_writes__is_collected_and_judged(project: Project):
    done = run_pytest(project)
    assert reported(done) == {
        "test_softmax[0]": "PASSED", "test_softmax[1]": "FAILED", "test_scaled[single]": "PASSED",
        "test_scaled[double]": "PASSED", "test_tanh": "FAILED", "test_with_fixture": "PASSED",
        "test_helper_in_a_loop": "PASSED", "TestOfAClass::test_softmax_method[0]": "PASSED",
    }, done.said  # fmt: skip
    assert "test: test_kernels.py::test_softmax[1], case 0, seed 0, profile ordinary" in done.out


def test_pytest__arguments_without_a_text__have_the_same_inputs_each_time_and_a_command_that_works(tmp_path: Path):
    project = project_in(tmp_path)
    project.write("test_kernels.py", OBJECTS)
    first, again = (run_pytest(project) for _ in range(2))
    told = re.findall(r"test: (\S+), case 0, seed 0", first.out)
    assert set(told) == {
        "test_kernels.py::TestOfAClass::test_method", "test_kernels.py::test_with_an_object[tuple]",
        "test_kernels.py::test_of_objects[Thing]",
    }, first.said  # fmt: skip
    pair = r"first mismatch: .*"
    assert re.findall(pair, first.out) == re.findall(pair, again.out) != []
    done = project.command("run", "test_kernels.py::TestOfAClass::test_method", "--seed", "0")
    assert done.status == 1, done.said
    listed = project.command("list", "test_kernels.py")
    assert [name for name in ("test_of_objects[Thing]", "test_of_objects[Thing-2]") if name not in listed.out] == []


OF_ANY_NAME = """
import pytest

from ci_autotest import autotest, loadertest, random_tensor, torch
from test_kernels import test_tanh


@autotest(n=2)
def softmax():
    return torch.softmax(random_tensor(ndim=2), 0)


@pytest.mark.parametrize(("dim", "scale"), [(0, 1), (1, 2)])
@autotest(n=2)
def scaled(dim, scale):
    return torch.softmax(random_tensor(ndim=2), dim) * scale


@autotest(n=2)
def helper(rows):
    return torch.softmax(random_tensor(2, rows, 3), 0)


@loadertest()
def loader():
    return None


def undecorated():
    pass
"""


@pytest.mark.parametrize("asked", [[], ["autotest_more.py"], ["-o", "python_files=autotest_*.py"]])
def test_pytest__file_named_autotest__has_the_tests_that_a_run_has(project: Project, asked: list[str]):
    project.write("autotest_more.py", OF_ANY_NAME)
    project.write("autotest_of_a_stranger.py", "raise SystemExit\n")
    done = run_pytest(project, "--collect-only", "-q", "--ignore=test_kernels.py", *asked)
    (project.folder / "autotest_more.py").unlink()
    (project.folder / "autotest_of_a_stranger.py").unlink()
    names = ["softmax", "scaled[0-1]", "scaled[1-2]", "loader"]
    lines = [line.partition("::")[2] for line in done.out.splitlines() if line.startswith("autotest_more.py::")]
    assert lines == ["test_tanh", *names], done.said


def test_pytest__k_and_an_id__choose(project: Project):
    assert reported(run_pytest(project, "-k", "scaled and double")) == {"test_scaled[double]": "PASSED"}
    assert reported(run_pytest(project, "test_kernels.py::test_softmax[0]")) == {"test_softmax[0]": "PASSED"}


def test_pytest__options__give_cases_seed_and_candidate(project: Project):
    words = ("-k", "tanh", "--autotest-cases=1", "--autotest-seed=7")
    done = run_pytest(project, *words)
    assert reported(done) == {"test_tanh": "FAILED"}
    assert "autotest: cases 1, seed 7" in done.out
    assert "test: test_kernels.py::test_tanh, case 0, seed 7, profile ordinary" in done.out
    # Where CI is set, pytest's summary repeats the message.
    (hint,) = set(re.findall(r"confirmed in a fresh process, with a report: ci-autotest (.*)", done.out))
    assert hint == "run test_kernels.py::test_tanh --seed 7 --cases 1"
    assert project.command(*shlex.split(hint)).status == 1
    by_name = run_pytest(project, "-k", "softmax[1]", "--autotest-candidate=kernels")
    assert "ci-autotest run 'test_kernels.py::test_softmax[1]' --seed 0 --candidate kernels\n" in by_name.out
    by_torch = run_pytest(project, *words, "--autotest-candidate=torch")
    assert (reported(by_torch), "candidates torch" in by_torch.out) == ({"test_tanh": "PASSED"}, True)


def test_pytest__seed_random__is_shown_and_repeats(project: Project):
    first = run_pytest(project, "-k", "tanh", "--autotest-seed=random")
    (seed,) = re.findall(r"^autotest: seed (\d+)$", first.out, re.MULTILINE)
    again = run_pytest(project, "-k", "tanh", f"--autotest-seed={seed}")
    pair = r"first mismatch: .*"
    assert re.findall(pair, first.out) == re.findall(pair, again.out) != []


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--autotest-cases=0", "--autotest-cases is '0': give 1 or more."),
        ("--autotest-seed=x", "--autotest-seed is 'x': give a number from 0 to 9223372036854775807, or random."),
        ("--autotest-candidate=kernel", "ERROR: unknown candidate 'kernel'. Did you mean 'kernels'?"),
    ],
)
def test_pytest__bad_option__says_what_to_give(project: Project, word: str, said: str):
    done = run_pytest(project, "-k", "tanh", word)
    assert (done.status, done.said.count(said)) == (pytest.ExitCode.USAGE_ERROR, 1), done.said
    assert "Traceback" not in done.said


def test_pytest__known_difference__passes(tmp_path: Path):
    known = [{"operator": "torch.tanh", "candidate": "kernels", "kind": "value", "reason": "off by one, ticket 5"}]
    project = project_in(tmp_path, known=known)
    done = run_pytest(project, "-k", "tanh or softmax[1]")
    assert reported(done) == {"test_tanh": "PASSED", "test_softmax[1]": "FAILED"}, done.said


def test_run__the_same_file__has_the_same_tests_and_outcomes(project: Project):
    done = project.run("test_kernels.py")
    found = {item["test"].partition("::")[2]: item["outcome"] for item in project.report()["results"]}
    assert found == {
        "test_softmax[0]": "aligned", "test_softmax[1]": "misaligned", "test_scaled[float32-2]": "aligned",
        "test_scaled[float64-0.5]": "aligned", "test_tanh": "misaligned",
        "TestOfAClass::test_softmax_method[0]": "aligned", "test_with_fixture": "not_run",
    }, done.said  # fmt: skip
    assert (
        "test_with_fixture() takes 'width', but `ci-autotest run` provides only a test_case and the arguments of parametrize."
        in done.said
    )


def test_run__one_row__is_run_alone(project: Project):
    assert project.run("test_kernels.py::test_softmax[0]").status == 0
    assert project.run("test_kernels.py::test_softmax").status == 1

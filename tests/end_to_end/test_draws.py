"""`ci-autotest draws`: a case printed, edited and run again, on a real worker."""

from __future__ import annotations

import pytest

from tests.projects import Project

TESTS = """
from ci_autotest import random


@autotest()
def flatten():
    ndim = random(1, 6).to(int)
    return torch.flatten(random_tensor(ndim=ndim), end_dim=random(0, ndim).to(int))


@autotest()
def impossible():
    return torch.flatten(random_tensor(ndim=2), end_dim=random(3, 5).to(int))


@autotest()
def exp():
    return torch.exp(random_tensor(ndim=2))
"""
KERNELS = """
import torch


def exp(x):
    return torch.Tensor.exp(x) * (1.001 if x.ndim == 2 and x.shape[0] == 2 else 1)
"""
FILE = "autotests/autotest_draws.py"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("draws"))
    project.substitute({"torch.exp": "mykernels.exp"})
    project.write("mykernels.py", KERNELS)
    project.tests(TESTS, FILE)
    return project


def test_draws__several_candidates__the_case_runs_on_each(project: Project):
    done = project.command("draws", f"{FILE}::exp", "--edit", "0.dim0=2")
    names = project.command("draws", f"{FILE}::exp", "--edit", "0.dim0=2", "--candidate", "torch").out
    assert (done.status, done.out.count("def program"), "misaligned: torch.exp" in done.out) == (1, 1, True), done.said
    assert names.rstrip().endswith("aligned on torch")


def test_draws__printed_log__replays_to_the_same_program(project: Project):
    first = project.command("draws", f"{FILE}::flatten", "--case", "2", "--candidate", "torch")
    assert first.status == 0, first.said
    program = first.out.partition("\ndef program")[2]
    project.write("log.txt", first.out)
    again = project.command("draws", "--log", "log.txt", "--candidate", "torch")
    assert (again.status, again.out.partition("\ndef program")[2]) == (0, program)
    assert [line for line in again.out.splitlines() if " = " in line] == [
        line for line in first.out.splitlines() if " = " in line
    ]


def test_draws__edited__the_case_follows_and_the_candidates_fault_shows(project: Project):
    right = project.command("draws", f"{FILE}::exp", "--edit", "0.dim0=3")
    wrong = project.command("draws", f"{FILE}::exp", "--edit", "0.dim0=2")
    assert tuple(
        line[:10] for done in (right, wrong) for line in done.out.splitlines() if line.startswith("0.dim0")
    ) == ("0.dim0 = 3", "0.dim0 = 2")
    assert (right.status, wrong.status) == (0, 1)
    assert "misaligned: torch.exp" in wrong.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((f"{FILE}::exp", "--edit", "9.dim0=3"), "has no draw '9.dim0'. It has 0.dim0, 0.dim1."),
        ((f"{FILE}::exp", "--edit", "0.dim0=100"), "0.dim0 = 100 is outside its range: dim of [1, 8)."),
        ((FILE,), f"'{FILE}' names 3 tests. Give one, as FILE::TEST; `ci-autotest list` names them."),
        ((), "give either a test, as PATH::TEST, or --log FILE"),
    ],
    ids=["unknown draw", "outside", "several tests", "nothing"],
)
def test_draws__misused__says_what_to_write(project: Project, arguments, said):
    done = project.command("draws", *arguments)
    assert (done.status, said in done.err) == (2, True), done.said


def test_draws__every_attempt_rejected__says_so(project: Project):
    done = project.command("draws", f"{FILE}::impossible", "--candidate", "torch")
    assert (done.status, "has no accepted attempt" in done.said) == (1, True), done.said

"""Operators of the user that have one name: a kernel is never held against the wrong one."""

from __future__ import annotations

from pathlib import Path

from tests.projects import Project

TEST = """
from ci_autotest import operator


@operator
def twice(x):
    return torch.tanh(x)


first = twice


@operator
def twice(x):
    return torch.sin(x)


@autotest(n=2)
def called():
    return first(random_tensor())
"""


def test_run__operator_that_its_file_defines_again__is_broken(tmp_path: Path):
    project = Project(tmp_path)
    project.tests(TEST, "autotest_twice.py")
    project.write("mykernels.py", "import torch\n\ndef sin(x):\n    return torch.sin(x)\n")
    project.substitute({"autotest_twice.twice": "mykernels.sin"})
    done = project.command("run", "autotest_twice.py")
    assert done.status == 1, done.said
    assert "autotest_twice.twice was defined again after this one was taken" in done.out


def test_run__the_only_test_is_a_broken_one_of_a_loader__says_what_is_wrong_with_it(tmp_path: Path):
    project = Project(tmp_path)
    project.write("autotest_loader.py", "from ci_autotest import loadertest\n\n@loadertest(workers=1)\ndef f(): ...\n")
    done = project.command("run", "autotest_loader.py")
    assert done.status == 1, done.said
    assert "loadertest(workers=1) is not a number of worker processes. Write 2 to 64." in done.out

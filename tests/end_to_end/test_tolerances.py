"""Rows that ``ci-autotest tolerances`` proposes let the kernel pass that was measured, and not a worse one."""

from __future__ import annotations

import pytest
import yaml

from tests.projects import Project

KERNELS = """
import torch


def exp(x):
    return torch.exp(x) * (1 + 4 * torch.finfo(x.dtype).eps)


def worse_exp(x):
    return torch.exp(x) * (1 + 32 * torch.finfo(x.dtype).eps)
"""
TESTS = """
@autotest(profiles=())
def exponential():
    return torch.exp(random_tensor(2, dim0=4, dim1=8))


@autotest(profiles=())
def again():
    return torch.exp(random_tensor(1, dim0=9, dtype=oneof("float32", "float64"))).sum()
"""


@pytest.fixture
def project(tmp_path):
    found = Project(tmp_path)
    found.write("mine.py", KERNELS)
    found.tests(TESTS)
    return found


def test_tolerances__rows_of_a_report__pass_the_kernel_that_was_measured_and_no_worse_one(project):
    project.substitute({"torch.exp": "mine.exp"}, cases=10)
    run = project.run()
    assert run.status == 0, run.said
    errors = {
        (item["test"].rpartition("::")[2], error["operator"], error["dtype"]): error
        for item in project.report()["results"]
        for error in item["errors"]
    }
    measured = errors["exponential", "torch.exp", "float32"]
    assert (measured["cases"], measured["ulp"] > 0, 0 < measured["used"] < 1) == (10, True, True)
    assert {dtype for test, _, dtype in errors if test == "again"} == {"float32", "float64"}

    proposed = project.command("tolerances", "autotest-report")
    rows = yaml.safe_load(proposed.out)["tolerances"]
    assert proposed.status == 0
    (row,) = [each for each in rows if (each["operator"], each["dtype"]) == ("torch.exp", "float32")]
    assert row["rtol"] < 1.3e-6
    assert "of 2 tests: off by up to" in proposed.out

    project.substitute({"torch.exp": "mine.exp"}, cases=10, tolerances=rows)
    assert project.run().status == 0
    project.substitute({"torch.exp": "mine.worse_exp"}, cases=10, tolerances=rows)
    assert project.run().status == 1


def test_tolerances__shards_merged__has_the_greatest_of_both(project):
    project.substitute({"torch.exp": "mine.exp"}, cases=10)
    parts = [project.run("--shard", f"{n}/2", "--output", f"part{n}") and f"part{n}" for n in (1, 2)]
    whole = project.run()
    merged = project.command("report", *parts, "--output", "merged")
    assert (whole.status, merged.status) == (0, 0), merged.said
    single, both = (project.command("tolerances", folder).out for folder in ("autotest-report", "merged"))
    assert yaml.safe_load(both) == yaml.safe_load(single)


def test_tolerances__nothing_aligned__says_so(project):
    project.write("mine.py", "def exp(x):\n    return x\n")
    project.substitute({"torch.exp": "mine.exp"}, cases=2)
    project.run()
    found = project.command("tolerances", "autotest-report")
    assert (found.status, found.out.startswith("# No case of this report was aligned")) == (0, True)


def test_tolerances__no_report__is_refused(project):
    found = project.command("tolerances", "nowhere")
    assert (found.status, "holds no report.json" in found.err) == (2, True)

"""A reference whose backward pass raises: the values are compared, and the report counts what was not."""

from __future__ import annotations

from tests.projects import Project

TESTS = """
from ci_autotest import autotest, random_tensor, torch


@autotest(profiles=())
def overwritten():
    y = torch.exp(random_tensor(ndim=2))
    y.mul_(2)
    return y


@autotest(profiles=())
def differentiable():
    return torch.exp(random_tensor(ndim=2))
"""


def test_run__reference_cannot_differentiate__is_counted_and_the_values_compared(tmp_path):
    project = Project(tmp_path)
    project.write("autotests/autotest_a.py", TESTS)
    project.write("autotest.yml", "cases: 4\ncandidates:\n  - {name: torch, backend: torch}\n")
    done = project.command("run", "--workers", "1")

    counted = {item["test"].rpartition("::")[2]: item for item in project.report()["results"]}
    assert (done.status, counted["overwritten"]["undefined_gradients"]) == (0, 4), done.said
    assert counted["differentiable"]["undefined_gradients"] == 0
    assert "gradients not compared: 4 cases of autotests/autotest_a.py::overwritten" in done.out

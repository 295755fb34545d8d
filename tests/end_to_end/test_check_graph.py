"""`@autotest(check_graph=True)` from the test to the repro and the replay: a kernel that differs only in a graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.projects import Project, outcomes

KERNELS = """
import torch


def exp(x):
    return torch.Tensor.exp(x) + (1.0 if torch.compiler.is_compiling() else 0.0)
"""
BODIES = """
@autotest(n=2, check_graph=True)
def as_a_graph():
    return torch.exp(random_tensor(2, 3, 4))


@autotest(n=2)
def eagerly():
    return torch.exp(random_tensor(2, 3, 4))
"""


@pytest.mark.heavy
def test_run__kernel_that_differs_in_a_graph__is_of_kind_graph_and_replays(tmp_path: Path):
    project = Project(tmp_path)
    project.substitute({"torch.exp": "mykernels.exp"})
    project.write("mykernels.py", KERNELS)
    project.tests(BODIES)
    done = project.run()
    report = project.report()
    assert outcomes(report) == {("as_a_graph", "kernels"): "misaligned", ("eagerly", "kernels"): "aligned"}, done.said
    (finding,) = report["findings"]
    assert (finding["kind"], finding["operator"], finding["repro_verified"]) == ("graph", "torch.exp", True), finding
    assert project.repro(finding, "autotest-report", tmp_path).status == 1
    folder = tmp_path / "autotest-report" / "findings" / finding["id"]
    assert project.command("replay", str(folder)).status == 1

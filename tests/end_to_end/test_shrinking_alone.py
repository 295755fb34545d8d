"""A kernel that is wrong alone, and differently after many calls: shrinking calls it often."""

from __future__ import annotations

import json
from pathlib import Path

from tests.projects import Project

KERNELS = """
import torch

calls = [0]


def tanh(x):
    calls[0] += 1
    found = torch.tanh(x)
    if x.numel() > 6:
        found = found + 0.5
    return found * 1.5 if calls[0] > 30 else found
"""
TEST = """
@autotest()
def tanh():
    return torch.tanh(random_tensor())
"""


def test_run__kernel_is_wrong_alone_and_counts_its_calls__is_misaligned_by_what_it_does_alone(tmp_path: Path):
    project = Project(tmp_path)
    project.write("mykernels.py", KERNELS)
    project.tests(TEST)
    project.substitute({"torch.tanh": "mykernels.tanh"})
    done = project.command("run")
    assert done.status == 1, done.said
    findings = json.loads((tmp_path / "autotest-report" / "report.json").read_text())["findings"]
    (alone,) = [item for item in findings if item["outcome"] == "misaligned" and item["kind"] == "value"]
    assert (alone["confirmed"], alone["shrunk"], alone["repro_verified"]) == (True, True, True)

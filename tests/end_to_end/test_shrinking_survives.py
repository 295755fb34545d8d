"""Nothing is lost when a candidate crashes or hangs while it is shrunk, or when the run itself is killed."""

from __future__ import annotations

import os
import signal

import pytest

from ci_autotest.program.serialize import decode
from tests.projects import Project, finding_of, wait_until

KERNELS = """
import os
import time

import torch


def exp(x):
    if x.numel() < 3:
        os.abort()
    return torch.exp(x) * 1.01


def cos(x):
    if x.numel() < 2:
        time.sleep(600)
    return torch.cos(x) + 1


def tanh(x):
    time.sleep(0.2)
    return torch.tanh(x) + 1
"""
TESTS = """
@autotest(n=1)
def exp():
    return torch.exp(random_tensor(ndim=2, dim0=3, dim1=random(2, 5).to(int)))


@autotest(n=1)
def cos():
    return torch.cos(random_tensor(ndim=1, dim0=random(3, 5).to(int)))


@autotest(n=1)
def tanh():
    return torch.tanh(random_tensor(ndim=2, dim0=8, dim1=8))
"""


def planted(folder, *names):
    project = Project(folder)
    project.write("mykernels.py", KERNELS)
    project.tests(TESTS)
    project.substitute({f"torch.{name}": f"mykernels.{name}" for name in names}, case_timeout="4s")
    return project


@pytest.mark.heavy
def test_run__candidate_aborts_or_hangs_while_it_is_shrunk__keeps_the_smallest_that_does_not(tmp_path):
    project = planted(tmp_path, "exp", "cos")
    assert project.run().status == 1
    report = project.report()
    for name, least in (("exp", 2), ("cos", 2)):
        finding = finding_of(report, name)
        assert (finding["kind"], finding["confirmed"], finding["shrunk"], finding["repro_verified"]) == (
            "value", True, True, True,
        )  # fmt: skip
        assert finding["dims_max"] == least


def test_run__killed_while_it_shrinks__the_unshrunk_finding_is_on_disk(tmp_path):
    project = planted(tmp_path, "tanh")
    process = project.start("run", "--workers", "1")
    try:
        assert wait_until(lambda: list(found(project)), 90)
        (folder,) = found(project)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    recording = decode((folder / "program.json").read_bytes(), (folder / "tensors.safetensors").read_bytes())
    assert recording.note.operator == "torch.tanh"
    assert (folder / "README.md").read_text("utf-8").startswith("# ")


def found(project):
    return [path.parent for path in project.folder.glob("autotest-report/findings/[a-z]*/program.json")]

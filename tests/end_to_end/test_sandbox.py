"""`sandbox: [FOLDER]` of a substitute: its functions see that folder, run nowhere else, and end as they would outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.projects import Project
from tests.sandboxes import lacking_sandbox

KERNELS = """
import os

import torch

import beside


def exp(x):
    seen = [name for name in ("autotest.yml", "autotests") if os.path.exists(os.path.join(ROOT, name))]
    return torch.exp(x) + len(seen) + ("HIDDEN" in os.environ)


def sin(x):
    os.abort()


def cos(x):
    return torch.cos(x) + 0.5
"""
TESTS = "\n\n".join(
    f"@autotest(n=2)\ndef {name}():\n    return torch.{name}(random_tensor(ndim=1))\n" for name in ("exp", "sin", "cos")
)


@pytest.mark.skipif(bool(lacking_sandbox()), reason=lacking_sandbox())
@pytest.mark.heavy
def test_run__functions_in_a_sandbox__see_their_folder_alone_and_are_never_run_outside_of_it(tmp_path: Path):
    project = Project(tmp_path)
    project.write("inside/kernels.py", f"ROOT = {str(tmp_path)!r}\n{KERNELS}")
    project.write("inside/beside.py", "")
    replace = {f"torch.{name}": f"kernels.{name}" for name in ("exp", "sin", "cos")}
    row = {"name": "kernels", "backend": "substitute", "sandbox": ["inside"], "forward_only": True, "replace": replace}
    project.configure(candidates=[row])
    project.tests(TESTS)
    done = project.run(environ={"HIDDEN": "1"})
    report = project.report()
    outcomes = {item["test"].partition("::")[2]: item["outcome"] for item in report["results"]}
    assert outcomes == {"exp": "aligned", "sin": "crashed", "cos": "misaligned"}, done.said
    assert "SIGABRT" in done.out
    assert "repro not verified: it would run the candidate outside of its sandbox" in done.out
    assert [item["repro_verified"] for item in report["findings"]] == [False, False]

"""``builtin:overloads``: a kernel that is wrong in one overload is found, counted, shown and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import Project

if TYPE_CHECKING:
    from pathlib import Path

#: Wrong with ``out=`` alone, and where an element is above 2.
KERNELS = """
import torch

def exp2(x, *, out=None):
    if out is None:
        return torch.exp2(x)
    return out.copy_(torch.where(x > 2, torch.exp2(x) + 1, torch.exp2(x)))
"""
CONFIGURED = {
    "candidates": [
        {"name": "kernels", "backend": "substitute", "replace": {"torch.ops.aten.exp2": "mykernels.exp2"}},
    ],
    "paths": ["builtin:overloads"],
    "opinfo": {"dtypes": ["float32"]},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    found = Project(tmp_path_factory.mktemp("overloads"))
    found.write("mykernels.py", KERNELS)
    found.configure(**CONFIGURED)
    return found


@pytest.fixture(scope="module")
def report(project: Project) -> dict[str, Any]:
    done = project.run("builtin:overloads::aten.exp2.out", "builtin:overloads::aten.exp2.default")
    assert done.status == 1, done.said
    return project.report()


def test_run__fault_in_one_overload__is_a_finding_of_it(project: Project, report: dict[str, Any]):
    (finding,) = report["findings"]

    assert (finding["operator"], finding["target"], finding["kind"]) == (
        "torch.ops.aten.exp2", "torch.ops.aten.exp2.out", "value",
    )  # fmt: skip
    assert (finding["test"], finding["confirmed"]) == ("builtin:overloads::aten.exp2.out", True)
    assert project.repro(finding, "autotest-report", project.folder).status == 1


def test_run__overloads__are_counted_beside_public_operators(report: dict[str, Any]):
    (coverage,) = report["coverage"]
    counts = coverage["overloads"]

    assert (counts["tested"], counts["supported"], counts["aligned"], counts["misaligned"]) == (2, 2, 1, 1)
    assert counts["public"] > 3000
    assert coverage["own"]["tested"] == 0
    assert {item["family"] for item in report["operators"]} == {"dispatcher"}


def test_replay__paths_name_the_source__runs_the_program(project: Project, report: dict[str, Any]):
    (finding,) = report["findings"]

    done = project.command("replay", f"autotest-report/findings/{finding['id']}")

    assert done.status == 1, done.said


def test_replay__paths_do_not_name_it__says_what_to_write(project: Project, report: dict[str, Any], tmp_path: Path):
    (finding,) = report["findings"]
    other = Project(tmp_path)
    other.write("mykernels.py", KERNELS)
    other.configure(candidates=[{"name": "kernels", "backend": "torch"}])

    done = other.command("replay", str(project.folder / "autotest-report" / "findings" / finding["id"]))

    assert done.status == 2
    assert "if `paths` of the autotest.yml here has `builtin:overloads`" in done.said

"""PyTorch's operator database as a source: a planted fault is found, shrunk, shown with NumPy's opinion, and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.projects import Project

if TYPE_CHECKING:
    from pathlib import Path

#: Wrong where an element is above 2.
KERNELS = """
import torch

def exp2(x, *, out=None):
    found = torch.where(x.real > 2, torch.exp2(x) + 1, torch.exp2(x))
    return found if out is None else out.copy_(found)
"""
CONFIGURED = {
    "candidates": [{"name": "kernels", "backend": "substitute", "replace": {"torch.exp2": "mykernels.exp2"}}],
    "opinfo": {"dtypes": ["float32"], "op_allowlist": ["exp2", "logaddexp2"]},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    found = Project(tmp_path_factory.mktemp("opinfo"))
    found.write("mykernels.py", KERNELS)
    found.configure(**CONFIGURED)
    return found


@pytest.fixture(scope="module")
def found(project: Project) -> dict[str, Any]:
    done = project.run("builtin:opinfo::torch.exp2", "--cases", "all")
    assert done.status == 1, done.said
    return project.report()


def test_run__planted_fault__is_found_with_its_smallest_input_and_a_repro(project: Project, found: dict[str, Any]):
    finding = next(item for item in found["findings"] if item["kind"] == "value")

    assert (finding["operator"], finding["test"]) == ("torch.exp2", "builtin:opinfo::torch.exp2")
    assert (finding["blame"], finding["confirmed"], finding["steps"], finding["dims_max"] < 2) == (
        "candidate",
        True,
        1,
        True,
    )
    assert project.repro(finding, "autotest-report", project.folder).status == 1


def test_run__planted_fault__says_that_numpy_agrees_with_the_reference(found: dict[str, Any]):
    finding = next(item for item in found["findings"] if item["kind"] == "value")

    assert finding["notes"] == ["NumPy agrees with the reference"]


def test_run__all_cases__counts_them_by_variant(found: dict[str, Any]):
    result = found["results"][0]

    assert {"ordinary", "non_contiguous", "in_place", "out"} == set(result["profiles"])


def test_list__shards__deal_the_samples_of_the_allowed_entries(project: Project):
    done = project.command("list", "builtin:opinfo", "--cases", "5", "--shards", "2")

    assert done.status == 0, done.said
    assert "builtin:opinfo::torch.exp2" in done.out
    assert "builtin:opinfo::torch.logaddexp2" in done.out
    assert done.out.splitlines()[-1].startswith("2 tests in ")


def test_run__entry_that_does_not_exist__says_which_there_are(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(**CONFIGURED)

    done = project.run("builtin:opinfo::torch.nope")

    assert done.status == 2
    assert done.err.strip() == "builtin:opinfo has no test 'torch.nope'. It has torch.exp2, torch.logaddexp2."


def test_run__family_that_does_not_exist__says_which_there_are(tmp_path: Path):
    done = Project(tmp_path).run("builtin:opinfo/nope", "--candidate", "torch")

    assert done.status == 2
    assert done.err.startswith("'builtin:opinfo/nope' is not a family of builtin:opinfo. Known: fft, linalg, masked")

"""``doctor``: what a candidate has by its table and by its framework, and what to do where it cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ci_autotest.report.coverage import catalogue
from tests.candidates import python_of
from tests.projects import Done, Project, processes

TOY = "import torch\nfrom torch import *\n__version__, device, Tensor = '1.0', torch.device, torch.Tensor\ndel exp\n"
SUITE = len(
    {one for own in catalogue().suite.values() for one in own}
    & {one for own in catalogue().public.values() for one in own}
)
MAPPING = {
    "torch.cumsum": {"unsupported": "its sums run the other way"},
    "torch.add": {"to": "toy.plus"},
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Done]:
    """Return what is said of a framework with torch's names that lacks two operators of the suite."""
    project = Project(tmp_path_factory.mktemp("doctor"))
    project.write("toy.py", TOY)
    project.configure(candidates=[{"name": "toy", "backend": "module", "module": "toy", "mapping": MAPPING}])
    return project, project.command("doctor", "toy")


def test_doctor__candidate_is_named__every_operator_that_it_lacks_is_too(toy: tuple[Project, Done]):
    project, done = toy
    version = ".".join(map(str, sys.version_info[:3]))
    assert done.status == 0, done.said
    assert f"toy: available\n  toy 1.0 (python {version}, numpy " in done.out
    assert "\n  devices here: cpu" in done.out
    assert (
        "\n  1: its table says that there is no counterpart:\n    torch.cumsum: its sums run the other way\n"
        in done.out
    )
    assert "\n    torch.add: toy 1.0 has no toy.plus\n" in done.out
    assert "\n    torch.nn.functional.softmax" not in done.out
    # `exp` is a method of its tensors too: the operator is there, whatever the function.
    assert "\n    torch.exp: " not in done.out
    assert processes(str(project.folder)) == []


def test_doctor__nothing_is_named__counts_alone_are_said(toy: tuple[Project, Done]):
    project, _ = toy
    done = project.command("doctor")
    assert "operators of the shipped suite: it has " in done.out
    assert "torch.cumsum" not in done.out
    assert (done.status, done.err) == (0, "")


def test_doctor__torch_itself__has_the_whole_suite(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "plain", "backend": "torch"}])
    done = project.command("doctor", "plain")
    assert (done.status, done.err) == (0, "")
    assert f"operators of the shipped suite: it has {SUITE} of {SUITE}\n" in done.out


def test_doctor__named_candidate_is_not_there__says_how_to_make_it_and_is_status_4(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "flow", "backend": "module", "module": "oneflow"}])
    done = project.command("doctor", "flow")
    assert done.status == 4, done.said
    assert done.out.startswith("flow: NOT AVAILABLE\n")
    assert "python3.10 -m venv .venvs/oneflow\n" in done.out
    assert ".venvs/oneflow/bin/python -m pip install --no-deps oneflow==0.9.0 numpy==1.23.5 " in done.out
    assert "- {name: flow, backend: module, module: oneflow, python: .venvs/oneflow/bin/python}\n" in done.out
    assert done.err == "not available: flow. The lines above say what is missing.\n"


def test_doctor__unknown_candidate__is_status_2(tmp_path: Path):
    done = Project(tmp_path).command("doctor", "oneflov")
    assert done.status == 2
    assert done.err.startswith("unknown candidate 'oneflov'. Did you mean 'oneflow'? ")


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "module", "version", "least"),
    [
        ("oneflow", "oneflow", "0.9.0", 200),
        ("torch-1.12", "torch", "1.12.1", 350),
        ("paddle", "paddle", "3.3.1", 300),
        ("jax", "jax", "0.10.2", 250),
        ("mindspore", "mindspore", "2.10.0", 220),
    ],
)
def test_doctor__real_framework__is_told_with_its_operators(
    name: str, module: str, version: str, least: int, tmp_path: Path
):
    project = Project(tmp_path)
    candidate = {"name": "it", "backend": "module", "module": module, "python": str(python_of(name))}
    project.configure(candidates=[candidate])
    done = project.command("doctor", "it")
    assert (done.status, done.err) == (0, "")
    assert f"\n  {module} {version}" in done.out
    said = done.out.partition("operators of the shipped suite: it has ")[2]
    assert least <= int(said.split()[0]) < SUITE
    assert "\n  devices here: cpu" in done.out
    assert "has no" in done.out

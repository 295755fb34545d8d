"""What the publisher is made of: nothing that Python imports for it lies outside what is hashed or listed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tomllib

from action import environment, inputs
from action.step_arguments import InstallArguments

ROOT = Path(__file__).resolve().parents[3]


def test_requirements__are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert environment.requirements() == project["dependencies"]


@pytest.mark.parametrize(
    ("asked", "device", "present", "devices", "build"),
    [
        ("auto", "", [], [], "cpu"),
        ("auto", "", ["torch"], [], "present"),
        ("cpu", "", ["torch"], [], "present"),
        ("auto", "", [], ["nvidia0"], "default"),
        ("auto", "", [], ["dxg"], "default"),
        ("auto", "", [], ["nvidia-caps"], "cpu"),
        ("auto", "cuda", [], [], "default"),
        ("cpu", "", [], ["nvidia0"], "cpu"),
        ("default", "", [], [], "default"),
    ],
)
def test_torch_build__machine_and_inputs__choose_it(
    asked: str, device: str, present: list[str], devices: list[str], build: str, tmp_path: Path
):
    for name in devices:
        (tmp_path / name).touch()
    assert environment.torch_build(environment.torch_choice(asked, device, tmp_path), present) == build


HOSTED = {"RUNNER_ENVIRONMENT": "github-hosted"}
PYTHON = InstallArguments(runtime="python", packages=[], names=[])


@pytest.mark.parametrize(
    ("runtime", "environ"),
    [
        ("python", {}),
        ("python", {"RUNNER_ENVIRONMENT": "self-hosted"}),
        ("container", HOSTED),
        ("host", HOSTED),
        ("", HOSTED),  # what publishes takes nothing from another job
    ],
)
def test_cache_key__nothing_to_keep__is_empty(runtime: str, environ: dict[str, str]):
    assert environment.cache_key(replace(PYTHON, runtime=runtime), environ) == ""


def test_cache_key__what_changes_the_downloads__changes_it():
    keys = [environment.cache_key(replace(PYTHON, torch=torch), HOSTED) for torch in ("auto", "default", "auto")]
    # Whether torch is here is what the machine has.
    assert keys[0] == keys[2]
    assert (keys[1] == keys[0]) is ("torch-present" in keys[0])
    assert keys[0].startswith("ci-autotest-linux-")


def test_cache_key__what_the_caller_asks_for__is_not_kept():
    keys = [environment.cache_key(replace(PYTHON, names=names), HOSTED) for names in ([], ["numpy"], ["scipy"])]
    assert len(set(keys)) == 1


def test_install_names__requirements__are_those_that_name_a_package():
    lines = "torch==2.5\n-r more.txt\nscipy[all]>=1 ; python_version > '3'\n.\n./kernels\n--pre"
    assert inputs.install_names({"INPUT_INSTALL": lines}) == ["torch", "scipy"]


@pytest.mark.parametrize(
    ("torch", "devices", "warns"), [("auto", ["kfd"], True), ("auto", ["dri"], False), ("cpu", ["kfd"], False)]
)
def test_rocm_warning__machine_with_an_amd_gpu__is_told_unless_it_asks_for_the_cpu(
    tmp_path: Path, torch: str, devices: list[str], warns: bool
):
    for name in devices:
        (tmp_path / name).touch()
    assert ("PyTorch's CPU build is installed" in environment.rocm_warning(torch, tmp_path)) is warns


def test_kept_constraints__packages_of_the_caller__lose_their_pins():
    pins = (
        '# exact\ntorch==2.13.0\nnetworkx==3.6.1; python_version >= "3.11"\nJinja2==3.1.6\ntyping_extensions==4.16.0\n'
    )
    assert environment.kept_constraints(pins, ["Torch", "typing-extensions", "networkx"]) == "Jinja2==3.1.6\n"

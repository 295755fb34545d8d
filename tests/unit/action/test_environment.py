"""What the publisher is made of: nothing that Python imports for it lies outside what is hashed or listed."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib

from action import environment, inputs
from action.inputs import StepError

ROOT = Path(__file__).resolve().parents[3]


def test_requirements__are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert environment.requirements() == project["dependencies"]


@pytest.mark.parametrize(
    ("environ", "present", "devices", "build"),
    [
        ({}, [], [], "cpu"),
        ({}, ["torch"], [], "present"),
        ({"INPUT_TORCH": "cpu"}, ["torch"], [], "present"),
        ({}, [], ["nvidia0"], "default"),
        ({}, [], ["dxg"], "default"),
        ({}, [], ["nvidia-caps"], "cpu"),
        ({"INPUT_DEVICE": "cuda"}, [], [], "default"),
        ({"INPUT_TORCH": "cpu"}, [], ["nvidia0"], "cpu"),
        ({"INPUT_TORCH": "default"}, [], [], "default"),
    ],
)
def test_torch_build__machine_and_inputs__choose_it(
    environ: dict[str, str], present: list[str], devices: list[str], build: str, tmp_path: Path
):
    for name in devices:
        (tmp_path / name).touch()
    assert environment.torch_build(environ, present, tmp_path) == build


@pytest.mark.parametrize(("name", "value"), [("torch", "gpu"), ("cache", "yes")])
def test_choices__input_that_cannot_be_meant__is_refused(name: str, value: str):
    read = {"torch": inputs.torch_choice, "cache": inputs.keeps_cache}[name]
    with pytest.raises(StepError, match=f"the input '{name}' is '{value}': give one of "):
        read({f"INPUT_{name.upper()}": value})


HOSTED = {"RUNNER_ENVIRONMENT": "github-hosted"}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RUNNER_ENVIRONMENT": "self-hosted"},
        {**HOSTED, "INPUT_CACHE": "false"},
        {**HOSTED, "INPUT_RUNTIME": "container"},
        {**HOSTED, "GITHUB_EVENT_NAME": "workflow_run"},  # what publishes takes nothing from another job
    ],
)
def test_cache_key__nothing_to_keep__is_empty(environ: dict[str, str]):
    assert environment.cache_key(environ) == ""


def test_cache_key__what_changes_the_downloads__changes_it():
    keys = [environment.cache_key({**HOSTED, **more}) for more in ({}, {"INPUT_DEVICE": "cuda"}, {})]
    # Whether torch is here is what the machine has.
    assert keys[0] == keys[2]
    assert (keys[1] == keys[0]) is ("torch-present" in keys[0])
    assert keys[0].startswith("ci-autotest-linux-")


def test_cache_key__what_the_caller_asks_for__is_not_kept():
    keys = [environment.cache_key({**HOSTED, "INPUT_INSTALL": text}) for text in ("", "numpy<2", "-e .\nscipy")]
    assert len(set(keys)) == 1


def test_install_names__requirements__are_those_that_name_a_package():
    lines = "torch==2.5\n-r more.txt\nscipy[all]>=1 ; python_version > '3'\n.\n./kernels\n--pre"
    assert inputs.install_names({"INPUT_INSTALL": lines}) == ["torch", "scipy"]


@pytest.mark.parametrize(
    ("given", "devices", "warns"), [({}, ["kfd"], True), ({}, ["dri"], False), ({"INPUT_TORCH": "cpu"}, ["kfd"], False)]
)
def test_rocm_warning__machine_with_an_amd_gpu__is_told_unless_it_asks_for_the_cpu(
    tmp_path: Path, given: dict[str, str], devices: list[str], warns: bool
):
    for name in devices:
        (tmp_path / name).touch()
    assert ("PyTorch's CPU build is installed" in environment.rocm_warning(given, tmp_path)) is warns

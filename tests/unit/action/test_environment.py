"""What the publisher is made of: nothing that Python imports for it lies outside what is hashed or listed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from action import environment, inputs
from action.inputs import StepError

ROOT = Path(__file__).resolve().parents[3]
#: Prints the files of every module, and where further ones would be looked for.
IMPORTED = (
    "import json, sys; sys.path += sys.argv[1:3]; import click, msgspec, requests, ssl, ci_autotest.github.comment\n"
    "print(json.dumps([[m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)], sys.path]))"
)


@pytest.mark.heavy
def test_publisher__what_it_imports__is_hashed_or_would_be_seen(tmp_path: Path):
    packages = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    argv = environment.isolated(str(environment.interpreter()), str(tmp_path))
    done = subprocess.run(
        [*argv, "-c", IMPORTED, str(packages), str(ROOT)],
        env={"PATH": os.environ["PATH"]}, check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    files, folders = json.loads(done.stdout)
    sealed = [Path(path) for path in environment.sealed_paths(packages)]
    assert [file for file in files if not any(path in (Path(file), *Path(file).parents) for path in sealed)] == []
    listed = {Path(folder) for folder in environment.listed_folders()}
    open_to_new = [Path(folder) for folder in folders if folder]
    assert [
        str(folder)
        for folder in open_to_new
        if not any(path in (folder, *folder.parents) for path in sealed) and not {folder, folder.parent} & listed
    ] == []


def test_sealed_paths__of_this_interpreter__has_its_library_and_itself(tmp_path: Path):
    sealed = environment.sealed_paths(tmp_path)
    assert str(tmp_path) in sealed
    assert str(Path(sys.executable).resolve()) in sealed
    assert str(Path(json.__file__).parents[1]) in sealed


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
    ("files", "given", "kept"),
    [
        ({"autotest.yml": "cases: 1\n"}, {}, "cases: 1\n"),
        ({"above/autotest.yml": "", "autotest.yml": "cases: 1\n"}, {"INPUT_CONFIG": "above/autotest.yml"}, ""),
        ({"other.yml": "cases: 2\n", "autotest.yml": "cases: 1\n"}, {"INPUT_CONFIG": "other.yml"}, "cases: 2\n"),
        ({"autotest.yml": "cases: 1\n"}, {"INPUT_CONFIG": "absent.yml"}, ""),
    ],
    ids=["nearest", "named and empty", "named", "named and absent"],
)
def test_keep_configuration__of_the_job__is_as_it_was_when_a_test_rewrites_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], given: dict[str, str], kept: str
):
    for name, text in files.items():
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).write_text(text)
    monkeypatch.chdir(tmp_path / "checkout")
    path = environment.keep_configuration(tmp_path, given)
    (tmp_path / "checkout" / "autotest.yml").write_text("candidates: []\n")
    assert path.read_text() == kept

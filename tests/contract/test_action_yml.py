"""``action.yml`` and the workflows declare what the program takes, writes and may do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from action import inputs, outputs
from ci_autotest.cli import cli

ROOT = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
BY_ID = {step["id"]: step for step in STEPS if "id" in step}
WORKFLOWS = sorted([*(ROOT / "workflows").glob("*.yml"), *(ROOT / ".github" / "workflows").glob("*.yml")])
#: Inputs that `ci-autotest run` takes; the rest say how the action runs it and what it shows.
OF_RUN = {"paths", "candidate", "output", *inputs.OPTIONS}
OF_ACTION = {"mode", "python", "install", "comment", "artifact-name", "github-token"}
OUTPUTS = {
    "conclusion",
    "misaligned",
    "findings",
    "report-json",
    "artifact-dir",
    "artifact-url",
    "comment-url",
}
NAMES = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.relative_to(ROOT).as_posix())


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    return yaml.safe_load(path.read_text("utf-8"))["jobs"]


def used(steps: list[dict[str, Any]]) -> list[str]:
    return [step["uses"] for step in steps if "uses" in step]


def test_inputs__of_the_action__are_those_of_the_design():
    assert ACTION["inputs"].keys() == OF_RUN | OF_ACTION


def test_inputs__of_run__are_what_the_command_takes():
    taken = {parameter.name.replace("_", "-") for parameter in cli.commands["run"].params}
    assert taken == OF_RUN | {"executor"}  # a cluster is nothing that a job of a workflow has


@pytest.mark.parametrize("name", sorted(ACTION["inputs"]))
def test_input__declared__is_described_and_forwarded(name: str):
    assert ACTION["inputs"][name].keys() == {"description", "default"}
    forwarded = [value for step in STEPS for key in ("env", "with") for value in step.get(key, {}).values()]
    assert f"${{{{ inputs.{name} }}}}" in forwarded


def test_inputs__forwarded_as_inputs__have_the_name_that_is_read():
    found = [(key, value) for step in STEPS for key, value in step.get("env", {}).items() if key.startswith("INPUT_")]
    assert found == [(inputs.variable(value[11:-3]), value) for _, value in found]


@pytest.mark.parametrize("name", sorted(OF_RUN))
def test_input__of_run__reaches_the_argument_vector(name: str):
    assert BY_ID["run"]["env"][inputs.variable(name)] == f"${{{{ inputs.{name} }}}}"
    values = [part.rpartition("=")[2] for part in inputs.cli_argv({inputs.variable(name): "sentinel"})]
    assert values.count("sentinel") == 1


def test_inputs__left_alone__ask_for_what_the_program_does_by_itself():
    defaults = {name: entry["default"] for name, entry in ACTION["inputs"].items() if entry["default"]}
    assert defaults == {
        "output": inputs.DEFAULT_OUTPUT, "mode": inputs.MODES[0], "comment": inputs.COMMENTS[0],
        "python": "python3", "artifact-name": "ci-autotest-report",
        "github-token": "${{ github.token }}",
    }  # fmt: skip


def test_outputs__declared__are_written_by_the_step_that_they_name():
    written = {
        "prepare": {"python"},
        "run": set(outputs.step_outputs(0, None, None)),
        "upload": {"artifact-url"},  # of actions/upload-artifact
        "publish": {"comment-url"},
    }
    assert ACTION["outputs"].keys() == OUTPUTS
    text = (ROOT / "action.yml").read_text("utf-8")
    named = set(re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", text))
    assert named == {(step, name) for step, names in written.items() for name in names}
    for name, entry in ACTION["outputs"].items():
        assert re.fullmatch(rf"\$\{{\{{ steps\.[\w-]+\.outputs\.{name} \}}\}}", entry["value"]), name


def test_steps__run__hold_no_expression():
    scripts = [step["run"] for step in STEPS if "run" in step]
    scripts += [
        step["run"] for path in WORKFLOWS for job in jobs(path).values() for step in job["steps"] if "run" in step
    ]
    assert scripts
    assert [script for script in scripts if "${{" in script] == []


def test_steps__with_the_token__are_the_one_that_comments():
    holders = [step.get("id") for step in STEPS if "token" in str(step.get("env", {})) + str(step.get("with", {}))]
    assert holders == ["publish"]


def test_steps__after_a_failure__still_upload_comment_and_end():
    conditions = [str(step.get("if", "")) for step in STEPS]
    regardless = [bool(re.search(r"always\(\)|!cancelled\(\)", text)) for text in conditions]
    assert regardless == [False, False, True, True, True]


def test_uses__everywhere__is_pinned_to_one_hash():
    found = used(STEPS) + [uses for path in WORKFLOWS for job in jobs(path).values() for uses in used(job["steps"])]
    pins: dict[str, set[str]] = {}
    for uses in found:
        name, _, pin = uses.partition("@")
        pins.setdefault(name, set()).add(pin)
    assert pins.pop("./") == {""}
    assert pins.pop("org/ci-autotest") == {"v1"}
    assert {name: len(values) for name, values in pins.items()} == dict.fromkeys(pins, 1)
    assert [pin for values in pins.values() for pin in values if not re.fullmatch(r"[0-9a-f]{40}", pin)] == []


@NAMES
def test_workflow__permissions__are_given_by_the_job_and_few(path: Path):
    assert yaml.safe_load(path.read_text("utf-8"))["permissions"] == {}
    allowed = {"contents": "read", "pull-requests": "write"}
    for name, job in jobs(path).items():
        assert job["permissions"].items() <= allowed.items(), name


@NAMES
def test_workflow__inputs_given_to_the_action__are_declared(path: Path):
    for job in jobs(path).values():
        for step in job["steps"]:
            if step.get("uses") in {"./", "org/ci-autotest@v1"}:
                assert step.get("with", {}).keys() <= ACTION["inputs"].keys()


def test_dockerfile__torch__is_the_version_of_the_constraints():
    pinned = re.search(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    asked = re.search(r"^ARG TORCH=(\S+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert pinned is not None
    assert asked is not None
    assert asked[1] == pinned[1]

"""The shell of ``action.yml``: what it reads, and the status at the end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
STEPS = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["runs"]["steps"]
SCRIPTS = {step.get("id", "end"): step["run"] for step in STEPS if "run" in step}
SHELLS = {step.get("id", "end"): step["shell"] for step in STEPS if "run" in step}
EMPTIED = {
    step.get("id", "end"): {name for name, value in step["env"].items() if value == ""}
    for step in STEPS
    if "run" in step
}
LOADER = {"LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "BASH_ENV"}


def bash(script: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = ["/bin/bash", "--noprofile", "--norc", "-p", "-eo", "pipefail", "-c", script]
    return subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("status", ["0", "1", "3", "4", "70", "130", "255"])
def test_end__status_of_the_run__is_the_steps(tmp_path: Path, status: str):
    done = bash(SCRIPTS["end"], tmp_path, EXIT_STATUS=status, CONCLUSION="failure")
    said = f"::error title=ci-autotest::ci-autotest ended with {status} (failure).\n" if status != "0" else ""
    assert (done.returncode, done.stdout, done.stderr) == (int(status), said, "")


@pytest.mark.parametrize("status", ["", "256", "-1", "0 ", "00", "\u0660", "success", "1; exit 0", "999"])
def test_end__no_status__fails(tmp_path: Path, status: str):
    done = bash(SCRIPTS["end"], tmp_path, EXIT_STATUS=status, CONCLUSION="")
    message = "the run wrote no exit status: an earlier step of this action says why."
    assert (done.returncode, done.stdout) == (2, f"::error title=ci-autotest::{message}\n")


def test_steps__shell__is_named_by_its_path_and_takes_no_function():
    assert set(SHELLS.values()) == {"/bin/bash --noprofile --norc -p -eo pipefail {0}"}


def test_end__has_none_of_the_job_s_loader():
    assert {name for name, emptied in EMPTIED.items() if emptied >= LOADER} == {"end"}


@pytest.mark.parametrize("name", ["BASH_ENV", "ENV"])
def test_end__file_that_a_shell_would_read_first__is_not_read(tmp_path: Path, name: str):
    (tmp_path / "evil").write_text("exit 0")
    done = bash(SCRIPTS["end"], tmp_path, EXIT_STATUS="1", CONCLUSION="failure", **{name: str(tmp_path / "evil")})
    assert done.returncode == 1


def test_end__function_in_the_environment__is_not_called(tmp_path: Path):
    done = bash(
        SCRIPTS["end"], tmp_path, EXIT_STATUS="1", CONCLUSION="", **{"BASH_FUNC_exit%%": "() { builtin exit 0; }"}
    )
    assert done.returncode == 1

"""The shell of ``action.yml``: the seal on what publishes, and the status at the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from action import environment

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
#: Stands where the publisher's program does.
PROGRAM = "import sys; print('published', sys.flags.isolated, sys.flags.no_site, sys.dont_write_bytecode)\n"


def bash(script: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = ["/bin/bash", "--noprofile", "--norc", "-p", "-eo", "pipefail", "-c", script]
    return subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def publisher(tmp_path: Path) -> Path:
    """Make two folders and a file to seal, and the program that is started when the seal holds."""
    (tmp_path / "packages" / "a b" / "__pycache__").mkdir(parents=True)
    (tmp_path / "packages" / "a b" / "module.py").write_text("x = 1\n")
    (tmp_path / "action").mkdir()
    (tmp_path / "action" / "__main__.py").write_text(PROGRAM)
    (tmp_path / "bin" / "more").mkdir(parents=True)
    (tmp_path / "bin" / "python").write_text("")
    return tmp_path


def sealed(folder: Path) -> str:
    return "\n".join(str(folder / name) for name in ("packages", "action", "bin/python"))


def seal(folder: Path) -> str:
    (folder / "output").write_text("")
    listed = str(folder / "bin")
    done = bash(SCRIPTS["seal"], folder, SEALED=sealed(folder), LISTED=listed, GITHUB_OUTPUT=str(folder / "output"))
    assert done.returncode == 0, done.stderr
    return (folder / "output").read_text().removeprefix("digest=").rstrip("\n")


def publish(folder: Path, digest: str) -> subprocess.CompletedProcess[str]:
    python = str(Path(sys.executable).resolve())
    environ = {
        "SEALED": sealed(folder),
        "LISTED": str(folder / "bin"),
        "SEAL": digest,
        "PUBLISHER": python,
        "LIBRARIES": environment.library_folder(),
        "GITHUB_ACTION_PATH": str(folder),
    }
    return bash(SCRIPTS["publish"], folder, **environ)


def test_seal__the_two_that_are_compared__are_made_alike():
    made, compared = (SCRIPTS[name].partition("} | sha256sum)\n") for name in ("seal", "publish"))
    assert made[:2] == compared[:2]
    assert made[1]


def test_publish__nothing_changed__starts_the_publisher_isolated(publisher: Path):
    digest = seal(publisher)
    (publisher / "packages" / "a b" / "__pycache__" / "module.pyc").write_bytes(b"of the run")
    (publisher / "bin" / "more" / "below").write_text("of no account")
    done = publish(publisher, digest)
    assert (done.returncode, done.stdout) == (0, "published 1 1 True\n"), done.stderr


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "packages" / "a b" / "module.py").write_text("x = 2\n"),
        lambda folder: (folder / "packages" / "json.py").write_text(""),
        lambda folder: (folder / "packages" / "a b" / "module.py").unlink(),
        lambda folder: (folder / "packages" / "linked").symlink_to(folder / "action"),
        lambda folder: (folder / "packages" / "a b" / "module.py").rename(folder / "packages" / "module.py"),
        lambda folder: (folder / "action" / "__main__.py").write_text("print('owned')"),
        lambda folder: (folder / "bin" / "python").write_text("#!/bin/sh"),
        lambda folder: (folder / "bin" / "pyvenv.cfg").write_text("home = /tmp/evil"),
    ],
    ids=["changed", "added", "removed", "linked", "moved", "the program", "the interpreter", "beside the interpreter"],
)
def test_publish__a_file_that_the_tests_touched__publishes_nothing(publisher: Path, change):
    digest = seal(publisher)
    change(publisher)
    done = publish(publisher, digest)
    assert done.returncode == 2
    assert done.stdout.startswith("::error title=ci-autotest::the files of the publisher have changed since")


def test_publish__no_seal__publishes_nothing(publisher: Path):
    assert publish(publisher, "").returncode == 2


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


def test_steps__token_or_verdict__has_none_of_the_job_s_loader():
    assert {name for name, emptied in EMPTIED.items() if emptied >= LOADER} == {"seal", "publish", "end"}


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

"""Inputs and tests that are up to no good, in the whole action: a clean refusal, and never a green end."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.action_repository import installed

if TYPE_CHECKING:
    from tests.action_repository import Repository
    from tests.action_runner import ActionRecord

pytestmark = pytest.mark.heavy

#: A test file that tries each way to look green, or to reach what comes after it; WAY says which.
ATTACKS = {
    "exits with 0": "os._exit(0)",
    "ends the run": "os.kill(run(), signal.SIGKILL)",
    "ends the step": "os.kill(step(), signal.SIGKILL)",
    "writes a green report and ends the run": ("write(GREEN); os.kill(run(), signal.SIGKILL)"),
    "leaves a daemon that writes green reports": ("daemon(lambda: write(GREEN))"),
    "writes outputs": "pathlib.Path(variable('GITHUB_OUTPUT')).write_text('exit-status=0\\nx<<never\\n')",
    "writes the environment of later steps": (
        "pathlib.Path(variable('GITHUB_ENV')).write_text('BASH_ENV=/tmp/x\\n'); os._exit(0)"
    ),
}
#: What the log says of some.
SAID = {
    "writes a green report and ends the run": ("something else wrote it",),
    # The run ends what its workers left; the action ends what is left of the run (`integration/test_action_foreign.py`).
    "leaves a daemon that writes green reports": ("ended with 1 (failure)",),
    "writes outputs": ("the tests wrote to GITHUB_OUTPUT: that was discarded.", "ended with 1 (failure)"),
    "writes the environment of later steps": ("the tests wrote to GITHUB_ENV: that was discarded.",),
}
#: A test that the planted kernel fails.
MISALIGNED = """
from ci_autotest import autotest, random_tensor, torch
@autotest()
def layer_norm():
    return torch.nn.functional.layer_norm(random_tensor(ndim=3, dim1=2, dim2=4), (2, 4))
"""
ATTACK = """
import json, os, pathlib, signal, subprocess, sys, time
GREEN = {"schema": "ci-autotest/report/1", "exit_code": 0, "summary": {"misaligned": 0, "findings": 0}, "findings": []}
def parent(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
def run():
    pid = os.getppid()
    while b"-m\\0ci_autotest" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = parent(pid)
    return pid
def step():
    pid = os.getppid()
    while b"/action" not in (line := pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()) or b"ci_autotest" in line:
        pid = parent(pid)
    return pid
def variable(name):
    lines = pathlib.Path(f"/proc/{step()}/environ").read_text().split("\\0")
    return next(line.partition("=")[2] for line in lines if line.startswith(name + "="))
def write(report):
    folder = pathlib.Path("attacked"); folder.mkdir(exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report))
def daemon(act):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for _ in range(6000):
                act(); time.sleep(0.01)
        os._exit(0)
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("candidate", "; touch owned"),
        pytest.param("candidate", "--output=/etc", marks=pytest.mark.matrix),
        pytest.param("paths", "; rm -rf /", marks=pytest.mark.matrix),
        ("paths", "--privileged"),
        ("options", "--set=known=!!python/object/apply:os.system [touch owned]"),
        pytest.param("options", "--memory=; touch owned", marks=pytest.mark.matrix),
        pytest.param("cases", "$(touch owned)", marks=pytest.mark.matrix),
    ],
)
def test_action__hostile_input__is_refused_and_says_no_green(
    repository: Repository, planted: ActionRecord, tmp_path: Path, name: str, value: str
):
    inputs = {"python": sys.executable, "output": tmp_path.name, name: value}
    record = repository.runner(tmp_path / "scratch").run(inputs, installed(planted))
    assert (record.status, record.outputs["conclusion"]) == (2, "usage"), record.steps["run"].log
    assert not (repository.folder / "owned").exists()
    # What is uploaded says so too: `autotest-report.yml` marks the comment by it.
    report = json.loads((repository.folder / tmp_path.name / "report.json").read_text("utf-8"))
    assert (report["exit_code"], report["results"], record.steps["upload"].outcome) == (2, [], "success")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("container-options", "--privileged"),
        ("container-options", "-v /:/host"),
        ("image", "; rm -rf /"),
        ("image", "--privileged"),
        ("device", "-v /:/host"),
        ("options", "--strictness=ulp; touch owned"),
        ("options", "--output=/etc"),
        ("options", "; touch owned"),
    ],
)
def test_action__hostile_container_or_option__is_refused_before_anything_is_installed(
    repository: Repository, tmp_path: Path, name: str, value: str
):
    inputs = {"python": sys.executable, "runtime": "container", "image": "a:b", name: value}
    record = repository.runner(tmp_path / "scratch").run(inputs)
    assert (record.status, record.steps["plan"].outcome, record.outputs["conclusion"]) == (2, "failure", "usage")
    assert f"the input '{name}' " in record.steps["plan"].log
    assert not list((tmp_path / "scratch" / "temp").iterdir())


#: Those that the others hold, too, are of ``make matrix``.
ALSO = {"exits with 0", "ends the step", "writes the environment of later steps"}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.matrix) if way in ALSO else way for way in ATTACKS]
)
def test_action__test_file_that_would_be_green__is_not(
    repository: Repository, planted: ActionRecord, tmp_path: Path, way: str
):
    folder = repository.folder / "attacks"
    folder.mkdir(exist_ok=True)
    shutil.rmtree(repository.folder / "attacked", ignore_errors=True)
    (folder / "autotest_attack.py").write_text(f"{MISALIGNED}{ATTACK}{ATTACKS[way]}\n", "utf-8")
    inputs = {"python": sys.executable, "paths": "attacks", "cases": "2", "output": "attacked"}
    before = repository.github.bodies()
    record = repository.runner(tmp_path / "scratch").run(inputs, installed(planted))
    log = "\n".join(step.log for step in record.steps.values())
    assert record.status != 0, log
    assert record.outputs["conclusion"] != "success"
    assert repository.github.bodies() == before
    for word in SAID.get(way, ()):
        assert word in log


#: What a test leaves where the shell of a later step would be looked for, or would load it from.
LEFT_BEHIND = {
    "a bash in a folder of PATH": "{folder}/bin/bash",
    "a library in a folder of LD_LIBRARY_PATH": "{folder}/lib/libtinfo.so.6",
}


@pytest.mark.parametrize("way", LEFT_BEHIND)
def test_action__test_that_leaves_a_trap_for_later_steps__does_not_get_the_verdict(
    repository: Repository, planted: ActionRecord, tmp_path: Path, way: str
):
    folder = tmp_path / "tool"
    for name in ("bin", "lib"):
        (folder / name).mkdir(parents=True)
    runner = repository.runner(tmp_path / "scratch")
    runner.environ |= {"PATH": f"{folder}/bin:{runner.environ['PATH']}", "LD_LIBRARY_PATH": f"{folder}/lib"}
    trap = Path(LEFT_BEHIND[way].format(folder=folder))
    trap.write_text(f"#!/bin/sh\nenv > {folder}/stolen\nexit 0\n", "utf-8")
    trap.chmod(0o755)
    done = runner.run({}, {name: planted.steps[name] for name in ("plan", "prepare", "run", "upload")})
    assert (done.steps["publish"].outcome, done.steps["step-8"].outcome, done.status) == ("skipped", "failure", 1)
    assert not (folder / "stolen").exists()


#: What a test writes where its user may: the action's own files, from which a later command of the step is run.
REWRITES = """
root = next(
    pathlib.Path(word).parent for word in pathlib.Path(f"/proc/{step()}/cmdline").read_text().split("\\0")
    if word.endswith("/action")
)
forged = "exit-status=0\\nconclusion=success\\n"
(root / "ci_autotest" / "cli.py").write_text(
    f"def main():\\n    with open({variable('GITHUB_OUTPUT')!r}, 'a') as file:\\n        file.write({forged!r})\\n    print('# Forged')\\n"
)
for path in (root / "action").glob("*.py"):
    path.write_text("raise SystemExit(0)\\n")
"""


def test_action__test_that_rewrites_the_action__has_no_say_in_the_verdict(
    repository: Repository, planted: ActionRecord, tmp_path: Path
):
    folder = repository.folder / "rewriting"
    folder.mkdir()
    (folder / "autotest_rewrite.py").write_text(f"{MISALIGNED}{ATTACK}{REWRITES}\n", "utf-8")
    runner = repository.runner(tmp_path / "scratch")
    runner.action = shutil.copytree(repository.action, tmp_path / "action")
    inputs = {"python": sys.executable, "paths": "rewriting", "cases": "2", "output": "rewritten"}
    record = runner.run(inputs, installed(planted))
    run = record.steps["run"]
    assert "raise SystemExit" in (tmp_path / "action" / "action" / "outputs.py").read_text("utf-8"), run.log
    assert (record.status, record.outputs["conclusion"], run.outputs["exit-status"]) == (1, "failure", "1"), run.log
    assert "what renders the report wrote to GITHUB_OUTPUT: that was discarded." in run.log

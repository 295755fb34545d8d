"""A run that is stopped at any point, or that finds no room on the disk, leaves whole files and no process."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from junitparser import JUnitXml

from ci_autotest.report.report_json import json_schema
from tests.projects import Project, ended, environment, processes, wait_until
from tests.stopping import WAYS, Stop, stopped, stops, usual_s

#: What is looked at is processes, signals or limits.
OWN_SERVER = True

MARK = "CI_AUTOTEST_STOPPED"
KERNELS = """
import time

import torch


def exp(x):
    time.sleep(0.01)
    return torch.Tensor.exp(x)


def tanh(x):
    return torch.Tensor.tanh(x) * 1.001


def square(x):
    raise SystemExit(3)
"""
BODY = """
@autotest(n=60)
def {name}():
    return torch.{name}(random_tensor(ndim=2))

"""


def project_in(folder: Path) -> Project:
    project = Project(folder)
    names = ("exp", "tanh", "square")
    project.substitute({f"torch.{name}": f"mykernels.{name}" for name in names})
    project.write("mykernels.py", KERNELS)
    project.tests("".join(BODY.format(name=name) for name in names))
    return project


def check_whole(folder: Path) -> dict | None:
    """Return the report, ``None`` where there is none; no file is half."""
    assert [path.name for path in folder.rglob(".*.tmp")] == []
    if not (folder / "report.json").exists():
        return None
    report = json.loads((folder / "report.json").read_text("utf-8"))
    jsonschema.validate(report, json_schema())
    JUnitXml.fromfile(str(folder / "junit.xml"))
    for finding in report["findings"]:
        if finding["repro"] is not None:
            assert (folder / finding["repro"]).is_file()
    return report


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> list[Stop]:
    """Return two seeded moments for each way to stop a run, over the time that it takes here."""
    return stops(2 * len(WAYS), 3, usual_s(tmp_path_factory.mktemp("usual") / "project"))


@pytest.mark.heavy
@pytest.mark.parametrize("number", range(2 * len(WAYS)))
def test_run__stopped_at_any_moment__leaves_a_report_that_agrees_and_no_process_and_no_file(
    number: int, moments: list[Stop], tmp_path: Path
):
    left = stopped(tmp_path, moments[number])
    assert left.faults == (), (moments[number], left)


@pytest.mark.heavy
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_run__stopped_again_and_again__still_writes_the_report(sent: signal.Signals, tmp_path: Path):
    project = project_in(tmp_path)
    process = project.start("run", "--workers", "2", environ={MARK: str(tmp_path)})
    # Its first child: until then nothing is run, and a report is not promised.
    assert wait_until(lambda: len(processes(f"{MARK}={tmp_path}")) > 1, 60)
    while process.poll() is None:
        os.kill(process.pid, sent)
        time.sleep(0.002)
    done = ended(process)
    report = check_whole(tmp_path / "autotest-report")
    assert report is not None, done.said
    assert (done.status, report["exit_code"], report["interrupted"]) == (130, 130, True), done.said
    assert "Traceback" not in done.said


@pytest.mark.heavy
def test_run__terminal_is_closed__writes_the_report(tmp_path: Path):
    project = project_in(tmp_path)
    project.tests(BODY.format(name="exp").replace("n=60", "n=1000000"))
    child, terminal = pty.fork()
    if not child:
        os.chdir(tmp_path)
        os.execve(sys.executable, [sys.executable, "-m", "ci_autotest", "run"], environment({}))  # noqa: S606 - words
    report = tmp_path / "autotest-report"
    assert wait_until(lambda: b"cases" in os.read(terminal, 1 << 16) and report.is_dir(), 100)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    told = check_whole(report)
    assert told is not None
    assert (os.waitstatus_to_exitcode(status), told["interrupted"]) == (130, True)


def test_run__nobody_reads_what_it_prints__ends_as_ever(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "here", "backend": "torch"}])
    project.tests(BODY.format(name="exp").replace("n=60", "n=2"))
    process = project.start("run", "--workers", "1", environ={MARK: str(tmp_path)})
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    done = ended(process)
    assert (done.status, done.err) == (0, "")
    assert check_whole(tmp_path / "autotest-report") is not None


@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_main__interrupted_while_it_is_imported__says_so_in_a_sentence(sent: str, tmp_path: Path):
    project = Project(tmp_path)
    # In the place of a library that the command line imports first.
    project.write("click.py", f"import os, signal, time\nos.kill(os.getpid(), signal.{sent})\ntime.sleep(600)\n")
    done = project.command(
        "run", environ={"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    )
    assert (done.status, done.out, done.err) == (130, "", "interrupted before anything was run\n")


@pytest.fixture
def small_disk(tmp_path: Path):
    """Yield a folder on a disk of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_run__disk_is_full__says_so_and_leaves_no_half_file(small_disk: Path, tmp_path: Path):
    project = project_in(tmp_path / "project")
    (small_disk / "ballast").write_bytes(bytes(52 << 10))
    done = project.run("--cases", "3", "--output", str(small_disk / "report"))
    assert done.status == 2, done.said
    assert "No space left on device" in done.err
    assert "Traceback" not in done.said
    assert not (small_disk / "report" / "report.json").exists()
    check_whole(small_disk / "report")


def test_report__disk_is_full__keeps_what_was_there(small_disk: Path, tmp_path: Path):
    project = project_in(tmp_path / "project")
    done = project.run("--cases", "2", "--output", "fine")
    assert done.status == 1, done.said
    before = b'{"schema": "older"}'
    (small_disk / "report").mkdir()
    (small_disk / "report" / "report.json").write_bytes(before)
    (small_disk / "ballast").write_bytes(bytes(60 << 10))
    merged = project.command("report", "fine", "--output", str(small_disk / "report"))
    assert (merged.status, "No space left on device" in merged.err) == (2, True), merged.said
    assert (small_disk / "report" / "report.json").read_bytes() == before

"""A run that is stopped at any point, or that finds no room on the disk, leaves whole files and no process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import jsonschema
import pytest
from junitparser import JUnitXml

from ci_autotest.report.report_json import json_schema
from tests.projects import Project, ended, processes, wait_until

MARK = "CI_AUTOTEST_STOPPED"
#: Seconds within which everything must be gone.
GONE_S = 15  # A loaded machine takes as many as it likes; what stays for good is found after any number.
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


@pytest.mark.heavy
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.5, 7.0, 9.0, 12.0])
def test_run__stopped_at_any_point__leaves_whole_files_and_no_process(
    sent: signal.Signals, after_s: float, tmp_path: Path
):
    project = project_in(tmp_path)
    process = project.start("run", "--workers", "2", environ={MARK: str(tmp_path)})
    time.sleep(after_s)
    is_over = process.poll() is not None
    if not is_over:
        os.kill(process.pid, sent)
    begun = time.monotonic()
    done = ended(process, 3 * GONE_S)
    gone = wait_until(lambda: processes(f"{MARK}={tmp_path}") == [], GONE_S)
    taken = time.monotonic() - begun
    assert gone, processes(f"{MARK}={tmp_path}")
    assert taken < GONE_S
    report = check_whole(tmp_path / "autotest-report")
    if report is not None and done.status == 130:
        assert (report["interrupted"], report["exit_code"]) == (True, 130)
    # Before python itself is up, a signal ends it as it ends any process.
    assert done.status in ({0, 1, 3} if is_over else {130, 1, -sent})


@pytest.mark.heavy
def test_run__stopped_twice__still_writes_the_report(tmp_path: Path):
    project = project_in(tmp_path)
    process = project.start("run", "--workers", "2", environ={MARK: str(tmp_path)})
    assert wait_until(lambda: (tmp_path / "autotest-report").is_dir(), 60)
    for _ in range(2):
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.02)
    done = ended(process, 3 * GONE_S)
    report = check_whole(tmp_path / "autotest-report")
    assert (done.status, report is not None) == (130, True), done.said


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
    (small_disk / "ballast").write_bytes(bytes(48 << 10))
    merged = project.command("report", "fine", "--output", str(small_disk / "report"))
    assert (merged.status, "No space left on device" in merged.err) == (2, True), merged.said
    assert (small_disk / "report" / "report.json").read_bytes() == before

"""A full disk, of several sizes and at several moments: what was found is printed, what fits is written, whole."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from junitparser import JUnitXml

from ci_autotest.commands.exit_status import not_written
from ci_autotest.commands.output_writer import setting_for, write_surfaces
from ci_autotest.program.repro.permissions import Permissions
from ci_autotest.program.serialize import decode
from ci_autotest.report import report_json
from ci_autotest.report.finding_folders import FILES
from tests import report_samples as samples
from tests.projects import Done, Project, ended, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: What is looked at is processes, signals or limits.
OWN_SERVER = True

MATRIX = pytest.mark.matrix
KERNELS = """
import torch

def exp(x):
    return torch.Tensor.exp(x) + (x.numel() > 30_000)

def tanh(x):
    return torch.Tensor.tanh(x) + 1
"""
#: The first needs 120 kB of tensors, and no smaller program shows it; the second needs a few bytes.
TESTS = """
@autotest(n=2, auto_backward=False)
def exp():
    return torch.exp(random_tensor(ndim=1, dim0=40_000, requires_grad=False))

@autotest(n=2, auto_backward=False)
def tanh():
    return torch.tanh(random_tensor(ndim=1, dim0=4, requires_grad=False))
"""
#: Runs the command line with files of so many bytes at most.
LIMITED = (
    "import resource, runpy, sys; limit = int(sys.argv.pop(1)); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)); runpy.run_module('ci_autotest', run_name='__main__')"
)
FULL = "cannot be written: No space left on device."


def project_in(folder: Path) -> Project:
    folder.mkdir(exist_ok=True)
    project = Project(folder)
    project.substitute({"torch.exp": "kernels.exp", "torch.tanh": "kernels.tanh"})
    project.write("kernels.py", KERNELS)
    project.tests(TESTS)
    return project


@contextmanager
def disk(folder: Path, size_bytes: int, left_bytes: int | None = None) -> Iterator[Path]:
    """Mount a file system of some size, with so much room left; who may not, has none."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
    try:
        if left_bytes is not None:
            (folder / "filler").write_bytes(bytes(size_bytes - left_bytes))
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def written(output: Path) -> set[str]:
    """Return what is in an output folder, by name; each file that a reader would take for whole is whole."""
    found = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()} - {"filler"}
    assert not [name for name in found if name.endswith(".tmp")]
    for folder in (output / "findings").glob("*"):
        files = {path.name for path in folder.iterdir()}
        assert files in (FILES, FILES - {"repro.py"})
        assert decode((folder / "program.json").read_bytes(), (folder / "tensors.safetensors").read_bytes()).tensors
    if "junit.xml" in found:
        assert len(JUnitXml.fromfile(str(output / "junit.xml")))
    return found


def printed(done: Done) -> list[str]:
    return [name for name in ("exp", "tanh") if f"misaligned: torch.{name} on kernels: value of {name} is" in done.out]


@pytest.mark.parametrize("left", [0, 16_384, 57_344, *(pytest.param(size, marks=MATRIX) for size in (4096, 40_960))])
def test_run__disk_is_full__prints_what_was_found_and_writes_what_fits(left: int, tmp_path: Path):
    project = project_in(tmp_path / "project")
    with disk(project.folder / "out", 64 << 10, left) as output:
        done = project.run("--output", "out")
        found = written(output)
        assert (done.status, printed(done)) == (2, ["exp", "tanh"]), done.said
        assert FULL in done.out
        assert FULL in done.err or "to make room for report.json: No space left on device." in done.err
        assert done.out.rstrip().endswith("exit status 2")
        if "report.json" in found:
            report = report_json.read(output / "report.json")
            assert (report.exit_code, len(report.findings)) == (2, 2)
            for finding in report.findings:
                assert finding.repro is None or finding.repro in found
        else:
            assert f"note: {output}/report.json {FULL}" in done.out
        # What is small fits wherever there is room for it.
        assert left < 16_384 or {"junit.xml", "summary.md", "report.json"} & found


def test_run__one_finding_is_too_large__the_other_is_written_and_confirmed(tmp_path: Path):
    project = project_in(tmp_path / "project")
    with disk(project.folder / "out", 128 << 10) as output:
        done = project.run("--output", "out")
        found = written(output)
        report = report_json.read(output / "report.json")
    large, small = sorted(report.findings, key=lambda finding: finding.operator)
    assert (done.status, report.exit_code, printed(done)) == (2, 2, ["exp", "tanh"]), done.said
    assert {"junit.xml", "summary.md", "comment.md", f"findings/{small.id}/repro.py"} <= found
    assert (large.confirmed, large.repro, small.confirmed, small.repro_verified) == (True, None, True, True)
    assert large.message.endswith("its smallest program is shown here only: its folder could not be written")
    told = [note for note in report.notes if "cannot be written" in note]
    assert told == [f"{output}/findings/{large.id} {FULL} Choose another folder with --output."]


def test_run__nothing_is_found_and_no_room_for_the_report__is_not_green(tmp_path: Path):
    project = project_in(tmp_path / "project")
    project.tests(TESTS.replace("40_000", "4"), "autotests/autotest_all.py")
    project.write("kernels.py", KERNELS.replace("tanh(x) + 1", "tanh(x)"))
    with disk(project.folder / "out", 64 << 10, 0) as output:
        done = project.run("--output", "out")
        assert written(output) == set()
    assert done.status == 2, done.said
    assert f"junit.xml {FULL}" in done.out or f"report.json {FULL}" in done.out


@pytest.mark.parametrize("limit", [1024, 20_480, *(pytest.param(size, marks=MATRIX) for size in (4096, 8192))])
def test_run__files_have_a_size_at_most__prints_what_was_found(limit: int, tmp_path: Path):
    project = project_in(tmp_path / "project")
    words = [sys.executable, "-c", LIMITED, str(limit), "run", "--workers", "1"]
    with subprocess.Popen(
        words, cwd=project.folder, env=environment(None), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        done = ended(process)
    found = written(project.folder / "autotest-report")
    assert (done.status, printed(done)) == (2, ["exp", "tanh"]), done.said
    assert "cannot be written: File too large." in done.out
    assert ("report.json" in found) == (limit > 8192)


def test_run__output_goes_to_a_full_disk__writes_its_report(tmp_path: Path):
    project = project_in(tmp_path / "project")
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [sys.executable, "-m", "ci_autotest", "run", "--workers", "1"], cwd=project.folder, env=environment(None),
            stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    report = report_json.read(project.folder / "autotest-report" / "report.json")
    assert (done.returncode, done.stderr, report.exit_code, len(report.findings)) == (1, b"", 1, 2)


def test_report__disk_is_full__prints_the_merged_report(tmp_path: Path):
    project = project_in(tmp_path / "project")
    assert project.run().status == 1
    with disk(project.folder / "out", 64 << 10, 8192) as output:
        done = project.command("report", "autotest-report", "--output", "out")
        written(output)
    assert (done.status, printed(done)) == (2, ["exp", "tanh"]), done.said
    assert FULL in done.out


def surfaces(folder: Path, **sample: Any) -> tuple[set[str], Any]:
    result = samples.misaligned(**sample)
    made = write_surfaces(result, folder, setting_for(result, folder, os.environ, Permissions(), is_own=True))
    return written(folder), made


def test_write_surfaces__report_of_an_earlier_run_cannot_be_replaced__is_told(tmp_path: Path):
    many = samples.misaligned(findings=tuple(samples.numbered(index) for index in range(60)))
    with disk(tmp_path / "disk", 64 << 10) as folder:
        assert "report.json" in surfaces(folder)[0]
        before = (folder / "report.json").read_bytes()
        _, made = surfaces(folder, findings=many.findings)
        assert (folder / "report.json").read_bytes() == before
    assert (made.exit_code, made) == (2, not_written(many, made.notes[-1:]))
    assert f"{folder}/report.json {FULL}" in made.notes[-1]

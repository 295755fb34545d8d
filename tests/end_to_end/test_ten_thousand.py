"""Thousands of findings: what is published of them, and what that costs."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from junitparser import Failure, JUnitXml

from tests import program_samples as programs
from tests import report_samples as samples
from tests.archives import report_bytes, zipped
from tests.fakes.github import BOT, FakeGithub
from tests.fakes.github_server import serving
from tests.objections import STORED, arranged, environ_of
from tests.projects import environment

if TYPE_CHECKING:
    from pathlib import Path

#: More than any surface shows. As many as there may be take a minute.
COUNTS = [2_000, pytest.param(10_000, marks=pytest.mark.matrix)]
#: Runs a command and prints, last, the most memory that it held: a process that this one starts begins with this one's.
MEASURED = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
"""


def archive_of(count: int) -> bytes:
    """Return the artifact of so many tests with a finding each, every finding with its four files."""
    findings = tuple(
        samples.numbered(i, test=f"autotests/autotest_{i % 100}.py::op{i:05}", target=programs.OPERATOR, tests=())
        for i in range(count)
    )
    results = tuple(samples.failed(test=item.test, findings=(item.id,)) for item in findings)
    program, tensors = programs.files()
    files = {
        "repro.py": b"print('x')\n" * 100,
        "program.json": program,
        "tensors.safetensors": tensors,
        "README.md": b"x",
    }
    saved = {f"findings/{item.id}/{name}": data for item in findings for name, data in files.items()}
    return zipped({"report.json": report_bytes(samples.misaligned(findings=findings, results=results)), **saved})


@pytest.mark.parametrize("count", COUNTS)
def test_comment__thousands_of_findings__is_within_every_limit(count: int, tmp_path: Path) -> None:
    archive = archive_of(count)
    with serving(FakeGithub()) as github:
        arranged(github, "run")
        base = replace(STORED, id=500, run_id=60, branch="main", repository="octo/kernels", data=archive)
        github.artifacts = [base, replace(STORED, data=archive)]
        environ = environment(environ_of(github, "run", tmp_path, "workflow_run"))
        command = ["comment", "--run-id", "77", "--baseline", "auto", "--output", "read"]
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, sys.executable, "-m", "ci_autotest", *command],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        took_s = time.monotonic() - begun
    said, _, used_kb = done.stdout.rstrip().rpartition("\n")
    calls = [seen for seen in github.seen if not seen.path.startswith("/store/")]
    (body,) = github.bodies(BOT).values()
    folder = tmp_path / "read" / "ci-autotest-report"
    suites = list(JUnitXml.fromfile(str(folder / "junit.xml")))

    print(f"{took_s:.1f} s, {int(used_kb) / 1024:.0f} MB, {len(calls)} calls, archive of {len(archive):,} bytes")  # noqa: T201
    assert (done.returncode, "(created)" in said) == (0, True), said
    assert len(body.encode()) <= 65_536
    assert len((folder / "summary.md").read_bytes()) < 1_048_576
    assert f"{count - 60:,} more findings are in the summary and the artifact." in body
    assert sum(isinstance(found, Failure) for suite in suites for case in suite for found in case.result) == count
    assert len(calls) <= 9
    assert int(used_kb) < (150 + 0.035 * count) * 1024

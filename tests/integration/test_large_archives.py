"""Archives that are large, or would be: refused before they cost anything."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from ci_autotest.errors import PublishError
from ci_autotest.github.archive import opened
from tests import report_samples as samples
from tests.archives import bomb, made, report_bytes
from tests.fakes.github import BOT, FakeGithub
from tests.fakes.github_server import serving
from tests.objections import RUN_ID, STORED, arranged, environ_of


def refused_with(data: bytes) -> tuple[str, int]:
    """Return what is said, and the bytes of memory that it took to say it."""
    tracemalloc.start()
    said = refusal(data)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return said, used


def refusal(data: bytes) -> str:
    with pytest.raises(PublishError) as caught:
        opened("report", io.BytesIO(data)).read("report.json", 1 << 20)
    return str(caught.value).removeprefix("artifact 'report' is not read: ").partition(". It is not a report")[0]


def test_opened__bomb__is_refused_unread() -> None:
    data = bomb(200 << 20)

    said, used = refused_with(data)

    assert (len(data) < 300_000, used < 10_000_000) == (True, True)
    assert said == "entry 'report.json' has 209,715,200 bytes, and 67,108,864 are allowed"


def test_opened__65536_entries__are_refused_before_any_is_looked_at() -> None:
    data = made([(f"findings/a{i}/program.json", b"", {}) for i in range(65_536)], zipfile.ZIP_STORED)

    said, used = refused_with(data)

    # The library makes an object of some 600 bytes of each entry.
    assert used < len(data) // 2
    assert said == "it has 65,536 entries, and 60,000 are allowed"


def test_opened__40000_entries_of_10000_findings__are_taken() -> None:
    names = ("repro.py", "program.json", "tensors.safetensors", "README.md")
    data = made([(f"findings/a{i}/{name}", b"", {}) for i in range(10_000) for name in names], zipfile.ZIP_STORED)

    assert "findings/a9999/program.json" in opened("report", io.BytesIO(data))


#: Runs the command line and prints the most memory that it held, in KiB; `getrusage` would count this process's too.
MEASURED = """
import pathlib, re
from ci_autotest.cli import main
try:
    main()
finally:
    print("resident", re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])
"""


def test_comment__ten_artifacts_of_100_mebibytes__hold_less_than_300_resident(tmp_path: Path) -> None:
    entries = [
        ("report.json", report_bytes(samples.misaligned()), {}),
        ("findings/layer_norm-3f2a/tensors.safetensors", bytes(100 << 20), {}),
    ]
    data = made(entries, zipfile.ZIP_STORED)
    with serving(FakeGithub()) as github:
        arranged(github, "run")
        github.artifacts = [
            replace(STORED, id=900 + leg, name=f"ci-autotest-report-{leg}", data=data) for leg in range(10)
        ]
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, "comment", f"--run-id={RUN_ID}"], cwd=tmp_path, check=False,
            env={**os.environ, **environ_of(github, "run", tmp_path, "workflow_run"),
                 "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
        )  # fmt: skip
        assert "(created)" in done.stdout, done.stdout
        assert "**10 of 10 legs not aligned**" in github.bodies(BOT)[152]
    assert int(done.stdout.split()[-1]) < 300 << 10, done.stdout

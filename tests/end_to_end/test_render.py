"""``ci-autotest render`` and ``comment`` as processes: bytes, limits, statuses."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ci_autotest.report import report_json
from tests import report_samples as samples
from tests.fakes.github import BOT, FakeGithub, refusal
from tests.fakes.github_server import serving
from tests.objections import arranged, environ_of
from tests.projects import environment

if TYPE_CHECKING:
    from pathlib import Path


def command(folder: Path, *words: str, **environ: str) -> tuple[int, bytes, str]:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "ci_autotest", *words],
        cwd=folder, env=environment(environ), capture_output=True, timeout=100, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    findings = tuple(samples.numbered(index, headline="é" * 200) for index in range(50))
    report_json.write(samples.misaligned(findings=findings), tmp_path / "report.json")
    return tmp_path


@pytest.mark.parametrize("limit", [0, 100, 5_000])
@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_render__summary__is_utf8_within_its_room_in_any_locale(folder: Path, limit: int, locale: str) -> None:
    status, out, err = command(folder, "render", ".", "summary", "--limit", str(limit), LC_ALL=locale)

    assert (status, len(out) <= limit, err) == (0, True, "")
    assert out.decode().startswith("### ✗ 50 operators" if limit == 5_000 else "")


def test_render__annotations__are_eleven_lines(folder: Path) -> None:
    status, out, _ = command(folder, "render", ".", "annotations")

    assert (status, [line[:4] for line in out.splitlines()]) == (0, [b"::er"] * 10 + [b"::no"])


def test_render__report_that_a_test_has_overwritten__is_refused(folder: Path) -> None:
    (folder / "report.json").write_text('{"schema": "ci-autotest/report/1", "exit_code": 0}')

    status, out, err = command(folder, "render", ".", "summary")

    assert (status, out, "is not a report" in err) == (2, b"", True)


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        pytest.param(None, 0, b"(created)", id="fine"),
        pytest.param(refusal("POST"), 0, b"comment: not posted (degraded)", id="403"),
        pytest.param(refusal("GET", "pulls"), 0, b"comment: not posted (degraded)", id="403 at once"),
    ],
)
def test_comment__as_a_process__says_last_what_became_of_it(folder: Path, fault, status: int, said: bytes) -> None:
    with serving(FakeGithub()) as github:
        arranged(github, "folder")
        if fault:
            github.plant(fault)

        done, out, err = command(folder, "comment", ".", **environ_of(github, "folder", folder, ""))

        assert (done, said in out, err) == (status, True, "")
        assert len(github.bodies(BOT)) == (1 if fault is None else 0)
        assert github.token.encode() not in out

"""The Pages workflow's own script, run by bash on a repository of its own that takes the branch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = yaml.safe_load((ROOT / "workflows" / "autotest-pages.yml").read_text("utf-8"))
SCRIPT = WORKFLOW["jobs"]["publish"]["steps"][-1]["run"]


def git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True, timeout=60).stdout


def test_publish__two_runs__leave_one_commit_with_the_latest_page(tmp_path: Path):
    remote = tmp_path / "server" / "org" / "kernels.git"
    git("init", "--quiet", "--bare", str(remote))
    (tmp_path / "report").mkdir()
    for name in ("first", "second"):
        (tmp_path / "report" / "index.html").write_text(name)
        folder = tmp_path / name
        folder.mkdir()
        environ = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "GH_TOKEN": "secret", "REPORT": str(tmp_path / "report"),
            "GITHUB_SHA": "ab" * 20, "GITHUB_SERVER_URL": (tmp_path / "server").as_uri(), "GITHUB_REPOSITORY": "org/kernels",
        }  # fmt: skip
        argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", SCRIPT]
        subprocess.run(argv, cwd=folder, env=environ, check=True, timeout=60)

    assert git("-C", str(remote), "rev-list", "--count", "gh-pages").strip() == "1"
    assert git("-C", str(remote), "show", "gh-pages:index.html") == "second"
    assert "secret" not in "".join(
        path.read_text(errors="replace") for path in (tmp_path / "second").rglob("*") if path.is_file()
    )


def test_publish__job__has_no_code_of_the_tests():
    uses = [step["uses"].partition("@")[0] for step in WORKFLOW["jobs"]["publish"]["steps"] if "uses" in step]

    assert uses == ["actions/setup-python", "actions/download-artifact", "org/ci-autotest"]

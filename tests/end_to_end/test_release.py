"""The release workflow: what must hold before something else, and its own scripts, with `gh` and `docker` that keep a list."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from ci_autotest.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))["jobs"]
TAG = f"v{VERSION}"
MAJOR = TAG.partition(".")[0]
IMAGE = "ghcr.io/acme/ci-autotest"
CPU, CUDA = "sha256:" + "a" * 64, "sha256:" + "b" * 64
#: Stands where `gh` and `docker` do: keeps its arguments; fails where it is told to.
TOOL = """#!{python}
import json, os, pathlib, sys
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
with open({store!r}, "a") as file:
    file.write(json.dumps(words) + "\\n")
sys.exit({fail!r} in words)
"""


def script(job: str, name: str) -> str:
    (found,) = [step["run"] for step in JOBS[job]["steps"] if step["name"] == name]
    return found


def before(job: str) -> set[str]:
    """Return every job that has ended well when ``job`` starts."""
    needs = JOBS[job].get("needs", [])
    direct = {needs} if isinstance(needs, str) else set(needs)
    return direct.union(*(before(each) for each in direct))


def bash(text: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": f"{folder}:{os.environ['PATH']}", "GITHUB_REF_NAME": TAG, "GITHUB_REPOSITORY": "Acme/ci-autotest"}
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    return subprocess.run(
        argv, cwd=folder, env=given | environ, capture_output=True, text=True, check=False, timeout=60
    )


def released(folder: Path, fail: str = "") -> list[list[str]]:
    """Run the job `release` in ``folder``; return what it asked `gh` and `docker` for."""
    for name in ("gh", "docker"):
        (folder / name).write_text(TOOL.format(python=sys.executable, store=str(folder / "calls"), fail=fail))
        (folder / name).chmod(0o755)
    (folder / "released").mkdir()
    (folder / "released" / "image.cpu.txt").write_text(f"{IMAGE}:{TAG}@{CPU}\n")
    (folder / "released" / "image.cuda.txt").write_text(f"{IMAGE}:{TAG}-cuda@{CUDA}\n")
    (folder / "released" / f"ci_autotest-{VERSION}-py3-none-any.whl").write_text("a wheel")
    for name in ("Write the notes", "Release, and move the floating tags"):
        done = bash(script("release", name), folder, GITHUB_ACTOR="a", GITHUB_SHA="5f" * 20)
        assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def test_release__floating_tags__move_after_the_tests_and_the_pushed_image_s():
    assert before("release") == {"test", "wheel", "image", "smoke"}
    floating = [name for name, job in JOBS.items() if "imagetools create" in str(job) or "git/refs" in str(job)]
    assert floating == ["release"]
    assert "test_image.py" in str(JOBS["smoke"])
    assert "test_action*.py" in str(JOBS["test"])


def test_release__notes__name_the_digests_and_the_lines_that_verify(tmp_path: Path):
    released(tmp_path)
    notes = (tmp_path / "notes.md").read_text().splitlines()
    assert [line for line in notes if "ghcr.io" in line or line.startswith("gh ")] == [
        f"- `{IMAGE}:{TAG}@{CPU}`",
        f"- `{IMAGE}:{TAG}-cuda@{CUDA}`",
        f"gh attestation verify oci://{IMAGE}@{CPU} --repo Acme/ci-autotest",
        f"gh attestation verify oci://{IMAGE}@{CUDA} --repo Acme/ci-autotest",
        f"gh attestation verify ci_autotest-{VERSION}-py3-none-any.whl --repo Acme/ci-autotest",
    ]


def test_release__floating_tags__are_what_was_tested_by_digest(tmp_path: Path):
    calls = released(tmp_path)
    assert [call[3:] for call in calls if call[:3] == ["docker", "buildx", "imagetools"]] == [
        ["create", "--tag", f"{IMAGE}:{MAJOR}", f"{IMAGE}@{CPU}"],
        ["create", "--tag", f"{IMAGE}:{MAJOR}-cuda", f"{IMAGE}@{CUDA}"],
    ]
    assert [call[4] for call in calls if call[:2] == ["gh", "api"]] == [f"repos/Acme/ci-autotest/git/refs/tags/{MAJOR}"]


def test_release__first_of_its_major_version__makes_the_tag(tmp_path: Path):
    calls = released(tmp_path, fail="PATCH")
    assert calls[-1][:6] == ["gh", "api", "--method", "POST", "repos/Acme/ci-autotest/git/refs", "-f"]
    assert calls[-1][6] == f"ref=refs/tags/{MAJOR}"


@pytest.mark.parametrize(
    ("tag", "organisation", "status"),
    [(TAG, "Acme", 0), ("v0.9.0", "Acme", 1), (TAG, "other", 1)],
    ids=["agrees", "another version", "`org` was not replaced"],
)
def test_release__tag_version_and_image__must_agree(tag: str, organisation: str, status: int, tmp_path: Path):
    shutil.copytree(ROOT / "ci_autotest", tmp_path / "ci_autotest", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    action = (ROOT / "action.yml").read_text("utf-8")
    (tmp_path / "action.yml").write_text(re.sub(r"ghcr\.io/[\w-]+/ci-autotest", IMAGE, action))
    text = script("test", "Compare the tag and the action's image with the version")
    done = bash(text, tmp_path, GITHUB_REF_NAME=tag, GITHUB_REPOSITORY=f"{organisation}/ci-autotest")
    assert (done.returncode != 0) is bool(status), done.stderr


def test_version__everywhere__is_one():
    action = (ROOT / "action.yml").read_text("utf-8")
    assert f"default: ghcr.io/org/ci-autotest:{TAG}\n" in action
    copied = "".join(path.read_text("utf-8") for path in (ROOT / "workflows").glob("*.yml"))
    assert set(re.findall(r"org/ci-autotest[@:](v[0-9.]+)", copied)) == {MAJOR}


@pytest.mark.heavy
def test_organisation__put_in_as_the_docs_say__leaves_nothing_open_and_the_tests_hold(tmp_path: Path):
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in files.rstrip("\0").split("\0"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    (line,) = re.findall(r"`(git grep .*)`\n", (ROOT / "docs" / "releasing.md").read_text("utf-8"))
    subprocess.run(
        ["bash", "-ec", f"git init -q && git add . && {line}"],
        cwd=tmp_path,
        env=os.environ | {"ORG": "Beta-Two"},
        check=True,
    )
    left = subprocess.run(
        ["git", "grep", "-nE", r"\borg/ci-autotest"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert [row for row in left.stdout.splitlines() if not row.startswith("docs/releasing.md")] == []
    held = ["tests/contract/test_action_yml.py", "tests/end_to_end/test_release.py", "tests/end_to_end/test_init.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *held], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.heavy
def test_wheel__pages_of_the_documentation__are_in_it(tmp_path: Path):
    for name in ("ci_autotest", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, tmp_path / name)
    build = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", "."]
    subprocess.run([sys.executable, "-m", *build], cwd=tmp_path, check=True, timeout=300)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        pages = {name.removeprefix("ci_autotest/") for name in files.namelist() if name.endswith(".md")}
        files.extractall(tmp_path / "installed")
    assert pages >= {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    printed = subprocess.run(
        [sys.executable, "-m", "ci_autotest", "docs", "troubleshooting#flaky"], cwd=tmp_path / "installed",
        env=os.environ | {"PYTHONPATH": "."}, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert printed.stdout.startswith("## flaky\n")

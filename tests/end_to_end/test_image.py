"""The image, built and run for real: hardened, and with the findings that the host has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT.parent / "shared" / "container"
TAG = "localhost/ci-autotest:test"
TOOLS = ("buildah", "podman", "runc", "debootstrap")
SCRATCH = "/tmp"  # noqa: S108 - the container's own
HARDENED = [
    "--user", "1001:118", "--read-only", "--read-only-tmpfs=false",
    "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none",
]  # fmt: skip
#: Takes the folder of the scripts and a command; buildah gets the machine's certificates ($CA).
SETTING = """
set -euo pipefail
. "$1/env.sh"
shift
if [ "$1" = buildah ]; then set -- "$1" "$2" $CA "${@:3}"; fi
exec "$@"
"""


def with_scripts(*argv: str, timeout_s: int) -> subprocess.CompletedProcess[str]:
    """Run ``argv`` as the scripts set the machine up."""
    return subprocess.run(
        ["bash", "-c", SETTING, "bash", str(SCRIPTS), *argv], cwd=ROOT, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=timeout_s,
    )  # fmt: skip


def run_image(
    image: str, *argv: str, options: tuple[str, ...] = (), scratch: str = SCRATCH
) -> subprocess.CompletedProcess[str]:
    hardened = [*HARDENED, "--tmpfs", scratch]
    return with_scripts("podman", "run", "--rm", *hardened, *options, image, *argv, timeout_s=900)


@pytest.fixture(scope="module")
def image() -> str:
    """Build the image on the base of the scripts; layers of an earlier build are used again."""
    if not SCRIPTS.is_dir():
        pytest.fail(f"'{SCRIPTS}' is not there: its make_base.sh makes the base image, and its env.sh sets buildah up.")
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        pytest.fail(f"not installed: {', '.join(missing)}. `.ci/run` installs them.")
    made = with_scripts(str(SCRIPTS / "make_base.sh"), timeout_s=900)
    assert made.returncode == 0, made.stderr[-4000:]
    wheels = os.environ.get("PIP_FIND_LINKS", "")
    local = ["-v", f"{wheels}:{wheels}:ro", "--env", "PIP_FIND_LINKS"] if wheels.startswith("/") else []
    arguments = ["BASE=localhost/python:3.11-slim", "HEADERS=python3-dev"]
    built = with_scripts(
        "buildah", "bud", "--layers", "--isolation", "chroot", "--network", "host", *local,
        *[part for argument in arguments for part in ("--build-arg", argument)], "-t", TAG, ".",
        timeout_s=1800,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
    return TAG


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """Copy the example to where the image's user may write the report."""
    folder = tmp_path / "kernels"
    shutil.copytree(
        ROOT / "examples" / "kernels",
        folder,
        ignore=shutil.ignore_patterns("autotest-report", "__pycache__"),
    )
    for path in (folder, tmp_path):
        path.chmod(0o777)
    return folder


def findings(report: Path) -> list[dict[str, object]]:
    names = (
        "id",
        "candidate",
        "operator",
        "kind",
        "blame",
        "test",
        "case",
        "program",
        "first_pair",
    )
    document = json.loads(report.read_text("utf-8"))
    return [{name: finding[name] for name in names} for finding in document["findings"]]


def test_image__help__works_hardened(image: str):
    done = run_image(image, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "run" in done.stdout


def test_image__kernels__has_the_findings_of_the_host(image: str, kernels: Path, tmp_path: Path):
    on_host = [sys.executable, "-m", "ci_autotest", "run", f"--output={tmp_path / 'host'}"]
    host = subprocess.run(on_host, cwd=kernels, capture_output=True, text=True, check=False, timeout=900)
    inside = run_image(image, "run", options=("-v", f"{kernels}:/github/workspace"))
    assert (host.returncode, inside.returncode) == (1, 1), inside.stdout + inside.stderr
    expected = findings(tmp_path / "host" / "report.json")
    assert [finding["operator"] for finding in expected] == ["torch.nn.functional.layer_norm"]
    assert findings(kernels / "autotest-report" / "report.json") == expected


def test_image__torch_compile__finds_its_compiler(image: str):
    code = "import torch; print(torch.compile(lambda x: (x.sin() + 1).sum())(torch.zeros(8)).item())"
    done = run_image(image, "-c", code, options=("--entrypoint", "python"), scratch=f"{SCRATCH}:exec")
    assert (done.returncode, done.stdout) == (0, "8.0\n"), done.stderr


def test_image__configuration__has_a_user_labels_and_no_cuda(image: str):
    shown = with_scripts("podman", "image", "inspect", image, timeout_s=60)
    config = json.loads(shown.stdout)[0]["Config"]
    assert (config["User"], config["Entrypoint"]) == ("1001", ["ci-autotest"])
    assert config["Labels"]["org.opencontainers.image.title"] == "ci-autotest"
    done = run_image(image, "-c", "import torch; print(torch.version.cuda)", options=("--entrypoint", "python"))
    assert done.stdout == "None\n"

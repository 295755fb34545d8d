"""The image, built and run for real: hardened, and with the findings that the host has.

Built by buildah and run by podman, as the scripts beside the repository set them up. Where AUTOTEST_IMAGE names an image,
as the release does with the one it has pushed, that one is run by docker instead.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from ci_autotest.commands.init import template
from tests.action_runner import ActionRecord, ActionRunner, expressions_entry, job_environ
from tests.projects import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT.parent / "shared" / "container"
TAG = "localhost/ci-autotest:test"
TOOLS = ("buildah", "podman", "runc", "debootstrap")
BASE = "localhost/python:3.11-slim"
GIVEN = os.environ.get("AUTOTEST_IMAGE", "")
SCRATCH = "/tmp"  # noqa: S108 - the container's own
HARDENED = [
    "--user", "1001:118", "--read-only", *([] if GIVEN else ["--read-only-tmpfs=false"]),
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
    """Run ``argv`` as the scripts set the machine up, where they do."""
    return subprocess.run(
        [*([] if GIVEN else ["bash", "-c", SETTING, "bash", str(SCRIPTS)]), *argv], cwd=ROOT, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=timeout_s,
    )  # fmt: skip


def run_image(
    image: str, *argv: str, options: tuple[str, ...] = (), scratch: str = SCRATCH
) -> subprocess.CompletedProcess[str]:
    return run_plainly(*HARDENED, "--tmpfs", scratch, *options, image, *argv)


def run_plainly(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run a container with ``argv`` as anybody would."""
    return with_scripts("docker" if GIVEN else "podman", "run", "--rm", *argv, timeout_s=900)


@pytest.fixture(scope="module")
def image() -> str:
    """Build the image on the base of the scripts; layers of an earlier build are used again."""
    if GIVEN:
        return GIVEN
    if not SCRIPTS.is_dir():
        pytest.fail(f"'{SCRIPTS}' is not there: its make_base.sh makes the base image, and its env.sh sets buildah up.")
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        pytest.fail(f"not installed: {', '.join(missing)}. `.ci/run` installs them.")
    made = with_scripts(str(SCRIPTS / "make_base.sh"), timeout_s=900)
    assert made.returncode == 0, made.stderr[-4000:]
    wheels = os.environ.get("PIP_FIND_LINKS", "")
    local = ["-v", f"{wheels}:{wheels}:ro", "--env", "PIP_FIND_LINKS"] if wheels.startswith("/") else []
    arguments = [f"BASE={BASE}", "HEADERS=python3-dev", "TORCH_CPU_INDEX=", f"REVISION={'5f' * 20}"]
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
    inside = run_image(image, "run", options=("-v", f"{kernels}:/src"))
    assert (host.returncode, inside.returncode) == (1, 1), inside.stdout + inside.stderr
    expected = findings(tmp_path / "host" / "report.json")
    assert [finding["operator"] for finding in expected] == ["torch.nn.functional.layer_norm"]
    assert findings(kernels / "autotest-report" / "report.json") == expected


def outcomes(report: Path) -> dict[tuple[str, str], tuple[str, dict[str, int]]]:
    """Return outcome and cases by (test, candidate)."""
    results = json.loads(report.read_text("utf-8"))["results"]
    return {(item["test"], item["candidate"]): (item["outcome"], item["cases"]) for item in results}


def test_image__inductor__compiles_and_agrees_with_the_host(image: str, kernels: Path, tmp_path: Path):
    inductor = "candidates=[{name: compiled, backend: torch.compile, options: {backend: inductor}}]"
    asked = [
        "run",
        "autotests/autotest_kernels.py::softmax",
        "--cases=1",
        "--workers=1",
        "--set=case_timeout=5m",
        f"--set={inductor}",
    ]
    host = subprocess.run(
        [sys.executable, "-m", "ci_autotest", *asked, f"--output={tmp_path / 'host'}"],
        cwd=kernels, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    inside = run_image(image, *asked, options=("-v", f"{kernels}:/src"), scratch=f"{SCRATCH}:exec")
    assert (host.returncode, inside.returncode) == (0, 0), inside.stdout + inside.stderr
    seen = outcomes(kernels / "autotest-report" / "report.json")
    assert seen == outcomes(tmp_path / "host" / "report.json")
    ((outcome, cases),) = seen.values()
    assert (outcome, cases["aligned"]) == ("aligned", 1)


def in_job(engine: str, image: str, folder: Path, scratch: Path, **inputs: str) -> ActionRecord:
    """Run the action with ``runtime: container`` by the docker client, on podman's socket."""
    runner = ActionRunner(
        action=ROOT, workspace=folder, scratch=scratch, expressions=expressions_entry(),
        github={"token": "", "event_name": "push", "event": {}},
        environ=job_environ() | {"GITHUB_SHA": "5f" * 20, "DEPLOY_TOKEN": "s3cret", "DOCKER_HOST": engine},
    )  # fmt: skip
    given = {"python": sys.executable, "runtime": "container", "image": image, "comment": "off", **inputs}
    return runner.run(given)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve podman where the docker client looks for its engine; yield the address."""
    if GIVEN:
        yield os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        return
    socket = tmp_path_factory.mktemp("engine") / "podman.sock"
    argv = ["bash", "-c", SETTING, "bash", str(SCRIPTS), "podman", "system", "service", "--time=0", f"unix://{socket}"]
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        assert wait_until(socket.exists, 60)
        yield f"unix://{socket}"
        process.terminate()


#: What a test file in the container tries, and prints.
LOOKING = """
import os, pathlib, socket
def tried(act):
    try:
        return act()
    except OSError as error:
        return error.strerror or type(error).__name__
report = {
    "user": os.getuid(), "secrets": [n for n in os.environ if "TOKEN" in n or n.startswith(("INPUT_", "STEP_"))],
    "capabilities": [l.split()[1] for l in open("/proc/self/status") if l.startswith("CapEff")],
    "root": tried(lambda: open("/x", "w")), "checkout": tried(lambda: open("/github/workspace/x", "w")),
    "socket": os.path.exists("/var/run/docker.sock") or os.path.exists("/run/podman/podman.sock"),
    "network": tried(lambda: socket.create_connection(("192.0.2.1", 80), 2)),
    "processes": sum(e.name.isdigit() for e in pathlib.Path("/proc").iterdir()) < 20,
}
pathlib.Path("/github/workspace/autotest-report/looked.json").write_text(__import__("json").dumps(report))
link = pathlib.Path("/github/workspace/autotest-report/link")
if not link.is_symlink():
    link.symlink_to("/etc/hostname")
"""


def test_action_in_container__planted_kernel__is_found_and_the_test_reaches_nothing(
    engine: str, image: str, kernels: Path, tmp_path: Path
):
    for file in kernels.rglob("autotest_*.py"):
        file.write_text(file.read_text("utf-8") + LOOKING, "utf-8")
    record = in_job(engine, image, kernels, tmp_path / "scratch", cases="4")
    log = "\n".join(step.log for step in record.steps.values())
    assert (record.status, record.outputs["conclusion"]) == (1, "failure"), log
    assert {finding["operator"] for finding in findings(kernels / "autotest-report" / "report.json")} == {
        "torch.nn.functional.layer_norm"
    }
    uploaded = record.artifacts / "ci-autotest-report"
    assert json.loads((uploaded / "looked.json").read_text("utf-8")) == {
        "user": 1001, "secrets": [], "capabilities": ["0000000000000000"], "root": "Read-only file system",
        "checkout": "Read-only file system", "socket": False, "network": "Network is unreachable", "processes": True,
    }  # fmt: skip
    assert not (uploaded / "link").exists()
    assert "they were removed: link" in record.steps["run"].log


def test_action_in_container__gpu_that_is_not_there__ends_with_4(
    engine: str, image: str, kernels: Path, tmp_path: Path
):
    record = in_job(engine, image, kernels, tmp_path / "scratch", device="cuda")
    assert (record.status, record.outputs["conclusion"]) == (4, "unavailable"), record.steps["run"].log
    assert "torch finds no GPU in the container" in record.steps["run"].log


#: Of nobody on this machine or in the image.
STRANGER = (4321, 8765)
ONE_CASE = ("run", "autotests/autotest_kernels.py::softmax", "--cases=1", "--workers=1")


def owned(folder: Path, user: int, group: int) -> None:
    """Give a checkout to a user, with nothing that others may write."""
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, user, group)
        path.chmod(0o755 if path.is_dir() else 0o644)


def owners(folder: Path) -> set[tuple[int, int]]:
    """Return who owns what a run has left below ``folder``: its report, and what it remembers."""
    left = [folder / "autotest-report", folder / ".autotest"]
    assert all(path.is_dir() for path in left)
    return {(path.stat().st_uid, path.stat().st_gid) for top in left for path in [top, *top.rglob("*")]}


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a checkout to another user")


@needs_root
@pytest.mark.parametrize(
    ("owner", "options"),
    [
        (STRANGER, ()),
        (STRANGER, ("--user", f"{STRANGER[0]}:{STRANGER[1]}")),
        ((0, 0), ()),
    ],
    ids=["started as root", "started as the owner", "root's own, as on a rootless engine"],
)
def test_image__checkout_of_anybody__has_a_report_of_its_owner(
    image: str, kernels: Path, owner: tuple[int, int], options: tuple[str, ...]
):
    owned(kernels, *owner)
    done = run_plainly("-v", f"{kernels}:/src", *options, image, *ONE_CASE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert owners(kernels) == {owner}


@needs_root
def test_image__root_that_may_not_become_the_owner__is_told_what_to_do(image: str, kernels: Path):
    owned(kernels, *STRANGER)
    done = run_plainly("--cap-drop", "ALL", "-v", f"{kernels}:/src", image, *ONE_CASE)
    named = f"start it with --user {STRANGER[0]}:{STRANGER[1]}."
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"the container has no right to become user {STRANGER[0]}, who owns '/src': {named}\n")


def test_image__job_of_gitlab__runs_the_script_of_the_template(image: str, kernels: Path):
    """As GitLab's runner does: a shell of its own, root, a checkout with nothing taken away by a umask."""
    job = yaml.safe_load(template("autotest.gitlab-ci.yml"))["autotest"]
    assert job["image"]["entrypoint"] == [""]
    script = "\n".join(["set -eo pipefail", "cd /builds/group/kernels", *job["script"]])
    done = run_plainly("-v", f"{kernels}:/builds/group/kernels", "--entrypoint=", image, "bash", "-c", script)
    assert done.returncode == 1, done.stdout + done.stderr
    kept = [*job["artifacts"]["paths"], *job["cache"]["paths"], job["artifacts"]["reports"]["junit"]]
    assert [path for path in kept if not (kernels / path).exists()] == []


@needs_root
def test_image__build_of_jenkins__runs_the_step_of_the_template(image: str, kernels: Path):
    """As Jenkins' plugin does: `docker run -u ... cat` in the workspace, and the steps by `docker exec`."""
    text = template("Jenkinsfile")
    (argument,) = re.findall(r"args '(.*)'", text)
    (command,) = re.findall(r"sh '(.*)'", text)
    (junit,) = re.findall(r"testResults: '(.*?)'", text)
    workspace = "/var/jenkins/workspace/kernels"
    owned(kernels, *STRANGER)
    named = ["--name", f"ci-autotest-jenkins-{os.getpid()}"]
    start = [
        "-d",
        "-t",
        "-u",
        f"{STRANGER[0]}:{STRANGER[1]}",
        argument,
        "-w",
        workspace,
        "-v",
        f"{kernels}:{workspace}",
    ]
    started = run_plainly(*named, *start, image, "cat")
    assert started.returncode == 0, started.stderr
    tool = "docker" if GIVEN else "podman"
    try:
        done = with_scripts(tool, "exec", named[1], "sh", "-xe", "-c", command, timeout_s=900)
    finally:
        with_scripts(tool, "rm", "--force", named[1], timeout_s=60)
    assert done.returncode == 1, done.stdout + done.stderr
    assert owners(kernels) == {STRANGER}
    assert (kernels / junit).is_file()


def test_image__configuration__has_labels_drivers_and_no_cuda(image: str):
    shown = with_scripts("docker" if GIVEN else "podman", "image", "inspect", image, timeout_s=60)
    config = json.loads(shown.stdout)[0]["Config"]
    assert (config["WorkingDir"], config["Entrypoint"]) == ("/src", ["ci-autotest-entry"])
    assert {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} <= set(config["Env"])
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert (labels["title"], labels["licenses"]) == ("ci-autotest", "Apache-2.0")
    if not GIVEN:
        assert (labels["revision"], labels["base.name"]) == ("5f" * 20, BASE)
    done = run_image(image, "-c", "import torch; print(torch.version.cuda)", options=("--entrypoint", "python"))
    assert done.stdout == "None\n"

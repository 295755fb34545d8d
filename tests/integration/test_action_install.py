"""The action installs beside interpreters that have another setuptools than its own build asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, ClassVar

import pytest

from action import environment
from action.errors import StepError
from tests.action_repository import export
from tests.action_runner import ActionRunner, expressions_entry, job_environ

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
#: Installs the publisher and the package as the step `prepare` does, but for torch, and prints what the tests import.
INSTALL = """
import os, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from action import environment
folder = Path(sys.argv[2])
python = environment.make_environment(folder / "venv", os.environ)
environment.install_publisher(python, folder, os.environ)
present = environment.present_packages(python)
environment.present_packages = lambda _: [*present, "torch"]
environment.install_package(python, "auto", os.environ)
code = "import setuptools, ci_autotest.cli; print('installed beside', setuptools.__version__)"
subprocess.run([str(python), "-I", "-c", code], check=True)
"""
#: The oldest and the newest, and those between in ``make matrix``.
VERSIONS = ["3.10", *(pytest.param(version, marks=pytest.mark.matrix) for version in ("3.11", "3.12")), "3.13"]


def interpreter(version: str) -> str:
    """Return a CPython of this version, of pyenv's or on PATH."""
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    path = str(found[-1]) if found else shutil.which(f"python{version}")
    if path is None:
        pytest.skip(f"there is no CPython {version} here")
    return path


def install(python: str, folder: Path, **variables: str) -> str:
    done = subprocess.run(
        [python, "-I", "-c", INSTALL, str(ROOT), str(folder)], cwd=folder, env={**os.environ, **variables},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=540,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout.splitlines()[-1]


def test_pip__package_that_nobody_has__is_refused_with_pips_last_lines():
    with pytest.raises(StepError, match=r"pip ended with 1 .*no-such-package: (?s:.*)No matching distribution found"):
        environment.pip(Path(sys.executable), "download", ["--no-index", "no-such-package"], os.environ)


@pytest.mark.heavy
@pytest.mark.parametrize("version", VERSIONS)
def test_install__beside_a_plain_environment_with_an_old_setuptools__works(version: str, tmp_path: Path):
    subprocess.run([interpreter(version), "-m", "venv", str(tmp_path / "callers")], check=True)
    callers = str(tmp_path / "callers" / "bin" / "python")
    if version in {"3.12", "3.13"}:  # `venv` bundles none there
        subprocess.run([callers, "-m", "pip", "install", "--quiet", "setuptools==69.0.3"], check=True)
    said = install(callers, tmp_path)
    assert said in {"installed beside 65.5.0", "installed beside 69.0.3"}


@pytest.mark.heavy
def test_install__beside_a_prefix_of_its_own_whose_image_sets_options_for_pip__works(tmp_path: Path):
    """As conda's: a whole interpreter, no environment, whose setuptools lies in its own library."""
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("click==8.0.0\nmsgspec==0.15.0\n")
    options = {"PIP_CONSTRAINT": str(constraints), "PIP_USER": "1", "PIP_REQUIRE_HASHES": "1"}
    assert install(interpreter("3.10"), tmp_path, **options).startswith("installed beside 6")


@pytest.mark.heavy
def test_install__beside_the_system_s__works(tmp_path: Path):
    if not Path("/usr/lib/python3/dist-packages/setuptools").is_dir() or not Path("/usr/bin/python3").exists():
        pytest.skip("there is no system Python with a setuptools here")
    assert install("/usr/bin/python3", tmp_path).startswith("installed beside ")


#: Prints which torch is there, and where the package is.
LOOK = "import importlib.metadata as m, ci_autotest; print(m.version('torch'), ci_autotest.__file__)"
TINY = "tiny-1.0-py3-none-any.whl"


class Index(SimpleHTTPRequestHandler):
    """An index whose files may be kept, as those of the public one; it counts what it is asked for."""

    asked: ClassVar[list[str]] = []

    def end_headers(self) -> None:
        self.asked.append(self.path)
        self.send_header("Cache-Control", "max-age=365000000, immutable, public")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """Serve an index with one small package; yield its address."""
    folder = tmp_path / "index" / "simple" / "tiny"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(f"<a href='{TINY}'>{TINY}</a>")
    with zipfile.ZipFile(folder / TINY, "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    Index.asked.clear()
    handler = partial(Index, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


#: A package of the checkout whose build leaves a file in the cache, another in the publisher, and a process.
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
BACKEND = """
import os, pathlib, subprocess, zipfile
def build_wheel(folder, settings=None, metadata=None):
    temp = pathlib.Path(os.environ["RUNNER_TEMP"])
    for each in (temp / "ci-autotest-pip", *temp.glob("ci-autotest-*/packages")):
        if each.is_dir():
            (each / "owned").touch()
    subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    name = "kernels-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.writestr("kernels-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: kernels\\nVersion: 1.0\\n")
        wheel.writestr("kernels-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("kernels-1.0.dist-info/RECORD", "")
    return name
"""


@pytest.mark.heavy
def test_action__machine_without_gpu_and_torch__has_the_cpu_build_and_keeps_nothing_that_the_checkout_wrote(
    tmp_path: Path, index: str
):
    """On CPython 3.11, whose CPU build of torch is at hand where PyTorch's own index is not."""
    subprocess.run([interpreter("3.11"), "-m", "venv", str(tmp_path / "callers")], check=True)
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "workspace" / "backend.py").write_text(BACKEND)
    action = export(tmp_path / "action")
    project = (action / "pyproject.toml").read_text("utf-8")
    (action / "pyproject.toml").write_text(
        project.replace("\ndependencies = [", '\ndependencies = [\n  "tiny",'), "utf-8"
    )
    runs = []
    for name in ("first", "second"):
        runner = ActionRunner(
            action=action, workspace=tmp_path / "workspace", scratch=tmp_path / name, expressions=expressions_entry(),
            github={"token": "", "event_name": "push", "event": {}}, caches=tmp_path / "caches",
            environ=job_environ() | {
                "RUNNER_ENVIRONMENT": "github-hosted", "GITHUB_EVENT_NAME": "push",
                "PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "10", "PIP_TRUSTED_HOST": "127.0.0.1",
                "PIP_FIND_LINKS": f"{os.environ.get('PIP_FIND_LINKS', '')} {index}/tiny/",
            },
        )  # fmt: skip
        python = str(tmp_path / "callers" / "bin" / "python")
        runs.append(runner.run({"python": python, "install": ".", "comment": "off"}))
    first, second = runs
    for run in runs:
        log = run.steps["prepare"].log + run.steps["install"].log
        assert (run.steps["prepare"].outcome, run.steps["install"].outcome) == ("success", "success"), log
        assert "the installation left 1 processes running, which were ended." in run.steps["install"].log
        assert "Building wheel" not in run.steps["prepare"].log
    assert (first.steps["step-3"].outcome, second.steps["step-3"].outcome) == ("success", "skipped")
    assert second.steps["cache"].outputs == {"cache-hit": "true"}
    assert not list((tmp_path / "caches").rglob("owned"))
    assert (tmp_path / "first" / "temp" / "ci-autotest-pip" / "owned").exists()  # it was tried
    # The publisher was hashed before: what the build left in it would be seen.
    assert list((tmp_path / "first" / "temp").glob("ci-autotest-*/packages/owned"))
    # What the action itself needs is downloaded once, before the first job's cache is saved.
    assert [path for path in Index.asked if path.endswith(".whl")] == [f"/simple/tiny/{TINY}"]
    installed = Path(second.steps["prepare"].outputs["python"])
    shown = subprocess.run([installed, "-I", "-c", LOOK], check=True, capture_output=True, text=True)
    version, where = shown.stdout.split()
    assert version.endswith("+cpu")
    assert Path(where).is_relative_to(installed.parents[1])


@pytest.mark.heavy
def test_action__runtime_host_with_install__builds_after_the_preparation_and_not_in_the_host(tmp_path: Path):
    """The host is an environment of its own that imports the packages of this one, and so has the action and torch."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "host")], check=True)
    (packages,) = (tmp_path / "host").glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "workspace" / "backend.py").write_text(BACKEND)
    runner = ActionRunner(
        action=export(tmp_path / "action"), workspace=tmp_path / "workspace", scratch=tmp_path / "scratch",
        expressions=expressions_entry(), github={"token": "", "event_name": "push", "event": {}},
        environ=job_environ() | {"GITHUB_EVENT_NAME": "push"},
    )  # fmt: skip
    python = str(tmp_path / "host" / "bin" / "python")
    steps = runner.run(
        {"python": python, "runtime": "host", "install": ".", "candidate": "torch", "comment": "off"}
    ).steps
    assert steps["install"].outcome == "success", steps["prepare"].log + steps["install"].log
    assert "the installation left 1 processes running, which were ended." in steps["install"].log
    assert "Building wheel" not in steps["prepare"].log
    assert list((tmp_path / "scratch" / "temp").glob("ci-autotest-*/packages/owned"))  # in a step of its own
    assert not list(packages.glob("kernels*"))
    assert steps["run"].outputs["conclusion"] == "nothing-compared"  # so the action was imported

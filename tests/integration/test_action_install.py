"""The action installs beside interpreters that have another setuptools than its own build asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, ClassVar

import pytest

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
environment.install_tested(python, folder, os.environ)
code = "import setuptools, ci_autotest.cli; print('installed beside', setuptools.__version__)"
subprocess.run([str(python), "-I", "-c", code], check=True)
"""
VERSIONS = ["3.10", "3.11", "3.12", "3.13"]


def interpreter(version: str) -> str:
    """Return a CPython of this version, of pyenv's or on PATH."""
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    path = str(found[-1]) if found else shutil.which(f"python{version}")
    if path is None:
        pytest.skip(f"there is no CPython {version} here")
    return path


def install(python: str, folder: Path) -> str:
    done = subprocess.run(
        [python, "-I", "-c", INSTALL, str(ROOT), str(folder)], cwd=folder, env=dict(os.environ),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=540,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout.splitlines()[-1]


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
def test_install__beside_a_prefix_of_its_own__works(tmp_path: Path):
    """As conda's: a whole interpreter, no environment, whose setuptools lies in its own library."""
    assert install(interpreter("3.10"), tmp_path).startswith("installed beside 6")


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


@pytest.mark.heavy
def test_prepare__machine_without_gpu_and_torch__has_the_cpu_build_builds_nothing_and_keeps_what_it_downloads(
    tmp_path: Path, index: str
):
    """On CPython 3.11, whose CPU build of torch is at hand where PyTorch's own index is not."""
    subprocess.run([interpreter("3.11"), "-m", "venv", str(tmp_path / "callers")], check=True)
    (tmp_path / "workspace").mkdir()
    runs = []
    for name in ("first", "second"):
        runner = ActionRunner(
            action=ROOT, workspace=tmp_path / "workspace", scratch=tmp_path / name, expressions=expressions_entry(),
            github={"token": "", "event_name": "push", "event": {}}, caches=tmp_path / "caches",
            environ=job_environ() | {
                "RUNNER_ENVIRONMENT": "github-hosted", "GITHUB_EVENT_NAME": "push",
                "PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "10",
            },
        )  # fmt: skip
        given = {
            "python": str(tmp_path / "callers" / "bin" / "python"),
            "install": f"--index-url {index}\n--trusted-host 127.0.0.1\ntiny",
        }
        runs.append(runner.run({**given, "comment": "off"}))
    first, second = runs
    log = first.steps["prepare"].log
    assert (first.steps["prepare"].outcome, second.steps["prepare"].outcome) == ("success", "success"), log
    assert [text for text in ("Building wheel", "Getting requirements to build") if text in log] == []
    assert (first.steps["step-3"].outcome, second.steps["step-3"].outcome) == ("success", "skipped")
    assert second.steps["cache"].outputs == {"cache-hit": "true"}
    assert [path for path in Index.asked if path.endswith(".whl")] == [f"/simple/tiny/{TINY}"]
    installed = Path(second.steps["prepare"].outputs["python"])
    shown = subprocess.run([installed, "-I", "-c", LOOK], check=True, capture_output=True, text=True)
    version, where = shown.stdout.split()
    assert version.endswith("+cpu")
    assert Path(where).is_relative_to(installed.parents[1])

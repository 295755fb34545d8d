"""Interpreters, modules and rows of candidates that are wrong: one message each, status 4 or 2, nothing left running."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from candidates.installation import interpreters
from ci_autotest.backends.framework.interpreter import Interpreter
from ci_autotest.backends.framework.process import HostProcess
from ci_autotest.errors import UnavailableError
from tests.projects import Done, Project, environment, outcomes, processes, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Modules of the user's by name; each is taken for a framework with torch's names.
MODULES = {
    "aborts": "import os\nos.abort()\n",
    "quits": "import os\nos._exit(0)\n",
    "exits": "raise SystemExit(0)\n",
    "raises": "raise RuntimeError('libcublas.so.11 is missing.\\nInstall it.')\n",
    "closes": "import os\nos.closerange(3, 100)\n",
    "sleeps": "import time\ntime.sleep(600)\n",
    "prints": (
        "import sys\nimport torch\nfrom torch import *\nfrom torch import nn\n"
        "print('a greeting ' * 20_000)\nsys.stderr.write('a warning')\nsys.stdout.flush()\n"
        "__version__, device, Tensor, autograd = '1', torch.device, torch.Tensor, torch.autograd\n"
    ),
}
#: A script that writes some bytes where a host's first message is expected, and waits.
_WRITES = f"#!{sys.executable}\nimport os, sys, time\nos.write(int(sys.argv[6]), {{}})\ntime.sleep(600)\n"
#: Scripts that are named as interpreters.
SCRIPTS = {
    "babbles": _WRITES.format(b"what is no greeting of anybody"),
    "stutters": _WRITES.format(b"ab"),
    "ends": "#!/bin/sh\nexit 0\n",
    "unmarked": "",
}
OLD = {version: next(iter(interpreters(version, os.environ)), None) for version in ("3.8", "2.7")}


class Wrong(NamedTuple):
    """A candidate that cannot be used: its row, and what is said of it; ``{}`` is the project's folder."""

    row: dict[str, str]
    said: str


WRONG = {
    "missing": Wrong(
        {"module": "torch", "python": "./nowhere/python"},
        "python: {}/nowhere/python does not exist. Give the path of an interpreter, CPython 3.10 or newer.",
    ),
    "unknown": Wrong(
        {"module": "torch", "python": "python-of-nobody"},
        "python: python-of-nobody is not on PATH. Give the path of an interpreter, CPython 3.10 or newer.",
    ),
    "plain": Wrong(
        {"module": "torch", "python": "./autotest.yml"},
        "python: {}/autotest.yml is not an executable file. Give the path of an interpreter, CPython 3.10 or newer.",
    ),
    "unmarked": Wrong(
        {"module": "torch", "python": "./unmarked"},
        "python: {}/unmarked cannot be started: Exec format error. "
        "Give the path of an interpreter, CPython 3.10 or newer.",
    ),
    "bare": Wrong(
        {"module": "torch", "python": "./bare/bin/python"},
        "{}/bare/bin/python has no module 'numpy'. Install it: {}/bare/bin/python -m pip install numpy",
    ),
    "absent": Wrong(
        {"module": "framework_of_nobody"},
        f"{sys.executable} has no module 'framework_of_nobody'. "
        f"Install it: {sys.executable} -m pip install framework_of_nobody",
    ),
    "misspelt": Wrong({"module": "oneflwo"}, f"{sys.executable} has no module 'oneflwo'. Did you mean 'oneflow'?"),
    "aborts": Wrong(
        {"module": "aborts"},
        f"{sys.executable} ended by signal 6 (SIGABRT) before aborts was imported: "
        'Fatal Python error: Aborted File "{}/aborts.py", line 2 in <module>. '
        f'Try: {sys.executable} -c "import aborts", with CPython 3.10 or newer.',
    ),
    "quits": Wrong(
        {"module": "quits"},
        f"{sys.executable} ended with status 0 before quits was imported: it printed nothing. "
        f'Try: {sys.executable} -c "import quits", with CPython 3.10 or newer.',
    ),
    "exits": Wrong(
        {"module": "exits"},
        f'{sys.executable} cannot import exits: SystemExit: 0. Try: {sys.executable} -c "import exits"',
    ),
    "raises": Wrong(
        {"module": "raises"},
        f"{sys.executable} cannot import raises: RuntimeError: libcublas.so.11 is missing. "
        f'Try: {sys.executable} -c "import raises"',
    ),
    "closes": Wrong(
        {"module": "closes"},
        f"{sys.executable} ended with status 1 before closes was imported: "
        "ci_autotest.host.wire.WireError: [Errno 9] Bad file descriptor. "
        f'Try: {sys.executable} -c "import closes", with CPython 3.10 or newer.',
    ),
    "json": Wrong(
        {"module": "json"},
        f"{sys.executable} cannot import json: AttributeError: module 'json' has no attribute 'device'. "
        f'Try: {sys.executable} -c "import json"',
    ),
    "babbles": Wrong(
        {"module": "torch", "python": "./babbles"},
        '{}/babbles sent something that is not a host\'s first message. Try: {}/babbles -c "import torch"',
    ),
    "ends": Wrong(
        {"module": "torch", "python": "./ends"},
        "{}/ends ended with status 0 before torch was imported: it printed nothing. "
        'Try: {}/ends -c "import torch", with CPython 3.10 or newer.',
    ),
    "old": Wrong(
        {"module": "torch", "python": OLD["3.8"] or ""},
        f"{OLD['3.8']} is Python 3.8; a host needs CPython 3.10 or newer. Give another under `python:`.",
    ),
    "ancient": Wrong(
        {"module": "torch", "python": OLD["2.7"] or ""},
        f"{OLD['2.7']} is older than Python 3.4; a host needs CPython 3.10 or newer. Give another under `python:`.",
    ),
}
NEEDS = {"old": "3.8", "ancient": "2.7"}
TEST = "@autotest(n=3)\ndef double():\n    return random_tensor(ndim=2) * 2\n"


def made_in(folder: Path, *candidates: dict[str, Any]) -> Project:
    """Return a project with one test, the modules and the scripts."""
    project = Project(folder)
    project.configure(candidates=list(candidates))
    project.tests(TEST)
    for name, text in MODULES.items():
        project.write(f"{name}.py", text)
    for name, text in SCRIPTS.items():
        project.write(name, text).chmod(0o755)
    return project


def row(name: str) -> dict[str, Any]:
    return {"name": name, "backend": "module", **WRONG[name].row}


@pytest.fixture(scope="module")
def doctored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Done]]:
    """Return what ``doctor`` says of every wrong candidate at once, of those whose interpreter is here."""
    folder = tmp_path_factory.mktemp("hosts")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "bare")], check=True)
    here = [name for name in WRONG if name not in NEEDS or OLD[NEEDS[name]]]
    project = made_in(folder, *map(row, here))
    yield project, project.command("doctor")
    assert processes(str(folder)) == []


@pytest.mark.parametrize("name", WRONG)
def test_doctor__candidate_cannot_be_used__one_message_says_why(name: str, doctored: tuple[Project, Done]):
    if name in NEEDS and OLD[NEEDS[name]] is None:
        pytest.skip(f"there is no Python {NEEDS[name]} here")
    project, done = doctored
    section = done.out.split(f"{name}: NOT AVAILABLE\n")[1].split("\n\n")[0]
    told = " ".join(line.strip() for line in section.splitlines() if "an environment for it" not in line)
    assert told == f"candidate '{name}': {WRONG[name].said.replace('{}', str(project.folder))}"


def test_doctor__none_is_named__ends_with_0(doctored: tuple[Project, Done]):
    assert (doctored[1].status, doctored[1].err) == (0, "")


@pytest.mark.parametrize("name", ["missing", "aborts"])
def test_run__named_candidate_cannot_be_used__is_status_4(name: str, tmp_path: Path):
    project = made_in(tmp_path, row(name))
    done = project.run("--candidate", name)
    said = WRONG[name].said.replace("{}", str(tmp_path))
    assert done.status == 4, done.said
    assert done.err == f"candidate '{name}' is required and not available: {said}\n"
    assert not (tmp_path / "autotest-report").exists()
    assert processes(str(tmp_path)) == []


def test_run__candidate_that_is_not_required_cannot_be_used__is_named_and_never_green(tmp_path: Path):
    project = made_in(tmp_path, {"name": "torch", "backend": "torch"}, row("raises"))
    done = project.run()
    assert done.status == 3, done.said
    assert outcomes(project.report()) == {("double", "torch"): "aligned", ("double", "raises"): "not_run"}
    said = WRONG["raises"].said.replace("{}", str(tmp_path))
    assert f"note: candidate 'raises' was skipped: {said}" in done.out


def test_run__module_prints_at_import__is_compared(tmp_path: Path):
    project = made_in(tmp_path, {"name": "prints", "backend": "module", "module": "prints"})
    done = project.run()
    assert outcomes(project.report()) == {("double", "prints"): "aligned"}, done.said
    assert "a greeting" not in done.said


def test_run__working_folder_has_a_numpy_of_its_own__the_real_one_is_used(tmp_path: Path):
    project = made_in(tmp_path, {"name": "same", "backend": "module", "module": "torch"})
    for name in ("numpy.py", "autotests/numpy.py", "json.py", "torch/__init__.py"):
        project.write(name, "raise RuntimeError('shadowed')\n")
    command = Path(sys.executable).with_name("ci-autotest")  # `python -m` would put the folder first by itself
    done = subprocess.run(
        [str(command), "run", "--workers", "1"],
        cwd=tmp_path, env=environment(None), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert outcomes(project.report()) == {("double", "same"): "aligned"}, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            {"torch.sofmax": {"to": "torch.softmax"}},
            r"candidate 'c', row torch.sofmax: torch \S+ has no operator of this name. Did you mean \S+\?",
        ),
        (
            {"torch.add": {"to": "torch.add", "rename": {"othr": "y"}}},
            "candidate 'c', row torch.add: `rename` names argument 'othr', which torch.add does not have. "
            "Did you mean other\\? It has .*",
        ),
    ],
    ids=["operator", "argument"],
)
@pytest.mark.parametrize("command", ["run", "doctor"])
def test_command__row_names_what_is_not_there__is_status_2(command: str, mapping: Any, message: str, tmp_path: Path):
    project = made_in(tmp_path, {"name": "c", "backend": "module", "module": "torch", "mapping": mapping})
    done = project.command(command)
    assert (done.status, done.out.removeprefix("seed 0: 1 test file on c\n")) == (2, ""), done.said
    assert re.fullmatch(message, done.err.strip()), done.err
    assert processes(str(tmp_path)) == []


@pytest.mark.parametrize("command", ["run", "doctor"])
def test_command__two_candidates_have_one_name__is_status_2(command: str, tmp_path: Path):
    same = {"name": "same", "backend": "module", "module": "torch"}
    done = made_in(tmp_path, same, same).command(command)
    message = f"{tmp_path}/autotest.yml: two candidates are named 'same'. Give each a name of its own.\n"
    assert (done.status, done.out, done.err) == (2, "", message)


@pytest.mark.parametrize(
    ("python", "module"), [(sys.executable, "sleeps"), ("{}/stutters", "torch")], ids=["sleeps", "stutters"]
)
def test_host__takes_too_long__is_ended(python: str, module: str, tmp_path: Path):
    made_in(tmp_path)
    path = python.replace("{}", str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        HostProcess(Interpreter("slow", path, module, "cpu", (str(tmp_path),)), start_s=1.0)
    assert str(caught.value) == (
        f"candidate 'slow': {path} did not import {module} within 1 s. Try: {path} -c \"import {module}\""
    )
    assert wait_until(lambda: processes(str(tmp_path)) == [], 60)

"""A small project in a folder of its own, and the command line run on it as the process that a user starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import yaml

from ci_autotest.run.worker_start import FORK_SERVER
from tests import command_server, fork_server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
#: What a test file begins with.
HEAD = "from ci_autotest import autotest, constant, nothing, oneof, random, random_bool, random_tensor, torch\n\n"
#: Seconds after which a command that should have ended is a failure of the test.
GREATEST_S = 900
#: Runs a script as somebody without this package would.
ALONE = (
    "import runpy, sys; sys.modules['ci_autotest'] = None; sys.path[:0] = sys.argv[2:]; script = sys.argv[1]; "
    "sys.argv[1:] = []; runpy.run_path(script, run_name='__main__')"
)


@dataclass(frozen=True)
class Done:
    """What a command did: its status and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err


class Project:
    """Files in a folder, and commands given in it.

    Args:
        folder: An empty folder, the project's root.
        greatest_s: Seconds after which a command that should have ended is a failure of the test.
    """

    def __init__(self, folder: Path, greatest_s: float = GREATEST_S) -> None:
        self.folder = folder
        self.greatest_s = greatest_s

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def configure(self, **keys: Any) -> None:
        self.write("autotest.yml", yaml.safe_dump(keys, sort_keys=False))

    def tests(self, body: str, name: str = "autotests/autotest_all.py") -> None:
        self.write(name, HEAD + body)

    def substitute(self, replace: Mapping[str, str], **keys: Any) -> None:
        """Configure one candidate, ``kernels``, that answers some operators with functions of the project."""
        self.configure(candidates=[{"name": "kernels", "backend": "substitute", "replace": dict(replace)}], **keys)

    def start(self, *words: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        server = {} if any(name.startswith(("PYTHON", "LD_")) for name in environ or ()) else fork_server.variables()
        return subprocess.Popen(
            [sys.executable, "-m", "ci_autotest", *words],
            cwd=self.folder,
            env={**environment(environ), **server},
            pass_fds=[int(number) for number in server.values()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def command(self, *words: str, environ: Mapping[str, str] | None = None) -> Done:
        workers = fork_server.variables()
        if workers:
            server = int(workers[FORK_SERVER])
            try:
                ran = command_server.command_run(words, self.folder, environment(environ), server, self.greatest_s)
            except subprocess.TimeoutExpired as late:
                pytest.fail(f"{words} did not end within {self.greatest_s} s: {late.output}{late.stderr}")
            if ran is not None:
                return Done(*ran)
        return ended(self.start(*words, environ=environ), self.greatest_s)

    def run(self, *words: str, environ: Mapping[str, str] | None = None) -> Done:
        """Run with one worker unless told otherwise."""
        workers = () if "--workers" in words else ("--workers", "1")
        return self.command("run", *words, *workers, environ=environ)

    def report(self, output: str = "autotest-report") -> dict[str, Any]:
        text = (self.folder / output / "report.json").read_text("utf-8")
        found: dict[str, Any] = json.loads(text)
        return found

    def repro(self, finding: Mapping[str, Any], output: str = "autotest-report", *path: Path) -> Done:
        """Run a finding's repro in isolation, this package hidden; ``path`` goes before the import path."""
        return self.script(self.folder / output / finding["repro"], None, *path)

    def script(self, script: Path, environ: Mapping[str, str] | None, *path: Path) -> Done:
        """Run a script in isolation, this package hidden; where a server runs it, all that it writes is in ``out``."""
        ran = fork_server.script_run(script, [str(folder) for folder in path], GREATEST_S) if not environ else None
        if ran is not None:
            return Done(*ran, "")
        done = subprocess.run(
            [sys.executable, "-I", "-c", ALONE, str(script), *map(str, path)],
            cwd="/",
            env=environment(environ),
            capture_output=True,
            text=True,
            timeout=GREATEST_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)


def ended(process: subprocess.Popen[str], timeout_s: float = GREATEST_S) -> Done:
    """Return what a command did; one that does not end is ended, with what it has written in the failure."""
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            out, err = process.communicate()
            pytest.fail(f"{process.args} did not end within {timeout_s} s: {out}{err}")
    return Done(process.returncode, out, err)


def together(*commands: Callable[[], T]) -> list[T]:
    """Return what commands give that are begun two at a time: most of a run is waiting for one worker."""
    fork_server.variables()  # Starts the servers in this thread.
    command_server.start()
    with ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(command) for command in commands]]


def environment(added: Mapping[str, str] | None) -> dict[str, str]:
    """Return this process's environment without what a workflow would add, and with what is asked for."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "ACTIONS_", "INPUT_"))}
    return {**kept, "COLUMNS": "160", **(added or {})}


def outcomes(report: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the outcome by (name of the test, candidate)."""
    return {(item["test"].rpartition("::")[2], item["candidate"]): item["outcome"] for item in report["results"]}


def finding_of(report: Mapping[str, Any], operator: str, kind: str | None = None) -> dict[str, Any]:
    """Return the one finding of an operator, and of a kind where one is given."""
    found = [
        item
        for item in report["findings"]
        if item["operator"].rpartition(".")[2] == operator and kind in {None, item["kind"]}
    ]
    assert len(found) == 1, f"findings: {[(item['operator'], item['kind']) for item in report['findings']]}"
    return found[0]


def processes(mention: str) -> list[str]:
    """Return the command lines of living processes whose command line or environment mentions something."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue  # It ended, or is not ours.
        if mention.encode() in line + environ:
            found.append(f"{entry.name} {line.replace(bytes(1), b' ').decode(errors='replace').strip()}")
    return found


def wait_until(is_so: Callable[[], object], greatest_s: float) -> bool:
    """Whether something became so within some seconds."""
    end = time.monotonic() + greatest_s
    while time.monotonic() < end:
        if is_so():
            return True
        time.sleep(0.05)
    return bool(is_so())


def python(project: Project, *words: str) -> Done:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=project.folder, env=environment(None), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


#: What may differ between equal runs: times, and where they ran.
TIMES = {"duration_s"}


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value

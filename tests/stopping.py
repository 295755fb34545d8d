"""Runs that are stopped at seeded moments, and what is wrong with what each leaves: ``python -m tests.stopping 100 7``.

The moments are drawn over the time that the same run takes when nobody stops it, so that a slow machine is stopped at
the same places as a fast one.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import jsonschema
from junitparser import JUnitXml

from ci_autotest.report.report_json import json_schema
from tests.projects import Project, processes, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK: Final = "CI_AUTOTEST_STOPPED"
#: Seconds after which something that should have ended is a fault; no speed is meant.
GREATEST_S: Final = 240.0
#: Signals of one stop and their names in the table.
WAYS: Final = {
    "SIGINT": (signal.SIGINT,),
    "SIGTERM": (signal.SIGTERM,),
    "SIGHUP": (signal.SIGHUP,),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
    "SIGTERM twice": (signal.SIGTERM, signal.SIGTERM),
    "SIGKILL": (signal.SIGKILL,),
}
KERNELS: Final = """
import ctypes
import os
import subprocess
from pathlib import Path

import torch

HERE = Path(__file__).parent


def exp(x):
    (HERE / "entered").touch()
    return torch.Tensor.exp(x)


def tanh(x):
    return torch.Tensor.tanh(x) * 1.001


def square(x):
    raise SystemExit(3)


def sqrt(x):
    ctypes.string_at(0)


def abs(x):
    words = ["sleep", f"1000.{os.environ['CI_AUTOTEST_STOPPED']}"]
    subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if os.environ["SHEDS"] == "1":
        subprocess.Popen(words, start_new_session=True, env={}, executable="/bin/sleep", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return torch.Tensor.abs(x)
"""
BODY: Final = """
@autotest(n=12)
def {name}():
    return torch.{name}(random_tensor(ndim=2))

"""
NAMES: Final = ("exp", "tanh", "square", "sqrt", "abs")


class Stop(NamedTuple):
    """How a run is stopped.

    Attributes:
        number: Of the run; its processes are known by it.
        way: A key of ``WAYS``.
        after_s: Seconds from its start to the first signal.
        apart_s: Seconds between two signals.
    """

    number: int
    way: str
    after_s: float
    apart_s: float


class Left(NamedTuple):
    """What a stopped run has come to.

    Attributes:
        stage: How far it was: ``start``, ``cases`` or ``over``.
        status: Its exit status, negative for a signal.
        has_report: Whether there is one.
        faults: What is wrong.
    """

    stage: str
    status: int
    has_report: bool
    faults: tuple[str, ...]


def project_in(folder: Path) -> Project:
    """Return a project with kernels that are right, wrong, raise, crash and leave children."""
    project = Project(folder, GREATEST_S)
    project.substitute({f"torch.{name}": f"mykernels.{name}" for name in NAMES})
    project.write("mykernels.py", KERNELS)
    project.tests("".join(BODY.format(name=name) for name in NAMES))
    (folder / "tmp").mkdir()
    return project


def environ_of(folder: Path, number: int, *, sheds: bool) -> dict[str, str]:
    """Return what a run is told apart by, and where its temporary files go."""
    return {MARK: str(number), "TMPDIR": str(folder / "tmp"), "SHEDS": str(int(sheds))}


def own_processes(number: int) -> list[str]:
    """Return the living processes of a run, zombies left out."""
    return [*processes(f"{MARK}={number}\0"), *processes(f"sleep\x001000.{number}\0")]


def half_files(folder: Path) -> list[str]:
    """Return the names of files that only a run in progress may have."""
    found = [*folder.rglob(".*.tmp"), *(folder / "tmp").glob("ci-autotest-*")]
    return sorted(str(path.relative_to(folder)) for path in found)


def stopped(folder: Path, stop: Stop) -> Left:
    """Start a run, stop it, and look at what it leaves; a killed one is followed by a run that is not stopped."""
    project = project_in(folder)
    is_killed = stop.way == "SIGKILL"
    environ = environ_of(folder, stop.number, sheds=not is_killed)
    process = project.start("run", "--workers", "2", "--seed", "1", environ=environ)
    _wait(process, stop.after_s)
    stage = _stage(folder, is_over=process.poll() is not None)
    for position, sent in enumerate(WAYS[stop.way]):
        _wait(process, stop.apart_s if position else 0)
        if process.poll() is None:
            os.kill(process.pid, sent)
    try:
        out, err = process.communicate(timeout=GREATEST_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Left(stage, 0, has_report=False, faults=("did not end",))
    faults = [*_of_words(out + err, process.returncode)]
    if is_killed:
        before = (folder / "autotest-report" / "report.json").exists()
        environ = environ_of(folder, stop.number + 100_000, sheds=True)
        done = project.run("autotests/autotest_all.py::exp", environ=environ)
        faults += [f"the run after it ended with {done.status}: {done.said}"] * (done.status != 0)
        return Left(stage, process.returncode, before, (*faults, *_of_leftovers(folder, stop.number)))
    has_report = (folder / "autotest-report" / "report.json").exists()
    faults += [*_of_leftovers(folder, stop.number), *_of_report(project, stage, process.returncode)]
    return Left(stage, process.returncode, has_report, tuple(faults))


def _wait(process: subprocess.Popen[str], seconds: float) -> None:
    """Let some time pass, or the process end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.002)


def _stage(folder: Path, *, is_over: bool) -> str:
    if is_over:
        return "over"
    return "cases" if (folder / "entered").exists() else "start"


def _of_words(said: str, status: int) -> Iterator[str]:
    # Before the first line of this package, the interpreter answers SIGINT as it always does.
    is_own = "/ci_autotest/" in said or status not in {1, -signal.SIGINT}
    if is_own and ("Traceback" in said or "Exception ignored" in said):
        yield f"traceback: {said}"
    if status == 70:
        yield f"status 70: {said}"


def _of_leftovers(folder: Path, number: int) -> Iterator[str]:
    if not wait_until(lambda: own_processes(number) == [], 20):
        yield f"processes left: {own_processes(number)}"
        for line in own_processes(number):
            os.kill(int(line.split()[0]), signal.SIGKILL)
    if half := half_files(folder):
        yield f"files left: {half}"


def _of_report(project: Project, stage: str, status: int) -> Iterator[str]:
    """Yield what is wrong with a report and the status beside it."""
    folder = project.folder / "autotest-report"
    if not (folder / "report.json").exists():
        # Until its first line is run, the interpreter ends as any process does; once a case has run there is a report.
        if stage != "start" or status not in {130, 1, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT}:
            yield f"no report, status {status}"
        return
    report = project.report()
    jsonschema.validate(report, json_schema())
    JUnitXml.fromfile(str(folder / "junit.xml"))
    if report["exit_code"] != status:
        yield f"the report says {report['exit_code']}, the status is {status}"
    if report["interrupted"] != (status == 130):
        yield f"the report says interrupted {report['interrupted']}, the status is {status}"
    for finding in report["findings"]:
        if finding["repro"] is not None and not (folder / finding["repro"]).is_file():
            yield f"{finding['id']} has no {finding['repro']}"


def usual_s(folder: Path) -> float:
    """Return the seconds that the run takes when nobody stops it."""
    folder.mkdir()
    project = project_in(folder)
    begun = time.monotonic()
    done = project.run("--workers", "2", "--seed", "1", environ=environ_of(folder, 0, sheds=True))
    assert done.status == 1, done.said
    return time.monotonic() - begun


def stops(count: int, seed: int, greatest_s: float) -> list[Stop]:
    """Return moments at random, a sixth of them in the first second; the ways by turns."""
    drawn = random.Random(seed)  # noqa: S311 - moments
    ways = [list(WAYS)[number % len(WAYS)] for number in range(count)]
    return [
        Stop(
            1 + number + 1000 * seed, way, drawn.uniform(0, 1.0 if drawn.random() < 1 / 6 else greatest_s),
            drawn.choice([0.0, 0.001, 0.02, 0.3, 2.0]),
        )
        for number, way in enumerate(ways)
    ]  # fmt: skip


def main(count: int, seed: int) -> int:
    """Stop runs, print a row for each way, and what was wrong."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        top = Path(name)
        greatest_s = max(pool.map(usual_s, (top / "0", top / "1")))
        sys.stdout.write(f"{count} stops of a run of {greatest_s:.1f} s, seed {seed}\n")

        def one(stop: Stop) -> Left:
            folder = top / str(stop.number)
            folder.mkdir()
            left = stopped(folder, stop)
            shutil.rmtree(folder)
            for fault in left.faults:
                sys.stdout.write(f"{stop} {left.stage}: {fault}\n")
            return left

        planned = stops(count, seed, greatest_s)
        found = list(pool.map(one, planned))
    for way in WAYS:
        own = [left for stop, left in zip(planned, found, strict=True) if stop.way == way]
        stages = Counter(left.stage for left in own)
        statuses = dict(sorted(Counter(left.status for left in own).items()))
        wrong = sum(bool(left.faults) for left in own)
        reports = sum(left.has_report for left in own)
        sys.stdout.write(
            f"{way:14} {len(own):3} tried, {dict(stages)}, statuses {statuses}, reports {reports}, wrong {wrong}\n"
        )
    return int(any(left.faults for left in found))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))

"""Operators that crash, hang, exit, throw, leak, flood, breed and sabotage, and workers that are killed meanwhile."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import jsonschema
import pytest
from junitparser import JUnitXml

from ci_autotest.report.report_json import json_schema
from tests.projects import Project, ended, processes

#: What is looked at is processes, signals or limits.
OWN_SERVER = True
pytestmark = pytest.mark.heavy

MARK = "CI_AUTOTEST_CHAOS"
KERNELS = """
import ctypes
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import torch

MARK = ("CI_AUTOTEST_CHAOS=" + os.environ["CI_AUTOTEST_CHAOS"]).encode()


def sigmoid(x):
    with Path(os.environ["CI_AUTOTEST_CHAOS"], "calls").open("a") as calls:
        calls.write("sigmoid\\n")
    return torch.Tensor.sigmoid(x)


def exp(x):
    ctypes.string_at(0)


def tanh(x):
    time.sleep(600)


def square(x):
    os._exit(0)


def sqrt(x):
    ctypes.CDLL("libstdc++.so.6")["_ZSt17__throw_bad_allocv"]()


def log(x):
    return torch.mm(torch.ones(2, 3), torch.ones(2, 3))


def sin(x):
    held = []
    while True:
        held.append(bytearray(32 << 20))
        held[-1][::4096] = bytes(len(held[-1][::4096]))


def cos(x):
    for _ in range(50):
        os.write(1, b"noise of a kernel " * 58254)
    return torch.Tensor.cos(x)


def abs(x):
    subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    os.wait()
    return torch.Tensor.abs(x)


def neg(x):
    for fd in range(3, 30):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, b"junk!")
        except OSError:
            pass
    return torch.Tensor.neg(x)


def ancestors():
    pid = os.getpid()
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def sign(x):
    own = {*ancestors()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if b"ci_autotest.run.worker.main" in line and MARK in environ and int(entry.name) not in own:
            os.kill(int(entry.name), 9)
    return torch.Tensor.sign(x)
"""
#: Tests by operator: their number, and the outcome that is right.
TESTS = {
    "exp": (3, "crashed"),  # signal 11
    "tanh": (2, "timed_out"),
    "square": (2, "crashed"),  # os._exit(0)
    "sqrt": (1, "crashed"),  # a C++ exception that nobody catches
    "log": (1, "misaligned"),  # one that torch turns into an error
    "sin": (1, "crashed"),  # memory
    "cos": (1, "aligned"),  # 50 MB of output
    "abs": (1, "aligned"),  # children that outlive it
    "neg": (1, "crashed"),  # garbage on the pipes
    "sign": (1, "aligned"),  # kills the other workers
    "sigmoid": (26, "aligned"),
}
#: With ten times as many, in which faults meet one another in more ways, it takes half an hour: `make matrix`.
TIMES = [1, pytest.param(10, marks=pytest.mark.matrix)]
CASES = 3
#: Seconds within which it must end for each time: a crash costs five starts of a worker, a hang the time limit besides.
LIMIT_S = 900
BODY = """
@autotest(n={cases}, auto_backward=False)
def {operator}_{number}():
    return torch.{operator}(random_tensor(ndim=1, dim0=4, low=0.5, high=1, requires_grad=False))

"""


def outcomes_of(times: int) -> dict[str, str]:
    """Return the tests' outcomes by name; the operator is in front of the number."""
    return {
        f"{operator}_{number}": outcome
        for operator, (count, outcome) in TESTS.items()
        for number in range(count * times)
    }


def chaotic(folder: Path, times: int) -> Project:
    project = Project(folder)
    project.substitute({f"torch.{name}": f"mykernels.{name}" for name in TESTS}, case_timeout="6s", memory="1GiB")
    project.write("mykernels.py", KERNELS)
    names = [name.split("_") for name in outcomes_of(times)]
    random.Random(5).shuffle(names)  # noqa: S311 - an order
    project.tests("".join(BODY.format(operator=name, number=number, cases=CASES) for name, number in names))
    return project


def kill_now_and_then(mark: str, is_over: threading.Event, killed: list[int]) -> None:
    """Kill a process of the run every few seconds, but none before the run has come further since the last one.

    A run whose workers are killed again and again while they are set up is given up, as it should be; on a slow machine
    a pause of some seconds would come to that.
    """
    drawn = random.Random(7)  # noqa: S311 - moments
    calls, seen = Path(mark, "calls"), 0
    while not is_over.wait(drawn.uniform(4, 14)):
        count = calls.stat().st_size if calls.exists() else 0
        if count == seen:
            continue
        seen = count
        # The fork server, that of its workers, and what they have forked.
        workers = [line for line in processes(f"{MARK}={mark}") if "ci_autotest.run." in line]
        if workers:
            pid = int(drawn.choice(workers).split()[0])
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.append(pid)


@pytest.mark.parametrize("times", TIMES)
def test_run__chaos__every_case_has_the_right_outcome_and_nothing_is_left(tmp_path: Path, times: int):
    project = chaotic(tmp_path, times)
    is_over, killed = threading.Event(), []
    process = project.start("run", "--workers", "2", "--budget", f"{14 * times}m", environ={MARK: str(tmp_path)})
    killer = threading.Thread(target=kill_now_and_then, args=(str(tmp_path), is_over, killed))
    killer.start()
    begun = time.monotonic()
    try:
        done = ended(process, LIMIT_S * times)
    finally:
        is_over.set()
        killer.join()
    print(f"{time.monotonic() - begun:.0f} s, {len(killed)} workers killed")  # noqa: T201 - a figure to keep
    left = processes(f"{MARK}={tmp_path}")
    for line in left:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    assert done.status == 1, done.said
    report = project.report()
    assert killed
    expected = {name: {outcome: CASES} for name, outcome in outcomes_of(times).items()}
    found = {
        item["test"].rpartition("::")[2]: {name: count for name, count in item["cases"].items() if count}
        for item in report["results"]
    }
    assert {name: (found[name], right) for name, right in expected.items() if found[name] != right} == {}
    assert len(report["results"]) == len(expected)
    assert left == []
    jsonschema.validate(report, json_schema())
    assert sum(len(suite) for suite in JUnitXml.fromfile(str(tmp_path / "autotest-report" / "junit.xml"))) == len(
        expected
    )
    assert "noise of a kernel" not in done.said
    stacks = {item["operator"].rpartition(".")[2]: item["output"] for item in report["findings"]}
    assert "Segmentation fault" in stacks["exp"]
    assert "mykernels.py" in stacks["exp"]
    assert "in tanh" in stacks["tanh"]  # where it hangs

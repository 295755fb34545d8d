"""Workers that are stopped, that spoil their pipes, that leave children behind: the run and its report stay whole."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from junitparser import JUnitXml

from tests.projects import Project, ended, finding_of, outcomes, processes, wait_until

if TYPE_CHECKING:
    from pathlib import Path

#: What is looked at is processes, signals or limits.
OWN_SERVER = True

MARK = "CI_AUTOTEST_WORKERS"
#: Seconds within which everything must be gone; a loaded machine takes many, and what stays is found after any number.
GONE_S = 100
KERNELS = """
import os
import stat
import subprocess
import time
from pathlib import Path

import torch

HERE = Path(__file__).parent


def exp(x):
    return torch.Tensor.exp(x)


def tanh(x):
    (HERE / "entered").touch()
    time.sleep(600)


def abs(x):
    subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return torch.Tensor.abs(x)


def sigmoid(x):
    for fd in range(3, 30):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, bytes([5, 0, 0, 0]) + b"junk!")
        except OSError:
            pass
    return torch.Tensor.sigmoid(x)


def sqrt(x):
    print("noise of a kernel " * 10000)
    return torch.Tensor.sqrt(x)


def square(x):
    os._exit(7)


def cos(x):
    time.sleep(0.6)
    return torch.Tensor.cos(x)
"""
BODY = """
@autotest(n={cases})
def {name}():
    return torch.{name}(random_tensor(ndim=1, low=0, high=1))

"""


def kernels(folder: Path, cases: dict[str, int]) -> Project:
    """Return a project with a test of some cases for each kernel named."""
    project = Project(folder)
    replace = {f"torch.{name}": f"mykernels.{name}" for name in cases}
    project.configure(
        candidates=[
            {"name": "kernels", "backend": "substitute", "replace": replace},
            {"name": "torch", "backend": "torch"},
        ],
    )
    project.write("mykernels.py", KERNELS)
    project.tests("".join(BODY.format(name=name, cases=count) for name, count in cases.items()))
    return project


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_run__stopped_in_a_hanging_case__writes_the_report_and_ends_its_workers(sent: signal.Signals, tmp_path: Path):
    project = kernels(tmp_path, {"exp": 2, "tanh": 2})
    environ = {MARK: str(tmp_path), "TMPDIR": str(tmp_path)}
    process = project.start("run", "--workers", "1", environ=environ)
    assert wait_until((tmp_path / "entered").exists, GONE_S)
    os.kill(process.pid, sent)
    done = ended(process, GONE_S)
    report = project.report()
    assert (done.status, report["exit_code"], report["interrupted"]) == (130, 130, True), done.said
    assert outcomes(report)["exp", "kernels"] == "aligned"
    assert outcomes(report)["tanh", "kernels"] == "not_run"
    assert "Traceback" not in done.said
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("ci-autotest-")] == []
    assert wait_until(lambda: processes(f"{MARK}={tmp_path}") == [], GONE_S)
    suites = JUnitXml.fromfile(str(tmp_path / "autotest-report" / "junit.xml"))
    assert sorted(case.name for suite in suites for case in suite) == [
        "exp[kernels]", "exp[torch]", "tanh[kernels]", "tanh[torch]",
    ]  # fmt: skip


def test_run__step_of_many_cases_takes_longer_than_one_may__is_aligned(tmp_path: Path):
    # The same step of nine cases one after another, 5.4 s: that each goes on to the next is told by its number alone.
    project = kernels(tmp_path, {"cos": 20})
    project.configure(
        candidates=[{"name": "kernels", "backend": "substitute", "replace": {"torch.cos": "mykernels.cos"}}],
        case_timeout="3s",
    )
    project.tests("@autotest(n=20, profiles=[])\ndef cos():\n    return torch.cos(random_tensor(ndim=1))\n")
    done = project.run()
    report = project.report()
    (result,) = report["results"]
    # A worker that was ended would be told: its case, run again alone, is aligned too.
    assert (done.status, result["cases"]["aligned"]) == (0, 20), done.said
    (slow,) = report["notes"]
    assert "times as long; no finding" in slow


def test_run__parent_is_killed__its_workers_end_and_the_next_run_ends_what_they_started(tmp_path: Path):
    project = kernels(tmp_path, {"abs": 2, "tanh": 2, "exp": 2})
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environ = {MARK: str(tmp_path), "TMPDIR": str(temporary)}
    process = project.start("run", "--workers", "1", environ=environ)
    assert wait_until((tmp_path / "entered").exists, GONE_S)
    os.kill(process.pid, signal.SIGKILL)
    ended(process, GONE_S)
    assert wait_until(lambda: all("sleep" in line for line in processes(f"{MARK}={tmp_path}")), GONE_S)
    assert processes(f"{MARK}={tmp_path}") != []
    assert list(temporary.glob("ci-autotest-*")) == []
    assert project.run("autotests/autotest_all.py::exp").status == 0
    gone = processes(f"{MARK}={tmp_path}") == []
    left = processes(f"{MARK}={tmp_path}")
    for line in left:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    assert gone, left


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project after a run with every kernel that ends, spoils or floods its worker."""
    project = kernels(
        tmp_path_factory.mktemp("spoiled"),
        {"exp": 3, "sigmoid": 1, "sqrt": 2, "square": 9},
    )
    done = project.run("--workers", "2", environ={MARK: "spoiled"})
    assert done.status == 1, done.said
    return project


def test_run__kernel_spoils_the_pipe__is_crashed(spoiled: Project):
    found = outcomes(spoiled.report())
    assert (found["sigmoid", "kernels"], found["sigmoid", "torch"]) == ("crashed", "aligned")


def test_run__kernel_floods_its_output__is_aligned_and_the_output_stays_out(spoiled: Project):
    assert outcomes(spoiled.report())["sqrt", "kernels"] == "aligned"
    assert "noise of a kernel" not in (spoiled.folder / "autotest-report" / "report.json").read_text("utf-8")


def test_run__kernel_always_ends_its_process__is_left_alone_after_two_of_a_window(spoiled: Project):
    results = {item["candidate"]: item for item in spoiled.report()["results"] if item["test"].endswith("::square")}
    counts = results["kernels"]["cases"]
    # Case 0 is a window of its own; of 1 to 8, two are tried.
    assert (counts["crashed"], counts["not_run"], results["torch"]["cases"]["aligned"]) == (3, 6, 9)
    assert "3 cases ended their worker" in results["kernels"]["reason"]


def test_run__ended_worker__is_a_finding_that_names_the_status(spoiled: Project):
    assert "ended with status 7" in finding_of(spoiled.report(), "square")["message"]

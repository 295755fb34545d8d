"""Workers on a real Ray cluster of this machine: the outcomes of local ones, also when one is killed in mid-run."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.projects import Project, ended, processes, wait_until

#: What is looked at is processes, signals or limits.
OWN_SERVER = True

pytestmark = pytest.mark.heavy
pytest.importorskip("ray", reason="needs ci-autotest[ray]")

KERNELS = """
import os
import time
from pathlib import Path

import torch

ENTERED = Path(__file__).parent / ("entered-" + os.environ.get("CI_AUTOTEST_RAY", "local"))


def exp(x):
    time.sleep(0.02)
    ENTERED.touch()
    return torch.Tensor.exp(x)


def tanh(x):
    return torch.Tensor.tanh(x) * 1.001


def square(x):
    os.kill(os.getpid(), 11)
"""
BODY = """
@autotest(n={cases})
def {name}():
    return torch.{name}(random_tensor(ndim=2, low=-1, high=1))

"""
MARK = "CI_AUTOTEST_RAY"
CASES = {"exp": 100, "tanh": 8, "square": 1}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("ray"), 600)
    made.substitute({f"torch.{name}": f"mykernels.{name}" for name in CASES})
    made.write("mykernels.py", KERNELS)
    made.tests("".join(BODY.format(name=name, cases=count) for name, count in CASES.items()))
    done = made.run("--workers", "2", "--output", "local")
    assert done.status == 1, done.said
    return made


def shown(report: dict[str, Any]) -> tuple[Any, Any]:
    """Return outcomes with their counts, and findings, without times."""
    results = [(item["test"], item["outcome"], item["cases"], item["attempts"]) for item in report["results"]]
    findings = [
        (item["id"], item["test"], item["case"], item["outcome"], item["program"]) for item in report["findings"]
    ]
    return results, findings


#: A test that crashes starts a worker for each try: a run in which another worker is killed goes without.
LIVING = ("autotests/autotest_all.py::exp", "autotests/autotest_all.py::tanh")


def environ(name: str) -> dict[str, str]:
    return {MARK: name, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def test_run__on_ray__shows_what_local_workers_show(project: Project):
    done = project.run("--workers", "2", "--executor", "ray", "--output", "ray", environ=environ("whole"))
    assert done.status == 1, done.said
    assert shown(project.report("ray")) == shown(project.report("local"))


def workers(mark: str) -> list[int]:
    """Return the processes that run cases, children of Ray's agents."""
    return [int(line.split()[0]) for line in processes(f"{MARK}={mark}") if "ci_autotest.run.worker.main" in line]


@pytest.mark.parametrize("victim", ["worker", "agent"])
def test_run__on_ray_with_one_killed_in_mid_run__shows_the_same(project: Project, victim: str):
    mark = f"{victim}-{os.getpid()}"  # Another session's workers are none of this one's.
    words = ("run", *LIVING, "--workers", "2", "--executor", "ray", "--output", victim)
    process = project.start(*words, environ=environ(mark))
    killed: list[int] = []

    def kill() -> None:
        assert wait_until((project.folder / f"entered-{mark}").exists, 600)
        pid = workers(mark)[0]
        if victim == "agent":
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    done = ended(process, 900)
    thread.join()
    assert (len(killed), done.status) == (1, 1), done.said
    results, findings = shown(project.report("local"))
    living = [row for row in results if row[0] in LIVING], [row for row in findings if row[1] in LIVING]
    assert shown(project.report(victim)) == living
    assert wait_until(lambda: workers(mark) == [], 60)

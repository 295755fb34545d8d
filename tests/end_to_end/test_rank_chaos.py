"""Ranks that stop, fill their memory, breed and flood, beside right ones, in one run of three kinds of groups."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.rank_faults.rank_faults import FAULTS
from tests.projects import Project, processes

#: What is looked at is processes, signals or limits.
OWN_SERVER = True

pytestmark = pytest.mark.heavy
FAKES = Path(__file__).parent.parent / "fakes"
MARK = "CI_AUTOTEST_RANKS"
#: The outcome of each fault of rank 1, on every kind of group, and how the message of a finding names the rank.
OUTCOMES = {
    "right": ("aligned", ""),
    "children": ("aligned", ""),
    "output": ("aligned", ""),
    "exit_0": ("misaligned", "rank 1 ended with status 0, rank 0 went on"),
    "memory": ("crashed", "(rank 1: "),
    "stopped": ("timed_out", "(rank 1 did not answer)"),
}
#: A host that sleeps while the other one has answered waits for ever.
HOST_OUTCOMES = {**OUTCOMES, "stopped": ("misaligned", "rank 1 waits for ever")}
BODIES = """
@autotest(n=1, profiles=(), auto_backward=False)
def {fault}_of_torch():
    x = torch.ops.faults.{fault}(random_tensor(2, dim0=8, dim1=2, requires_grad=False), 1)
    return torch.nn.Linear(2, 2)(x)


@autotest(n=1, profiles=(), auto_backward=False)
def {fault}_of_host():
    # The fake cannot add what its ranks hold, and float16 is the same on all of them.
    return torch.clamp(random_tensor(2, dim0=8, dim1=2, requires_grad=False, dtype=torch.float16), 1, {number})

"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Project, list[str]]:
    """A run, and the processes that it left."""
    project = Project(tmp_path_factory.mktemp("chaos"), greatest_s=1500)
    for name in ("rank_faults.py", "rank_operators.py"):
        project.write(name, (FAKES / "rank_faults" / name).read_text("utf-8"))
    project.tests("".join(BODIES.format(fault=name, number=[*FAULTS].index(name)) for name in OUTCOMES))
    project.configure(
        candidates=[
            {
                "name": "dtensor", "backend": "dtensor", "ranks": 2, "processes": True, "placements": ["Replicate"],
                "import": ["rank_operators"],
            },
            {"name": "ddp", "backend": "ddp", "ranks": 2, "import": ["rank_operators"]},
            {"name": "host", "backend": "module", "module": "oneflow", "python": sys.executable, "ranks": 2},
        ],
        case_timeout="20s",
        memory="1GiB",
    )  # fmt: skip
    environ = {
        MARK: str(project.folder),
        "PYTHONPATH": os.pathsep.join((str(FAKES / "oneflow_ranks"), str(FAKES / "rank_faults"))),
    }  # fmt: skip
    # Most of it waits for time limits, so that more workers than processors are no load.
    done = project.run("--budget", "20m", "--workers", "4", environ=environ)
    left = processes(f"{MARK}={project.folder}")
    for line in left:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    assert done.status == 1, done.said
    assert "noise of a rank" not in done.said
    return project, left


@pytest.fixture(scope="module")
def report(run) -> dict[str, Any]:
    return run[0].report()


def outcomes_of(report: dict[str, Any], candidate: str, kind: str) -> dict[str, dict[str, int]]:
    return {
        item["test"].rpartition("::")[2].removesuffix(kind): {name: n for name, n in item["cases"].items() if n}
        for item in report["results"]
        if item["candidate"] == candidate and item["test"].endswith(kind)
    }


def test_run__faults_of_one_rank__each_case_has_the_right_outcome_and_no_other_is_touched(report):
    of_torch = {name: {outcome: 1} for name, (outcome, _) in OUTCOMES.items()}
    of_host = {name: {outcome: 1} for name, (outcome, _) in HOST_OUTCOMES.items()}

    assert outcomes_of(report, "dtensor", "_of_torch") == of_torch
    assert outcomes_of(report, "ddp", "_of_torch") == of_torch
    assert outcomes_of(report, "host", "_of_host") == of_host
    # What the faults are not meant for: the operators of one side are not those of the other.
    assert outcomes_of(report, "dtensor", "_of_host") == {name: {"aligned": 1} for name in OUTCOMES}
    assert outcomes_of(report, "ddp", "_of_host") == {name: {"unsupported": 1} for name in OUTCOMES}
    assert outcomes_of(report, "host", "_of_torch") == {name: {"unsupported": 1} for name in OUTCOMES}


@pytest.mark.parametrize("candidate", ["dtensor", "ddp"])
def test_run__faults_of_one_rank__the_findings_name_it_and_the_operator(report, candidate):
    found = {item["operator"]: item["message"] for item in report["findings"] if item["candidate"] == candidate}
    named = {f"torch.ops.faults.{name}": text for name, (_, text) in OUTCOMES.items() if text}

    assert {operator: named[operator] in message for operator, message in found.items()} == dict.fromkeys(named, True)


def test_run__faults_of_one_host__the_findings_name_it(report):
    found = [item["message"] for item in report["findings"] if item["candidate"] == "host"]

    assert any("(rank 1: " in message for message in found)
    assert any("rank 1 ended with status 0" in message or "rank 1 waits for ever" in message for message in found)


def test_run__ended__leaves_no_process(run):
    assert run[1] == []

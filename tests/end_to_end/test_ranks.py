"""A run on ranks, as a user starts it: a fault of DTensor is found, shrunk to two ranks, and confirmed on processes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.projects import Project, outcomes, processes, wait_until

#: What is looked at is processes, signals or limits.
OWN_SERVER = True

pytestmark = pytest.mark.heavy

#: torch 2.13 has no rule for a negative dimension that is cut: each rank sums its own part.
TESTS = """
@autotest(profiles=())
def softmax():
    return torch.softmax(random_tensor(2, dim0=6, dim1=8), 1)


@autotest(profiles=())
def running_sum():
    return torch.cumsum(random_tensor(2, dim0=6, dim1=8), -1)


@autotest(profiles=())
def sum_of_rows():
    return torch.ops.rules.sum_of_rows(random_tensor(2, dim0=6, dim1=8, requires_grad=False))


@autotest(n=2, profiles=())
def twice():
    return torch.ops.rules.twice(random_tensor(2, dim0=6, dim1=8, requires_grad=False))
"""
#: The sum over cut rows is said to be the same on all ranks, and nothing adds what each of them has.
RULES = """
import os

import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding


@torch.library.custom_op("rules::sum_of_rows", mutates_args=(), schema="(Tensor x) -> Tensor")
def sum_of_rows(x):
    return x.sum(0)


sum_of_rows.register_fake(lambda x: x.sum(0))
register_sharding(torch.ops.rules.sum_of_rows.default)(
    lambda x: [([Replicate()], [Shard(0)]), ([Replicate()], [Replicate()])]
)


@torch.library.custom_op("rules::twice", mutates_args=(), schema="(Tensor x) -> Tensor")
def twice(x):
    return x * (3 if os.environ.get("RANK") == "1" else 2)  # simulated ranks have no such variable


twice.register_fake(lambda x: x * 2)
register_sharding(torch.ops.rules.twice.default)(lambda x: [([Shard(0)], [Shard(0)])])
"""
MENDED = RULES.replace("3 if", "2 if")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    project = Project(tmp_path_factory.mktemp("ranks"))
    project.tests(TESTS)
    project.write("rules.py", RULES)
    project.configure(
        candidates=[
            {"name": "sharded", "backend": "dtensor", "ranks": 4, "import": ["rules"]},
            {"name": "gloo", "backend": "dtensor", "ranks": 2, "processes": True, "import": ["rules"]},
        ]
    )
    assert project.run("--cases", "6").status == 1
    return project


@pytest.fixture(scope="module")
def report(project: Project) -> dict[str, Any]:
    return project.report()


def test_run__both_kinds_of_ranks__have_the_same_outcomes(report):
    assert outcomes(report) == {
        ("softmax", "sharded"): "aligned",
        ("softmax", "gloo"): "aligned",
        ("running_sum", "sharded"): "misaligned",
        ("running_sum", "gloo"): "misaligned",
        ("sum_of_rows", "sharded"): "misaligned",
        ("sum_of_rows", "gloo"): "misaligned",
        ("twice", "sharded"): "aligned",
        ("twice", "gloo"): "misaligned",
    }


def test_run__finding_of_simulated_ranks__is_confirmed_on_processes_and_shown_on_two(report):
    finding = _of_simulated(report, "torch.cumsum")

    assert (finding["operator"], finding["kind"], finding["confirmed"]) == ("torch.cumsum", "value", True)
    assert "confirmed on processes: value" in finding["message"]
    assert "# on a mesh of 2 ranks; the code below is the reference's" in finding["program"]
    assert "lies as Shard(1): [" in finding["program"]


def test_repro__alone__simulates_the_ranks_and_fails(project, report):
    done = project.repro(_of_simulated(report, "torch.cumsum"))

    assert (done.status, "value of cumsum" in done.out) == (1, True)


def test_run__sum_that_is_not_reduced__is_of_kind_rank_on_processes_too_and_its_repro_fails(project, report):
    finding = _of_simulated(report, "torch.ops.rules.sum_of_rows")

    assert (finding["kind"], finding["confirmed"]) == ("rank", True)
    assert "confirmed on processes: rank, ranks 2 and 3 hold other bits than ranks 0 and 1" in finding["message"]
    assert project.repro(finding).status == 1


def test_repro__finding_that_only_processes_show__starts_its_ranks_and_fails_until_mended(project, report):
    (finding,) = (each for each in report["findings"] if each["operator"] == "torch.ops.rules.twice")
    done = project.repro(finding)

    assert (finding["kind"], finding["confirmed"], finding["repro_verified"]) == ("value", True, True)
    assert (done.status, "misaligned: value of twice: " in done.out) == (1, True)
    project.write("rules.py", MENDED)
    try:
        assert project.repro(finding).status == 0
    finally:
        project.write("rules.py", RULES)
    assert wait_until(lambda: not processes(str(project.folder)), 60), processes(str(project.folder))


def test_repro__finding_on_processes_that_the_simulation_shows__simulates_the_ranks(project, report):
    (finding,) = (
        each for each in report["findings"] if (each["candidate"], each["operator"]) == ("gloo", "torch.cumsum")
    )
    text = (project.folder / "autotest-report" / finding["repro"]).read_text("utf-8")

    assert finding["repro_verified"]
    assert ("LocalTensorMode" in text, "multiprocessing" in text) == (True, False)


def _of_simulated(report: dict[str, Any], operator: str) -> dict[str, Any]:
    return next(each for each in report["findings"] if (each["candidate"], each["operator"]) == ("sharded", operator))


def test_run__coverage__counts_pairs_of_operator_and_placements(report):
    covered = {item["operator"]: item["candidates"]["sharded"]["placements"] for item in report["operators"]}

    assert len(covered) == 4
    assert all(covered.values())
    assert "Shard(1)" in covered["torch.cumsum"]

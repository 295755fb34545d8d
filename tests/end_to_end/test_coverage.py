"""A run says which of torch's operators it tested on each candidate, and how each stood; shards say it together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.projects import Done, Project

BODY = """
@autotest(n=6)
def right():
    return torch.exp(random_tensor(ndim=2) * 2)

@autotest(n=6)
def wrong():
    return torch.tanh(random_tensor(ndim=2))

@autotest(n=6)
def without_counterpart():
    return torch.cumsum(random_tensor(ndim=2, dtype=int), dim=oneof(0, 1))
"""
#: A framework with torch's names of which one operator is wrong.
TOY = """
import torch
from torch import *
from torch import nn, autograd
__version__, device, Tensor, dtype = "1.0", torch.device, torch.Tensor, torch.dtype

def tanh(input):
    return torch.tanh(input) * 1.01
"""
CANDIDATE = {
    "name": "toy",
    "backend": "module",
    "module": "toy",
    "mapping": {"torch.cumsum": {"unsupported": "its sums run the other way"}},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Done]:
    project = Project(tmp_path_factory.mktemp("coverage"))
    project.configure(candidates=[CANDIDATE])
    project.write("toy.py", TOY)
    project.tests(BODY)
    return project, project.run()


def counts(report: dict[str, Any]) -> tuple[Any, ...]:
    (found,) = report["coverage"]
    names = ("tested", "supported", "aligned", "misaligned")
    return (found["candidate"], *(found["counts"][name] for name in names))


def test_report__operators__are_told_by_what_came_of_them(ran: tuple[Project, Done]):
    report = ran[0].report()
    assert counts(report) == ("toy", 4, 3, 2, 1), ran[1].said
    own = {item["operator"]: item for item in report["operators"]}
    assert own["torch.cumsum"]["family"] == "reductions"
    assert own["torch.cumsum"]["recorded"] == {
        "cases": 6, "aligned": 6, "arguments": ["dim", "input"], "dtypes": ["int64"], "placements": [], "delegated": None,
    }  # fmt: skip
    assert own["torch.cumsum"]["candidates"] == {}
    assert own["torch.exp"]["candidates"]["toy"]["aligned"] == 6
    assert own["torch.tanh"]["candidates"]["toy"]["cases"] == 6
    assert own["torch.tanh"]["candidates"]["toy"]["aligned"] < 6


def test_console_and_summary__say_it_in_a_line_and_by_family(ran: tuple[Project, Done]):
    project, done = ran
    line = "coverage of toy: 3 of 4 tested operators are supported, 2 aligned, 1 misaligned; torch has "
    assert done.out.count(line) == 1
    summary = (project.folder / "autotest-report" / "summary.md").read_text("utf-8")
    assert "<summary>Operators: toy 3 of 4 tested are supported, 2 aligned, 1 misaligned</summary>" in summary
    assert "| `toy` | reductions | " in summary


@pytest.mark.heavy
def test_report__shards__are_merged_to_the_coverage_of_the_whole(ran: tuple[Project, Done]):
    project, _ = ran
    for shard in (1, 2):
        project.run("--shard", f"{shard}/2", "--output", f"shard-{shard}")
    done = project.command("report", "shard-1", "shard-2", "--output", "merged")
    whole, merged = project.report(), project.report("merged")
    assert (merged["coverage"], merged["operators"]) == (whole["coverage"], whole["operators"]), done.said

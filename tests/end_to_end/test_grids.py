"""Grids as a user sees them: `list` counts the points, and each is a case of one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.projects import Project

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
from ci_autotest import every


@autotest()
def summed():
    return torch.sum(random_tensor(2, every(range(1, 4)), every(2, 5)), dim=every(0, 1))


@autotest(n=4)
def too_many():
    return torch.ones(1) * every(range(2000)) * every(range(1000))


@autotest(n=4, profiles=(), examples=[{"1": 3}, {"1": 2}])
def reshaped():
    return torch.ones(2).reshape(random(1, 4).to(int), -1)
"""


def test_run__grid__is_counted_by_list_and_run_whole_in_one_row(tmp_path: Path):
    project = Project(tmp_path)
    project.configure(candidates=[{"name": "torch", "backend": "torch"}])
    project.tests(TESTS)
    shown = project.command("list").out
    assert "summed  line 7, 12 cases, a grid of 12 points" in shown
    assert "too_many  line 12, 1 case, a grid of 2,000,000 points; 1,000,000 are allowed" in shown
    done = project.run("--cases", "3")
    rows = {item["test"].rpartition("::")[2]: item for item in project.report()["results"]}
    assert (done.status, rows["summed"]["cases"]["aligned"], rows["summed"]["profiles"]) == (1, 12, {"ordinary": 12})
    assert "its grid has 2,000,000 points, and 1,000,000 are allowed" in done.said
    assert (
        "reshaped: examples[0] has no values to compare, because the reference rejects it: reshape: RuntimeError: "
        in done.said
    )

"""The notes of a run about what it could not use."""

from __future__ import annotations

import time
from pathlib import Path

from ci_autotest.commands.budget import Budget
from ci_autotest.commands.request import Request
from ci_autotest.commands.run_notes import run_notes
from ci_autotest.commands.run_state import RunState
from ci_autotest.config import Config
from ci_autotest.discovery import Selection
from ci_autotest.findings.database import Database
from ci_autotest.run.ray.rank_nodes import RankNodes
from tests.fakes.ray_nodes import FakeRay


def test_run_notes__node_of_a_cluster_that_has_no_ranks__is_named(tmp_path: Path):
    ray = FakeRay(a=1, b=1)
    ray.broken = {"a"}
    nodes = RankNodes(ray, 0)
    nodes.variables()
    request = Request(Config(), tmp_path, tmp_path, (), ())
    budget = Budget(time.monotonic, 0.0, None)
    state = RunState(request, Selection((), {}, 0, ()), 0, tmp_path, budget, Database(tmp_path), {}, unused=nodes.notes)

    assert run_notes(state, (), is_whole=True) == (
        "node a of the cluster has no ranks: its server of ranks could not start (LookupError)",
    )

"""The notes of a run about what it could not use."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from ci_autotest.commands.budget import Budget
from ci_autotest.commands.request import Request
from ci_autotest.commands.run import RunState, run_notes
from ci_autotest.config import Config
from ci_autotest.discovery import Selection
from ci_autotest.findings.database import Database
from ci_autotest.kinds import DdpCandidate, DTensorCandidate
from ci_autotest.run.ray.rank_nodes import RankNodes
from tests.fakes.ray_nodes import FakeRay


def notes_of(request: Request, unused: list[str]) -> tuple[str, ...]:
    budget, folder = Budget(time.monotonic, 0.0, None), request.root
    state = RunState(request, Selection((), {}, 0, ()), 0, folder, budget, Database(folder), {}, unused=unused)
    return run_notes(state, (), is_whole=True)


def test_run_notes__node_of_a_cluster_that_has_no_ranks__is_named(tmp_path: Path):
    ray = FakeRay(a=1, b=1)
    ray.broken = {"a"}
    nodes = RankNodes(ray, 0)
    nodes.variables()
    request = Request(Config(), tmp_path, tmp_path, (), ())

    assert notes_of(request, nodes.notes) == (
        "node a of the cluster has no ranks: its server of ranks could not start (LookupError)",
    )


def test_run_notes__device_for_ranks_that_cannot_be_there__is_said(tmp_path: Path):
    candidates = (
        DTensorCandidate(name="simulated", ranks=2),
        DdpCandidate(name="ddp", ranks=2, device="cuda"),
    )
    request = Request(Config(), tmp_path, tmp_path, (), candidates, device="cuda")

    assert notes_of(request, []) == (
        "candidate 'simulated' stayed on the CPU: --device cuda is not for ranks that are simulated, nor for those of "
        "another framework",
    )
    assert notes_of(replace(request, device=None), []) == ()

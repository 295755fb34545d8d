"""Each fault on each rank of 2 and 4, of DTensors on gloo and of ddp: one verdict, the right rank, and nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ci_autotest.backends.ranks.ranks import numbered

pytestmark = pytest.mark.heavy
_ROOT = Path(__file__).resolve().parents[2]
#: What the rank at fault is said to have done, by fault.
LOSSES = {
    "killed": "ended by signal 9 (SIGKILL)",
    "segfault": "ended by signal 11 (SIGSEGV)",
    "exit_0": "ended with status 0",
    "exit_3": "ended with status 3",
    "system_exit": "raised SystemExit",
    "raises": "raised ValueError",
    "garbage": "sent an invalid answer (",
    "zeros": "sent an invalid answer (",
}
#: What the rank wrote tells nothing about the step at which it did.
NOT_LOCATED = {"garbage", "zeros"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The verdicts of ``tests/rank_chaos.py``."""
    file = tmp_path_factory.mktemp("chaos") / "found.json"
    path = os.pathsep.join((str(_ROOT / "tests" / "fakes" / "rank_faults"), str(_ROOT)))
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.rank_chaos", str(file), *LOSSES, "output"],
        cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", check=False, timeout=1800,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    read: dict[str, Any] = json.loads(file.read_text())
    return read


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("backend", ["dtensor", "ddp"])
@pytest.mark.parametrize("fault", LOSSES)
def test_judged__fault_of_each_rank__is_named_and_the_next_case_is_right(found, fault: str, backend: str, ranks: int):
    for rank in range(ranks):
        (outcome, kind, operator, seen), after = found[f"{backend} {ranks}: {fault}, rank {rank}"]

        assert (outcome, kind, after) == ("misaligned", "rank", "aligned"), seen
        assert seen.startswith(f"rank {rank} {LOSSES[fault]}"), seen
        assert seen.endswith(f", {numbered([other for other in range(ranks) if other != rank])} went on"), seen
        assert operator == f"torch.ops.faults.{fault}" or fault in NOT_LOCATED


@pytest.mark.parametrize("backend", ["dtensor", "ddp"])
def test_judged__rank_that_prints_50_megabytes__is_aligned(found, backend: str):
    seen = [found[f"{backend} {ranks}: output, rank {rank}"] for ranks in (2, 4) for rank in range(ranks)]

    assert {(verdict[0], after) for verdict, after in seen} == {("aligned", "aligned")}

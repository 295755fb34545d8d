"""Ranks in processes of their own: faults of one rank are found and named, and nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.projects import processes, wait_until

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, Any]:
    """What the faults of ``tests/rank_processes.py`` gave, and the temporary files that it left."""
    folder = tmp_path_factory.mktemp("temporary")
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.rank_processes"],
        cwd=_ROOT, capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    left = [path.name for path in folder.iterdir() if not path.name.startswith("torchinductor")]
    return {**json.loads(ended.stdout.splitlines()[-1]), "left": left, "folder": str(folder)}


@pytest.mark.parametrize(
    ("name", "kind", "seen"),
    [
        ("raises", "rank", "rank 2 raised IndexError, ranks 0 and 1 went on"),
        ("ends", "rank", "rank 2 ended with status 3, ranks 0 and 1 went on"),
        ("waits", "rank", "rank 2 raised IndexError, ranks 0 and 1 wait for ever in all_reduce"),
        ("differs", "rank", "rank 2 holds other bits than ranks 0 and 1"),
    ],
)
def test_judged__fault_of_one_rank__is_found_and_the_rank_named(found, name: str, kind: str, seen: str):
    assert found[name] == ["misaligned", kind, f"torch.ops.processes.{name}", seen]


@pytest.mark.parametrize("name", ["right", "sleeps", "linear 0", "linear 1", "linear 2"])
def test_judged__right_operator_if_slow_or_after_groups_were_ended__is_aligned(found, name: str):
    assert found[name][0] == "aligned"


def test_judged__all_ranks_end_alike__is_a_lost_candidate(found):
    assert found["all end"] == ["all 3 ranks of candidate 'gloo' ended with status 3.", 3]


def test_end__worker_that_closed_one_of_two_groups__leaves_no_rank(found):
    assert found["pids"]
    # By the environment: the system gives the number of a process to another one.
    assert wait_until(lambda: not processes(found["folder"]), 60), processes(found["folder"])


def test_end__worker_that_closed_one_of_two_groups__leaves_no_file(found):
    assert found["left"] == []

"""Run each fault of ``fakes/rank_faults`` on each rank of 2 and 4, and write what was found to a file, as JSON.

``python -m tests.rank_chaos FILE [FAULT ...]``, with ``fakes/rank_faults`` on the path: a process of its own, because ranks
cannot be forked from one that has run a backward pass.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rank_operators  # noqa: F401 - it registers them
import torch
import torch._dynamo  # Before the servers are forked, each of which would import it otherwise.

import ci_autotest
from ci_autotest.backends.ranks.backend import DTensorBackend
from ci_autotest.backends.ranks.placement_draw import Meshes
from ci_autotest.backends.ranks.training.module_backend import ModuleBackend
from ci_autotest.backends.worker_side import WorkerSide
from tests.engine import judged, record

if TYPE_CHECKING:
    from ci_autotest.backends.protocol import Backend

COUNTS = (2, 4)


def _body(name: str, rank: int) -> object:
    x = getattr(torch.ops.faults, name)(ci_autotest.random_tensor(2, 8, 2, requires_grad=False), rank)
    return ci_autotest.torch.nn.Linear(2, 2)(x)


def _seen(name: str, rank: int, backend: Backend) -> list[Any]:
    verdict = judged(record(partial(_body, name, rank), profiles=(), test=name), backend).verdict
    at = verdict.misalignment
    return [verdict.outcome, verdict.kind, verdict.operator, at.candidate if at else ""]


def main() -> None:
    """Write the verdict on each fault by backend, number of ranks and rank, and on the right operator after it."""
    file, *faults = sys.argv[1:]
    backends: dict[str, Backend] = {}
    # All of them before anything runs here.
    for count in COUNTS:
        everywhere = Meshes(count, (count,)), ("Replicate",)
        backends[f"dtensor {count}"] = DTensorBackend("gloo", *everywhere, processes=WorkerSide())
        backends[f"ddp {count}"] = ModuleBackend("ddp", "ddp", count)
    found = {
        f"{name}: {fault}, rank {rank}": [_seen(fault, rank, backend), _seen("right", rank, backend)[0]]
        for name, backend in backends.items()
        for fault in faults
        for rank in range(int(name.split()[1]))
    }
    for backend in backends.values():
        backend.close()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    sys.stderr.write(f"{sum(each.ru_utime + each.ru_stime for each in used):.0f} s of processor time\n")
    Path(file).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
    os._exit(0)  # As a worker ends: what was not closed ends with it.

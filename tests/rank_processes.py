"""Run planted faults on ranks in processes of their own, and print what was found as JSON.

``python -m tests.rank_processes``: a process of its own, because ranks cannot be forked from one that has run a
backward pass.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

import ci_autotest
from ci_autotest.backends.framework.process import HostLostError
from ci_autotest.backends.ranks.backend import DTensorBackend
from ci_autotest.backends.ranks.placement_draw import Meshes
from ci_autotest.backends.ranks.processes.rank_server import SILENCE_S
from ci_autotest.backends.worker_side import WorkerSide
from tests.engine import judged, record

if TYPE_CHECKING:
    from collections.abc import Callable

RANKS = 3
WORKER = os.getpid()


def _is_last() -> bool:
    return dist.is_initialized() and dist.get_rank() == RANKS - 1


def _raises(x: torch.Tensor) -> torch.Tensor:
    if _is_last():
        message = "the last rank raises"
        raise IndexError(message)
    return x * 2


def _ends(x: torch.Tensor) -> torch.Tensor:
    if _is_last():
        os._exit(3)
    return x * 2


def _ends_everywhere(x: torch.Tensor) -> torch.Tensor:
    if os.getpid() != WORKER:
        os._exit(3)
    return x * 2


def _waits(x: torch.Tensor) -> torch.Tensor:
    # The others go on into the sum over ranks that its rule says is missing.
    return _raises(x)


def _sleeps(x: torch.Tensor) -> torch.Tensor:
    if _is_last():
        time.sleep(2 * SILENCE_S)
    return x * 2


def _differs(x: torch.Tensor) -> torch.Tensor:
    return x * (3 if _is_last() else 2)


def _right(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _planted(body: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    name = body.__name__.strip("_")
    operator: Any = torch.library.custom_op(f"processes::{name}", body, mutates_args=(), schema="(Tensor x) -> Tensor")
    operator.register_fake(lambda x: x * 2)
    own = getattr(torch.ops.processes, name)
    rules = [([Shard(0)], [Shard(0)]), ([Partial() if body is _waits else Replicate()], [Replicate()])]
    register_sharding(own.default)(lambda _: rules)
    return own


def main() -> None:
    """Print the verdict on each fault, where it stood, and the processes that ran it."""
    operators = {
        body.__name__.strip("_"): _planted(body) for body in (_right, _raises, _ends, _waits, _sleeps, _differs)
    }
    everywhere = _planted(_ends_everywhere)
    # As in a worker with two rows: the simulation's group is the default one of the process that forks.
    simulated = DTensorBackend("simulated", Meshes(RANKS))
    backend = DTensorBackend("gloo", Meshes(RANKS), processes=WorkerSide())
    replicated = DTensorBackend("gloo", Meshes(RANKS, (RANKS,)), ("Replicate",), processes=WorkerSide())
    found: dict[str, Any] = {}
    for name, operator in operators.items():
        attempt = record(partial(_call, operator), test=name)
        verdict = judged(attempt, replicated).verdict
        seen = verdict.misalignment.candidate if verdict.misalignment else ""
        found[name] = [verdict.outcome, verdict.kind, verdict.operator, seen]
    for case in range(3):
        verdict = judged(record(_linear, case, test="linear"), backend).verdict
        same = judged(record(_linear, case, test="linear"), simulated).verdict
        assert same.outcome == verdict.outcome
        found[f"linear {case}"] = [verdict.outcome, verdict.kind, verdict.operator, verdict.oracle]
    groups = [*backend._processes.values(), *replicated._processes.values()]
    try:
        judged(record(partial(_call, everywhere), test="everywhere"), replicated)
    except HostLostError as lost:
        found["all end"] = [str(lost), lost.code]
    found["pids"] = [rank.pid for group in groups for rank in group._ranks]
    backend.close()
    sys.stdout.write(json.dumps(found) + "\n")


def _call(operator: Any) -> object:
    return operator(ci_autotest.random_tensor(2, 7, 2, requires_grad=False))


def _linear() -> object:
    return ci_autotest.torch.nn.Linear(5, 3)(ci_autotest.random_tensor(2, 7, 5))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # As a worker ends: what was not closed ends with it.

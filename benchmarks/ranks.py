"""Cost of a case on four simulated ranks, relative to the same operator run by hand under ``LocalTensorMode``.

By hand: the inputs of the same cases are distributed with the same placements, the operator runs forward and backward
from a gradient that lies as the output does, and the output and each gradient are gathered. Ours is a worker's
dispatcher that answers ``RunCases``: it also draws, records, runs the reference and compares. Both run in this process
on one thread, in alternating blocks; the figures are CPU time, because that does not depend on the load of the machine.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import torch
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor

from benchmarks.overhead import HERE, ours
from ci_autotest.backends.ranks.parts import placements_of
from ci_autotest.kinds import DTensorCandidate
from ci_autotest.run.messages import CasesDone, Discover, Hello, TestInfo
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker.dispatch import Dispatcher
from ci_autotest.values.case import test_key

CASES, ROUNDS, RANKS = 24, 8, 4
#: Highest ratio to the operator run by hand.
AIM = 1.5
OPERATORS = {"add": torch.add, "softmax": lambda x: torch.softmax(x, 1), "mm": torch.mm}
_NAME = "sharded"


def inputs_of(dispatcher: Dispatcher, test: TestInfo) -> list[tuple[list[torch.Tensor], list[Any], torch.Tensor]]:
    """Return the leaves of each case, their placements and its cotangent."""
    context = dispatcher.worker_context
    declaration, call = context.library.find(test)
    found = []
    for case in range(CASES):
        attempt = context.attempts.attempt(declaration, call, (test_key(0, test.id), test.id, case, 0))
        program = context.backends[_NAME].adapted(attempt).program
        specs = [step.args[0] for step in program.steps if step.op == "placeholder"]
        leaves = [attempt.sources[step.target] for step in program.steps if step.op == "placeholder"]
        found.append((leaves, [placements_of(spec.distribution) for spec in specs], attempt.cotangents[0]))
    return found


def by_hand(name: str, mesh: DeviceMesh, inputs: list[tuple[list[torch.Tensor], list[Any], torch.Tensor]]) -> float:
    """Run the operator as one would by hand; return the seconds of CPU time."""
    operator, begun = OPERATORS[name], time.process_time()
    for leaves, placements, cotangent in inputs:
        with LocalTensorMode(RANKS) as mode:
            spread = [_spread(leaf, mesh, lay, mode) for leaf, lay in zip(leaves, placements, strict=True)]
            output = operator(*spread)
            output.full_tensor()
            lies = [Replicate() if each.is_partial() else each for each in output.placements]
            weight = distribute_tensor(cotangent, mesh, lies)
            for gradient in torch.autograd.grad(output, spread, weight):
                gradient.full_tensor()
    return time.process_time() - begun


def _spread(leaf: torch.Tensor, mesh: DeviceMesh, placements: Any, mode: Any) -> torch.Tensor:
    if isinstance(placements[0], Partial):
        with mode.disable():
            share = leaf / RANKS
            parts = LocalTensor({rank: share.clone() for rank in range(RANKS)})
        return DTensor.from_local(parts, mesh, placements, run_check=False).requires_grad_()
    return distribute_tensor(leaf, mesh, placements).requires_grad_()


def main() -> int:
    """Print the ratios; return the number of missed goals."""
    parts: list[CasesDone] = []
    dispatcher = Dispatcher(ProgressBeacon.create(), parts.append)
    dispatcher.answer(
        Hello(
            root=str(HERE), folders=[], seed=0, strictness="tolerance", reference_device="cpu", tolerances=[],
            candidates=[DTensorCandidate(name=_NAME, mesh=(RANKS,))],
        )
    )  # fmt: skip
    tests = {test.name: test for test in dispatcher.answer(Discover("sharded.py")).tests}
    mesh = DeviceMesh("cpu", torch.arange(RANKS))
    print("four ranks        by hand ms    ours ms  ratio (quartiles)       goal  by hand against itself")
    missed = 0
    for name, test in tests.items():
        inputs = inputs_of(dispatcher, test)
        ratios, controls, hand_ms, ours_ms = [], [], [], []
        for number in range(ROUNDS + 1):
            first = by_hand(name, mesh, inputs)
            begun = time.process_time()
            ours(dispatcher, test, list(range(CASES)), parts, _NAME)
            mine = time.process_time() - begun
            second = by_hand(name, mesh, inputs)
            if number:  # the first round is the warm-up
                ratios.append(2 * mine / (first + second))
                controls.append(first / second)
                hand_ms.append((first + second) / 2 / CASES * 1e3)
                ours_ms.append(mine / CASES * 1e3)
        low, median, high = statistics.quantiles(ratios, n=4)
        missed += median > AIM
        print(
            f"{name:17} {statistics.median(hand_ms):10.2f} {statistics.median(ours_ms):10.2f}  {median:.2f} "
            f"({low:.2f} to {high:.2f})  {AIM:9.1f}  {statistics.median(controls):.2f}"
            f"{'  MISSED' if median > AIM else ''}"
        )
    return missed


if __name__ == "__main__":
    sys.exit(main())

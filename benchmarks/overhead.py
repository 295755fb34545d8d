"""Cost of a case, relative to the two executions that it cannot do without.

Raw is ``.grad = None``, forward and ``Tensor.backward(cotangent)``, twice, on the same tensors as the cases, which are
built before the clock starts. For ``linear`` it is a loop written by hand that draws sizes and data, builds both
modules, runs both forward and backward, and compares nothing. Ours is a worker's dispatcher that answers ``RunCases``
for the same cases, with its messages encoded and decoded. Both run in this process on one thread, in alternating blocks
whose order changes each round, after one warm-up that is not timed.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ci_autotest.kinds import TorchCandidate
from ci_autotest.run.frames import HEADER, decode_from_worker, decode_to_worker, frame
from ci_autotest.run.messages import CasesDone, Discover, Hello, RunCases, TestInfo
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker.dispatch import Dispatcher
from ci_autotest.run.worker.memory import spare_memory
from ci_autotest.values.case import test_key

HERE = Path(__file__).parent / "suite"
#: As many as a worker gets at once (``plan.TASK_CASES``).
CASES = 500
ROUNDS = 20
#: Highest ratio to two raw executions that an operator should have. The suite's ratio matters more (``suite_ratio``).
AIMS = {"add": 1.9, "matmul": 1.9, "conv_transpose2d": 1.15}
RAW = {
    "add": torch.add,
    "matmul": torch.matmul,
    "chain": lambda x: torch.tanh(torch.mul(torch.add(torch.sigmoid(torch.exp(x)), x), x)),
    "in_place": lambda x: (x * 2).mul_(3).add_(1).tanh_(),
    "conv_transpose2d": lambda x, w: torch.nn.functional.conv_transpose2d(x, w, stride=2, padding=1),
}


def make_bench() -> tuple[Dispatcher, dict[str, TestInfo], list[CasesDone]]:
    spare_memory()  # a worker does the same; it serves the raw executions, too
    parts: list[CasesDone] = []
    place = ProgressBeacon.create()
    dispatcher = Dispatcher(place, lambda part: parts.append(_through(part)))
    dispatcher.answer(
        Hello(
            root=str(HERE),
            folders=[],
            seed=0,
            strictness="tolerance",
            reference_device="cpu",
            candidates=[TorchCandidate(name="torch")],
            tolerances=[],
        )
    )
    found = dispatcher.answer(Discover("bodies.py"))
    return dispatcher, {test.name: test for test in found.tests}, parts


def _through(message: Any) -> Any:
    """Encode and decode a message, as the pipe does."""
    return decode_from_worker(frame(message)[HEADER.size :])


def ours(
    dispatcher: Dispatcher, test: TestInfo, cases: list[int], parts: list[CasesDone], candidate: str = "torch"
) -> float:
    begun = time.perf_counter()
    request = decode_to_worker(frame(RunCases(test=test, cases=cases, candidates=[candidate]))[HEADER.size :])
    last = _through(dispatcher.answer(request))
    spent = time.perf_counter() - begun
    aligned = sum(part.pairs[candidate].aligned for part in (last, *parts) if candidate in part.pairs)
    parts.clear()
    assert aligned == len(cases), f"{test.name}: {aligned} of {len(cases)} cases are aligned"
    return spent


def raw_inputs(
    dispatcher: Dispatcher, test: TestInfo, cases: list[int]
) -> list[tuple[list[torch.Tensor], torch.Tensor]]:
    """Return the leaves and the cotangent of each case, from its draws."""
    declaration, call = dispatcher.worker_context.library.find(test)
    key = test_key(0, test.id)
    found = []
    for case in cases:
        for number in range(20):
            attempt = dispatcher.worker_context.attempts.attempt(declaration, call, (key, test.id, case, number))
            if attempt.refused is None:
                break
        leaves = [value for value in attempt.trace.values if isinstance(value, torch.Tensor) and value.is_leaf]
        found.append((leaves, attempt.cotangents[0]))
    return found


def by_hand(cases: int) -> float:
    """Run nn.Linear with drawn sizes as one would by hand: on two modules with the same state, comparing nothing."""
    begun = time.perf_counter()
    for case in range(cases):
        draws = np.random.default_rng(case)
        rows, features, outputs = draws.integers(1, 8, 3).tolist()
        x = torch.from_numpy(draws.random((rows, features), dtype=np.float32) * 2 - 1)
        cotangent = torch.from_numpy(draws.random((rows, outputs), dtype=np.float32) * 2 - 1)
        torch.manual_seed(case)
        first, second = torch.nn.Linear(features, outputs), torch.nn.Linear(features, outputs)
        second.load_state_dict(first.state_dict())
        for module in (first, second):
            module(x.clone().requires_grad_()).backward(cotangent)
    return time.perf_counter() - begun


def raw(name: str, inputs: list[tuple[list[torch.Tensor], torch.Tensor]]) -> float:
    if name == "linear":
        return by_hand(len(inputs))
    function = RAW[name]
    begun = time.perf_counter()
    for leaves, cotangent in inputs:
        for leaf in leaves:
            leaf.grad = None
        function(*leaves).backward(cotangent)
        for leaf in leaves:
            leaf.grad = None
        function(*leaves).backward(cotangent)
    return time.perf_counter() - begun


def measure(name: str, dispatcher: Dispatcher, test: TestInfo, parts: list[CasesDone]) -> dict[str, float]:
    cases = list(range(CASES))
    inputs = raw_inputs(dispatcher, test, cases)
    ours(dispatcher, test, cases, parts)
    raw(name, inputs)
    ratios, controls, ours_us, raw_us = [], [], [], []
    for number in range(ROUNDS):
        if number % 2:
            first, mine, second = raw(name, inputs), ours(dispatcher, test, cases, parts), raw(name, inputs)
        else:
            mine, first, second = ours(dispatcher, test, cases, parts), raw(name, inputs), raw(name, inputs)
        ratios.append(2 * mine / (first + second))
        controls.append(first / second)
        ours_us.append(mine / CASES * 1e6)
        raw_us.append((first + second) / 2 / CASES * 1e6)
    ordered = sorted(ratios)
    return {
        "ratio": statistics.median(ratios),
        "low": ordered[ROUNDS // 4],
        "high": ordered[-ROUNDS // 4],
        "raw_raw": statistics.median(controls),
        "ours_us": statistics.median(ours_us),
        "raw_us": statistics.median(raw_us),
    }


def main() -> int:
    torch.set_num_threads(1)
    dispatcher, tests, parts = make_bench()
    print("operator          ratio  (quartiles)      aim   raw us  ours us  overhead us  raw/raw")
    failed = 0
    for name in (*RAW, "linear"):
        goal = AIMS.get(name, float("inf"))
        got = measure(name, dispatcher, tests[name], parts)
        void = not 0.97 <= got["raw_raw"] <= 1.03
        missed = got["ratio"] > goal
        failed += missed or void
        note = "  VOID: raw against raw is off" if void else "  MISSED" if missed else ""
        print(
            f"{name:17} {got['ratio']:5.2f}  ({got['low']:.2f} to {got['high']:.2f})  "
            f"{goal:6.2f}  {got['raw_us']:7.1f}  {got['ours_us']:7.1f}  "
            f"{got['ours_us'] - got['raw_us']:11.1f}  {got['raw_raw']:7.3f}{note}"
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())

"""Cost of isolation, of a second worker and of more candidates: ratios on the same cases, in alternating rounds.

*Isolation* is the time of a worker process, monitored as in a run, relative to a dispatcher in this process. *Two
workers* is the number of cases that two workers run in the time of one. *Three candidates* is the time of three
candidates relative to one.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from benchmarks.overhead import HERE, make_bench, ours
from ci_autotest.kinds import TorchCandidate
from ci_autotest.run.messages import Discover, Discovered, Hello, RunCases, TestInfo
from ci_autotest.run.process import Limits, WorkerProcess

ROUNDS = 12
CASES = 3000
NAMES = ("torch", "second", "third")
GOALS = {"isolation": 1.03, "two workers": 1.8, "three candidates": 2.1, "add cases/s on one worker": 0}


def start() -> tuple[WorkerProcess, TestInfo]:
    """Start a worker; return it with the test of add."""
    worker = WorkerProcess(os.environ, Limits(60.0))
    hello = Hello(
        root=str(HERE), folders=[], seed=0, strictness="tolerance", reference_device="cpu",
        candidates=[TorchCandidate(name=name) for name in NAMES], tolerances=[],
    )  # fmt: skip
    worker.ask(hello)
    found = worker.ask(Discover("bodies.py"))
    assert isinstance(found, Discovered), found
    return worker, next(test for test in found.tests if test.name == "add")


def time_s(workers: list[WorkerProcess], test: TestInfo, names: tuple[str, ...] = NAMES[:1]) -> float:
    """Return the seconds that workers need to run the same cases side by side."""
    request = RunCases(test=test, cases=list(range(CASES)), candidates=list(names))
    with ThreadPoolExecutor(len(workers)) as pool:
        begun = time.perf_counter()
        done = list(pool.map(lambda worker: list(worker.exchange(request)), workers))
        spent = time.perf_counter() - begun
    parts: list[Any] = [part for each in done for part in each]
    for name in names:
        aligned = sum(part.pairs[name].aligned for part in parts if name in part.pairs)
        assert aligned == CASES * len(workers), f"{aligned} cases are aligned on {name}"
    return spent


def main() -> int:
    """Print the figures; return the number of missed goals."""
    torch.set_num_threads(1)
    dispatcher, tests, parts = make_bench()
    (one, test), (two, _) = start(), start()
    seen: dict[str, list[float]] = {name: [] for name in GOALS}
    try:
        for worker in (one, two):
            time_s([worker], test)
        ours(dispatcher, tests["add"], list(range(CASES)), parts)
        for _ in range(ROUNDS):
            here = ours(dispatcher, tests["add"], list(range(CASES)), parts)
            alone = time_s([one], test)
            both = time_s([one, two], test)
            three = time_s([one], test, NAMES)
            again = time_s([one], test)
            mean = (alone + again) / 2
            seen["isolation"].append(mean / here)
            seen["two workers"].append(2 * mean / both)
            seen["three candidates"].append(three / mean)
            seen["add cases/s on one worker"].append(CASES / mean)
    finally:
        one.close()
        two.close()
    failed = 0
    for name, values in seen.items():
        ordered, goal = sorted(values), GOALS[name]
        got = statistics.median(values)
        missed = got > goal if name in {"isolation", "three candidates"} else got < goal
        failed += missed
        low, high = ordered[ROUNDS // 4], ordered[-ROUNDS // 4]
        print(f"{name:26} {got:10,.2f}  ({low:,.2f} to {high:,.2f})  goal {goal:,}{'  MISSED' if missed else ''}")
    return failed


if __name__ == "__main__":
    sys.exit(main())

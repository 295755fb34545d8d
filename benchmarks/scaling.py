"""What isolation, a second worker and more candidates cost: ratios of the same cases, in alternating rounds.

*Isolation* is a worker process over its pipe, watched as in a run, against the bench of this process. *Two workers* is
how many times the cases of one they run in the same time. *Three candidates* is the time of three against one.
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
from ci_autotest.config import Candidate
from ci_autotest.run.messages import Discover, Discovered, Hello, RunCases, TestInfo
from ci_autotest.run.process import Limits, WorkerProcess

ROUNDS = 12
CASES = 3000
NAMES = ("torch", "second", "third")
GOALS = {"isolation": 1.03, "two workers": 1.8, "three candidates": 2.1, "add cases/s on one worker": 0}


def started() -> tuple[WorkerProcess, TestInfo]:
    """Return a worker that is ready, and the test of add."""
    worker = WorkerProcess(os.environ, Limits(60.0))
    hello = Hello(
        root=str(HERE), folders=[], seed=0, strictness="tolerance", reference_device="cpu",
        candidates=[Candidate(name=name, backend="torch") for name in NAMES], tolerances=[],
    )  # fmt: skip
    worker.ask(hello)
    found = worker.ask(Discover("bodies.py"))
    assert isinstance(found, Discovered), found
    return worker, next(test for test in found.tests if test.name == "add")


def timed(workers: list[WorkerProcess], test: TestInfo, names: tuple[str, ...] = NAMES[:1]) -> float:
    """Return the seconds that workers take for the same cases each, at the same time."""
    request = RunCases(test=test, cases=list(range(CASES)), candidates=list(names))
    with ThreadPoolExecutor(len(workers)) as pool:
        begun = time.perf_counter()
        done = list(pool.map(lambda worker: list(worker.exchange(request)), workers))
        spent = time.perf_counter() - begun
    parts: list[Any] = [part for each in done for part in each]
    for name in names:
        aligned = sum(part.aligned.get(name, 0) for part in parts)
        assert aligned == CASES * len(workers), f"{aligned} cases are aligned on {name}"
    return spent


def main() -> int:
    """Print the figures; the status is how many goals are missed."""
    torch.set_num_threads(1)
    dispatcher, tests, parts = make_bench()
    (one, test), (two, _) = started(), started()
    seen: dict[str, list[float]] = {name: [] for name in GOALS}
    try:
        for worker in (one, two):
            timed([worker], test)
        ours(dispatcher, tests["add"], list(range(CASES)), parts)
        for _ in range(ROUNDS):
            here = ours(dispatcher, tests["add"], list(range(CASES)), parts)
            alone = timed([one], test)
            both = timed([one, two], test)
            three = timed([one], test, NAMES)
            again = timed([one], test)
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

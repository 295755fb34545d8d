"""CPU time of each row of the schedule: of the shipped suite with all rows, and without one of them.

Twenty cases of each test of the suite run in one worker, in this process, on torch as candidate; everything is warm.
Each row has pairs of runs, with all rows and without it, in turns; its share is what is saved without it. One test in
four is run, so that the two runs of a pair are near to each other.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from typing import Any

import torch

from benchmarks.suite_ratio import CASES
from ci_autotest.discovery import families
from ci_autotest.kinds import TorchCandidate
from ci_autotest.run.messages import Discover, Hello, RunCases
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker.dispatch import Dispatcher
from ci_autotest.run.worker.memory import spare_memory
from ci_autotest.run.worker.tests import SUITE
from ci_autotest.values.schedule import SCHEDULE, RowName

ROUNDS = 7
EVERY = 4
#: Rows that a run can do without; the suite on torch asks for no others.
ROWS = (RowName.SEQUENCE, RowName.SERIES, RowName.REPEAT, RowName.REPEAT_OF_SEQUENCE, RowName.GUARD)


def made() -> tuple[Dispatcher, list[Any]]:
    """Return a worker's dispatcher with the tests of the suite."""
    dispatcher = Dispatcher(ProgressBeacon.create(), lambda _: None)
    dispatcher.answer(
        Hello(
            root=".", folders=[], seed=0, strictness="tolerance", reference_device="cpu", tolerances=[],
            candidates=[TorchCandidate(name="torch")],
        )
    )  # fmt: skip
    answers: list[Any] = [dispatcher.answer(Discover(f"{SUITE}{family}")) for family in families()]
    return dispatcher, [test for answer in answers for test in answer.tests]


def spent(dispatcher: Dispatcher, tests: list[Any]) -> float:
    """Return the CPU seconds of twenty cases of each test, case 0 apart, as a run asks for them."""
    begun = time.process_time()
    for test in tests:
        for cases in ([0], list(range(1, CASES))):
            dispatcher.answer(RunCases(test=test, cases=cases, candidates=["torch"]))
    return time.process_time() - begun


def without(name: RowName, dispatcher: Dispatcher, tests: list[Any]) -> float:
    """Return the CPU seconds without a row."""
    row = SCHEDULE[name]
    SCHEDULE[name] = row._replace(asks=lambda _: False)
    try:
        return spent(dispatcher, tests)
    finally:
        SCHEDULE[name] = row


def main() -> int:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of torch itself, about operators that will change
    dispatcher, tests = made()
    tests = tests[::EVERY]
    spare_memory()
    spent(dispatcher, tests)
    print(f"{len(tests)} tests at {CASES} cases")
    print("row                   share of the time  (least to most)")
    for name in ROWS:
        shares = []
        for number in range(ROUNDS):
            # In turns, because a machine may become slower or faster meanwhile.
            if number % 2:
                part, whole = without(name, dispatcher, tests), spent(dispatcher, tests)
            else:
                whole, part = spent(dispatcher, tests), without(name, dispatcher, tests)
            shares.append(1 - part / whole)
        print(f"{name.name.lower():20}  {statistics.median(shares):16.1%}  ({min(shares):.1%} to {max(shares):.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

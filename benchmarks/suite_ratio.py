"""CPU time of a run of the shipped suite, relative to executing its programs twice by hand.

Ours is ``ci-autotest run builtin:suite --candidate torch --cases 20`` on one worker: the CPU time of parent and worker,
less that of a run of one case of one test, which also starts a worker, imports torch and writes a report. By hand, the
programs of the same cases run twice as Python functions: construct modules, clone inputs, forward,
``torch.autograd.backward``, and no comparison. Data and cotangents are made before the clock starts. Both use one
thread, in alternating rounds.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ci_autotest.alignment.cases import differentiate
from ci_autotest.backends.body_source import python_function
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.input_copies import CPU, place
from ci_autotest.backends.torch_steps import TorchSteps
from ci_autotest.discovery import families
from ci_autotest.host.steps import execute_step
from ci_autotest.program.codegen import inputs
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.record.attempt import Attempts
from ci_autotest.run.worker.tests import SUITE, Library
from ci_autotest.values.case import ATTEMPTS_PER_CASE, test_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.backends.trace import Attempt

CASES = 20
ROUNDS = 5
#: Highest ratio that a run should have.
GOAL = 2.0


def attempts() -> Iterator[Attempt]:
    """Yield the accepted attempt of every case of the suite."""
    library, maker = Library(Path.cwd()), Attempts()
    for test in [test for family in families() for test in library.tests(f"{SUITE}{family}")]:
        declaration, call = library.find(test)
        key = test_key(0, test.id)
        for case in range(declaration.n or CASES):
            tried = (
                maker.attempt(declaration, call, (key, test.id, case, number)) for number in range(ATTEMPTS_PER_CASE)
            )
            accepted = next((attempt for attempt in tried if attempt.refused is None), None)
            if accepted is not None:
                yield accepted


def by_hand(attempt: Attempt) -> Callable[[], None]:
    """Return a function that executes a program once: forward and, unless torch refuses that, backward."""
    differentiate(attempt, TorchBackend())
    program, sources = attempt.program, attempt.sources
    function, taken = python_function(program, CPU), [index for _, index in inputs(program)]
    binding = TorchSteps().binding(sources)
    weights = list(attempt.cotangents.items()) if attempt.trace.backward_failure is None else []
    specs = {index: step for index, step in enumerate(program.steps) if step.op == PLACEHOLDER}

    def execute() -> None:
        values: list[Any] = []
        for step in program.setup:
            values.append(execute_step(step, values, binding))
        found = function(
            *[
                place(sources[specs[index].target], specs[index].args[0], CPU) if index in specs else values[index]
                for index in taken
            ]
        )
        roots = [(found[position], weight.clone()) for position, weight in weights]
        if roots:
            torch.autograd.backward(*map(list, zip(*roots, strict=True)))

    return execute


def ours(tests: str, cases: int) -> float:
    """Return the CPU seconds of a run, its worker included."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [
                sys.executable, "-m", "ci_autotest", "run", tests, "--candidate", "torch", "--cases", str(cases),
                "--workers", "1", "--output", "report",
            ],
            cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, check=False,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert not done.returncode, done.stderr.decode()[-2000:]
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def raw(programs: list[Callable[[], None]]) -> float:
    """Return the CPU seconds of two executions of each program."""
    begun = time.process_time()
    for execute in programs:
        execute()
        execute()
    return time.process_time() - begun


def main() -> int:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of torch itself, about operators that will change
    programs = list(map(by_hand, attempts()))
    raw(programs)
    ratios, controls, spent = [], [], []
    for _ in range(ROUNDS):
        first = raw(programs)
        mine = ours("builtin:suite", CASES) - ours("builtin:suite/activations::celu", 1)
        second = raw(programs)
        ratios.append(2 * mine / (first + second))
        controls.append(first / second)
        spent.append((mine, (first + second) / 2))
    ratio, control = statistics.median(ratios), statistics.median(controls)
    mine, theirs = (statistics.median(column) for column in zip(*spent, strict=True))
    void = not 0.97 <= control <= 1.03
    missed = ratio > GOAL
    note = "  VOID: raw against raw is off" if void else "  MISSED" if missed else ""
    print(f"{len(programs):,} programs at {CASES} cases per test")
    print("suite ratio  (least to most)   goal   run beyond start-up s   twice by hand s   raw/raw")
    print(
        f"{ratio:11.2f}  ({min(ratios):.2f} to {max(ratios):.2f})  {GOAL:6.1f}  {mine:22.2f}  {theirs:16.2f}  "
        f"{control:8.3f}{note}"
    )
    return missed or void


if __name__ == "__main__":
    sys.exit(main())

"""Cost of a host per case, and cases per second on OneFlow beside OneFlow's own harness.

The cost of a host is measured on the same cases, once on the backend ``torch`` in this process and once on ``module:
torch`` in a host with this interpreter. On OneFlow both harnesses run complete cases of the same sizes, forward and
backward, in alternating blocks of one run. OneFlow's harness runs in its own process and checks values and gradients,
with and without its graph check. Without the environments of ``make candidates`` this part is skipped with a message.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.overhead import HERE, ours
from ci_autotest.kinds import AnyCandidate, ModuleCandidate, SubstituteCandidate, TorchCandidate
from ci_autotest.run.messages import CasesDone, Discover, Hello, TestInfo
from ci_autotest.run.progress_beacon import ProgressBeacon
from ci_autotest.run.worker.dispatch import Dispatcher
from ci_autotest.run.worker.memory import spare_memory

ENVIRONMENTS = Path(__file__).parents[1] / ".venvs"
ONEFLOW = ENVIRONMENTS / "oneflow" / "bin" / "python"
CASES = 96
ROUNDS = 10
#: Goal: microseconds that a host may cost per case of a small operator.
HOST_US = 300.0
#: Goals: cases per second relative to OneFlow's harness, without and with its graph check.
LIKE_FOR_LIKE, DEFAULT = 5.0, 15.0
THEIR_CASES = 20
#: The times of OneFlow's harness vary twofold between rounds. With the graph check a round takes ten times as long.
THEIR_ROUNDS = 12
THEIR_GRAPH_ROUNDS = 4


def dispatcher_of(candidates: list[AnyCandidate]) -> tuple[Dispatcher, dict[str, TestInfo], list[CasesDone]]:
    """Return a dispatcher with these candidates, the measured tests, and a list that receives partial responses."""
    spare_memory()  # a worker does the same
    parts: list[CasesDone] = []
    dispatcher = Dispatcher(ProgressBeacon.create(), parts.append)
    ready = dispatcher.answer(
        Hello(
            root=str(HERE), folders=[], seed=0, strictness="tolerance", reference_device="cpu", candidates=candidates,
            tolerances=[],
        )
    )  # fmt: skip
    missing = [each.reason for each in ready.candidates if not each.available]
    assert not missing, missing
    found = dispatcher.answer(Discover("hosted.py"))
    return dispatcher, {test.name: test for test in found.tests}, parts


def host_costs() -> int:
    """Print the cost of a host per case; return the number of missed goals."""
    here, there = TorchCandidate(name="torch"), ModuleCandidate(name="hosted", module="torch")
    replace = {"torch.abs": "torch.abs", "torch.matmul": "torch.matmul"}
    kernels = SubstituteCandidate(name="torch", replace=replace)
    isolated = SubstituteCandidate(name="hosted", replace=replace, isolated=True)
    print("torch in a host, relative to torch; then a substitute with isolated: true, relative to the same without")
    return _costs(here, there) + _costs(kernels, isolated)


def _costs(here: AnyCandidate, there: AnyCandidate) -> int:
    """Print how much more the second of two candidates costs than the first."""
    dispatcher, tests, parts = dispatcher_of([here, there])
    print("a host             in process us  in a host us  cost us (quartiles)     goal  CPU time of that")
    missed = 0
    for name in ("absolute", "matmul"):
        cases = list(range(CASES))
        costs, near, far = [], [], []
        busy = {"torch": 0.0, "hosted": 0.0}
        for number in range(ROUNDS + 1):
            spent = {}
            for which in ("torch", "hosted") if number % 2 else ("hosted", "torch"):
                begun = _processor_s(dispatcher)
                spent[which] = ours(dispatcher, tests[name], cases, parts, which) / CASES * 1e6
                busy[which] += (_processor_s(dispatcher) - begun) / CASES / (ROUNDS + 1) * 1e6
            if number:  # the first round is the warm-up
                costs.append(spent["hosted"] - spent["torch"])
                near.append(spent["torch"])
                far.append(spent["hosted"])
        low, median, high = statistics.quantiles(costs, n=4)
        missed += median > HOST_US
        print(
            f"{name:17} {statistics.median(near):14.1f}  {statistics.median(far):12.1f}  "
            f"{median:7.1f} ({low:.0f} to {high:.0f})  {HOST_US:7.0f}"
            f"  {busy['hosted'] - busy['torch']:7.1f}{'  MISSED' if median > HOST_US else ''}"
        )
    return missed


def _processor_s(dispatcher: Dispatcher) -> float:
    """Return the CPU time of this process and its host so far, which other processes on the machine do not change."""
    host = dispatcher.worker_context.backends["hosted"]._host._process.pid
    fields = Path(f"/proc/{host}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Theirs:
    """OneFlow's own harness, in its own process."""

    def __init__(self, packages: Path) -> None:
        """Start it with the packages of torch's environment after its own."""
        self._process = subprocess.Popen(
            [str(ONEFLOW), str(Path(__file__).with_name("oneflow_harness.py")), str(packages)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def spent_s(self, name: str, mode: str) -> float:
        """Return the seconds that its cases took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name} {mode} {THEIR_CASES}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def on_oneflow(packages: Path) -> int:
    """Print the cases per second of both harnesses on OneFlow; return the number of missed goals."""
    flow = ModuleCandidate(name="oneflow", module="oneflow", python=str(ONEFLOW))
    dispatcher, tests, parts = dispatcher_of([flow])
    theirs = Theirs(packages)
    print("OneFlow, cases/s   ours  theirs, no graph  ratio   goal  theirs, default  ratio   goal")
    missed = 0
    try:
        for name in ("absolute", "matmul", "conv2d"):
            like, default, rates, graph_rates = [], [], [], []
            for number in range(THEIR_ROUNDS + 1):
                mine = ours(dispatcher, tests[name], list(range(CASES)), parts, "oneflow") / CASES
                eager = theirs.spent_s(name, "eager") / THEIR_CASES
                if number:  # the first round is the warm-up
                    like.append(eager / mine)
                    rates.append((1 / mine, 1 / eager))
                if number <= THEIR_GRAPH_ROUNDS:
                    graph = theirs.spent_s(name, "graph") / THEIR_CASES
                    default.append(graph / mine)
                    graph_rates.append(1 / graph)
            ratios = statistics.median(like), statistics.median(default[1:])
            mine_s, eager_s = (statistics.median(column) for column in zip(*rates, strict=True))
            graph_s = statistics.median(graph_rates[1:])
            wrong = (ratios[0] < LIKE_FOR_LIKE) + (ratios[1] < DEFAULT)
            missed += wrong
            print(
                f"{name:17} {mine_s:5.0f}  {eager_s:16.1f}  {ratios[0]:5.1f}  {LIKE_FOR_LIKE:5.1f}  {graph_s:15.1f}  "
                f"{ratios[1]:5.1f}  {DEFAULT:5.1f}{'  MISSED' if wrong else ''}"
            )
    finally:
        theirs.close()
    return missed


def main() -> int:
    """Print both parts; return the number of missed goals."""
    os.environ["OMP_NUM_THREADS"] = "1"  # for hosts, as a worker sets it, and for OneFlow's harness
    torch.set_num_threads(1)
    missed = host_costs()
    packages = next((ENVIRONMENTS / "torch-1.12").glob("lib/python3.10/site-packages"), None)
    if not ONEFLOW.exists() or packages is None:
        print("skipped: OneFlow beside its own harness, because that needs .venvs/oneflow and .venvs/torch-1.12")
        return missed
    return missed + on_oneflow(packages)


if __name__ == "__main__":
    sys.exit(main())

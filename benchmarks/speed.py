"""Judgement of `--speed`: alarms on equal code, and planted slowdowns that are found, at a load that is made here.

A kernel with a planted slowdown spends a share of its own time once more. A difference counts as in a run: if three
processes show it. ``python -m benchmarks.speed equal|planted COUNT LOAD [SHARE]``: comparisons (of equal code a forward
and a backward pass are two), busy processes beside it, and the share of the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from ci_autotest.backends.body_function import begun, prepared
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.record.attempt import Attempts
from ci_autotest.record.declaration import Declaration
from ci_autotest.record.draw.profiles import LARGE_SHAPES
from ci_autotest.speed.paired_ratio import combined, is_to_repeat, paired_ratio, speed_verdict
from ci_autotest.speed.timing import Side, measured
from ci_autotest.testing import random_tensor
from ci_autotest.testing import torch as recorded
from ci_autotest.values.case import test_key
from ci_autotest.values.speed import SpeedResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_F = torch.nn.functional
#: Operator, and how it is called on a tensor of rows.
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "torch.nn.functional.softmax": lambda f, x: f(x, 1),
    "torch.nn.functional.log_softmax": lambda f, x: f(x, 1),
    "torch.nn.functional.gelu": lambda f, x: f(x),
    "torch.nn.functional.silu": lambda f, x: f(x),
    "torch.exp": lambda f, x: f(x),
    "torch.tanh": lambda f, x: f(x),
    "torch.sigmoid": lambda f, x: f(x),
    "torch.matmul": lambda f, x: f(x, x),
    "torch.add": lambda f, x: f(x, x),
    "torch.sum": lambda f, x: f(x, 1),
}
_SPIN = "while True: pass"
_STREAM = "import numpy as n\na = n.zeros(1 << 22)\nwhile True: a += 1"


def _resolved(module: Any, path: str) -> Any:
    for name in path.split(".")[1:]:
        module = getattr(module, name)
    return module


def kernel(name: str, share: float) -> Callable[..., Any]:
    """Return torch's own operator behind a function; with a share, it spends that share of its time once more."""
    own = _resolved(torch, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        begun_s = time.perf_counter()
        found = own(*args, **kwargs)
        if not share:
            return found
        now_s = time.perf_counter()
        end_s = now_s + share * (now_s - begun_s)
        while time.perf_counter() < end_s:
            pass
        return found

    return run


def once(name: str, share: float, seed: int, attempts: Attempts) -> tuple[SpeedResult, ...]:
    """Measure a kernel as a worker does."""
    call = OPERATORS[name]

    def body() -> Any:
        return call(_resolved(recorded, name), random_tensor(ndim=2))

    key = test_key(seed, name)
    attempt = attempts.attempt(Declaration(body), body, (key, name, 0, 0), profile=LARGE_SHAPES)
    reference, candidate = TorchBackend(), SubstituteBackend({})
    candidate.functions = {operator_of(name): kernel(name, share)}
    trace = begun(attempt.program, snapshots=False)
    prepared(reference.steps, attempt.program, attempt.sources, trace)
    own = candidate.body_calls(attempt.program, trace.values)
    against = own.against or reference.body_calls(attempt.program, trace.values).own
    sides = Side(own.own, attempt.cotangents), Side(against, attempt.cotangents)
    found = measured(*sides, seed, lambda: None)
    return tuple(
        SpeedResult(test=name, candidate="kernel", case=0, phase=phase, **fields(pairs))
        for phase, pairs in found._asdict().items()
    )


def fields(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """Return the ratio and the verdict of paired times."""
    ratio = paired_ratio(pairs)
    return {"ratio": ratio, "verdict": speed_verdict(ratio, median(pair[1] for pair in pairs))}


def again(name: str, share: float, seed: int) -> tuple[SpeedResult, ...]:
    """Measure a kernel in a fresh process."""
    words = [sys.executable, "-m", "benchmarks.speed", "one", name, str(share), str(seed)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return msgspec.json.decode(done.stdout, type=tuple[SpeedResult, ...])


@contextmanager
def load(count: int) -> Iterator[None]:
    """Keep processes busy: half of them compute, half stream memory."""
    busy = [subprocess.Popen([sys.executable, "-c", _STREAM if i % 2 else _SPIN]) for i in range(count)]
    try:
        yield
    finally:  # Not if this process is killed: end the busy ones by their ids then.
        for process in busy:
            process.kill()
            process.wait()


def judged(name: str, share: float, seed: int, attempts: Attempts) -> tuple[tuple[SpeedResult, ...], bool]:
    """Return the results as a run has them, and whether the first measurement alone said that something is slower."""
    found = [once(name, share, seed, attempts)]
    is_suspect = any(item.verdict == "slower" for item in found[0])
    while is_to_repeat(found):
        found.append(again(name, share, seed + len(found)))
    return combined(found), is_suspect


def main(kind: str, count: int, busy: int, share: float) -> int:
    """Print alarms on equal code, or how many planted slowdowns were found."""
    attempts, begun_s = Attempts(), time.monotonic()
    counts = {"slower": 0, "faster": 0, "same": 0, "cannot_tell": 0}
    first, done, medians, widths = 0, 0, [], []
    with load(busy):
        seed = 0
        while done < count:
            name = list(OPERATORS)[seed % len(OPERATORS)]
            results, is_suspect = judged(name, share, seed, attempts)
            first += is_suspect
            for item in results if kind == "equal" else results[:1]:
                done += 1
                counts[item.verdict] += 1
                medians += [item.ratio.median] if item.ratio else []
                widths += [item.ratio.high / item.ratio.low] if item.ratio else []
                if kind == "equal" and item.verdict in {"slower", "faster"}:
                    print(f"alarm: {name} {item.phase} {item.verdict} {item.ratio}", flush=True)
                if kind == "planted" and item.verdict != "slower":
                    print(f"missed: {name} {item.verdict} {item.ratio}", flush=True)
            seed += 1
            if seed % 50 == 0:
                print(f"{done} of {count}: {counts}", flush=True)
    average = os.getloadavg()[0]
    print(
        f"{kind}, share {share}, {busy} busy processes, load average {average:.1f}: {done} comparisons in "
        f"{time.monotonic() - begun_s:.0f} s: {counts}; suspected at first {first}; "
        f"median ratio {median(medians):.3f}, median width of the interval {median(widths):.3f}"
    )
    return counts["slower"] if kind == "equal" else counts["same"] + counts["cannot_tell"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    words = sys.argv[1:]
    if words[0] == "one":
        results = once(words[1], float(words[2]), int(words[3]), Attempts())
        print(json.dumps(msgspec.to_builtins(results)))
        sys.exit(0)
    sys.exit(bool(main(words[0], int(words[1]), int(words[2]), float(words[3]) if len(words) > 3 else 0.0)))

"""The oracle's modes and torch's compiler: it is not imported for them, and it stays out of them where it is in use."""

from __future__ import annotations

import subprocess
import sys

import torch as real

from ci_autotest.alignment.blame.random_rounding import RandomRounding
from tests.projects import environment

JUDGES = """
import sys
from ci_autotest import random_tensor, torch
from tests.engine import substitute, tried

verdict = tried(lambda: torch.exp(random_tensor(2)), substitute(exp=lambda x: x.exp() * 1.01))
print(verdict.outcome, verdict.blame)
verdict = tried(
    lambda: torch.nn.functional.layer_norm(random_tensor(2, dim1=8), (8,)),
    substitute(layer_norm=lambda x, shape, *_: x - x.mean(-1, keepdim=True)),
)
print(verdict.outcome, verdict.blame)
verdict = tried(
    lambda: torch.nn.functional.huber_loss(random_tensor(2, 3, 4), random_tensor(2, 3, 4)),
    substitute(huber_loss=lambda x, y, **_: (x - y).abs().mean()),
)
print(verdict.outcome, verdict.blame)
print("torch._dynamo" in sys.modules)
"""


def test_judge__operators_that_torch_decomposes_in_python_are_wrong__imports_no_compiler():
    done = subprocess.run(
        [sys.executable, "-c", JUDGES], env=environment(None), capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == [*["misaligned", "candidate"] * 3, "False"]


def rounded(function, value):
    with RandomRounding(24, seed=1):
        return function(value)


def test_mode__body_that_is_compiled__is_rounded_as_it_is_eagerly_and_not_traced(capfd):
    def body(value):
        return real.exp(value * 3.3).sum()

    value = real.linspace(0, 1, 8, dtype=real.float64)
    real._dynamo.reset()
    real._dynamo.utils.counters.clear()  # another test of this process may have compiled
    compiled = real.compile(body, backend="aot_eager")
    assert rounded(compiled, value) == rounded(body, value) != body(value)
    assert real._dynamo.utils.counters["frames"]["total"] == 0
    assert capfd.readouterr().err == ""

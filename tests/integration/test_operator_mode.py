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
verdict = tried(
    lambda: torch.nn.functional.cross_entropy(random_tensor(2, 4, 3), torch.tensor([0, 1, 2, 0])),
    substitute(cross_entropy=lambda x, y, **_: x.log_softmax(1).gather(1, y[:, None]).sum()),
)
print(verdict.outcome, verdict.blame)
print("torch._dynamo" in sys.modules)
"""
#: PyTorch itself imports Dynamo for this without what is done before.
DERIVES = """
import sys
import torch
from ci_autotest.backends.first_use import prepare

prepare()
x = torch.rand(1, 288, 2, 2, requires_grad=True)
y = torch.nn.functional.lp_pool2d(x, 2, 2)
(first,) = torch.autograd.grad(y, x, y, create_graph=True)
torch.autograd.grad(first, x, torch.ones_like(first))
print("torch._dynamo" in sys.modules)
held = [function for finder in sys.meta_path for function in getattr(finder, "_hidden", ())]
assert held and all("__dynamo_disable" in vars(function) for function in held)
torch.compile(lambda x: x.exp(), backend="eager")(torch.rand(2))
print("torch._dynamo" in sys.modules, sum(vars(f).get("__dynamo_disable") is f for f in held))
"""


def test_judge__operators_that_torch_decomposes_in_python_are_wrong__imports_no_compiler():
    done = subprocess.run(
        [sys.executable, "-c", JUDGES], env=environment(None), capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == [*["misaligned", "candidate"] * 4, "False"]


def test_prepare__second_derivative_that_torch_computes_in_python__imports_no_compiler_and_marks_go_when_it_comes():
    done = subprocess.run(
        [sys.executable, "-c", DERIVES], env=environment(None), capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.splitlines() == ["False", "True 0"]


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

"""Any module of the user's is traced into a program: its parameters are leaves, its buffers inputs, its steps torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real
from torch import nn

from ci_autotest import random_tensor
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.fx.backend import FxBackend
from ci_autotest.program.ir import PLACEHOLDER
from tests.engine import judged, record, substitute


def tensor(*sizes: int, **how: Any) -> Any:
    return random_tensor(len(sizes), *sizes, **how)


class Residual(nn.Module):
    """Convolution, statistics, a buffer, an in-place operator, dropout, a list of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.rectifier, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.3)
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])
        self.register_buffer("scale", real.full((3, 1, 1), 2.0))

    def forward(self, x: Any) -> Any:
        y = self.rectifier(self.norm(self.convolution(x))) * self.scale
        for layer in self.layers:
            y = layer(y)
        return x + (self.drop(y) if y.shape[0] > 1 else y)


class Controlled(nn.Module):
    """A loop, a branch on a value, a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        for _ in range(3):
            x = self.layer(x)
            if x.norm() > 0.1:
                x = x / x.norm()
        return {"out": x, "mean": x.mean()}


MODULES = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)), lambda m: m(tensor(3, 4))),
    "residual": (Residual, lambda m: m(tensor(2, 3, 6, 6))),
    "control flow": (Controlled, lambda m: m(tensor(2, 4))),
    "lstm": (lambda: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), lambda m: m(tensor(2, 5, 3))[0]),
    "gru cell": (lambda: nn.GRUCell(3, 4), lambda m: m(tensor(2, 3))),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), lambda m: m(tensor(2, 5, 8))),
    "transformer": (
        lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True), lambda m: m(tensor(2, 5, 8), tensor(2, 3, 8)),
    ),
    "embedding bag": (lambda: nn.EmbeddingBag(10, 4), lambda m: m(tensor(3, 4, low=0, high=10, dtype=int))),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), lambda m: m(tensor(2, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_module__traced__is_a_program_with_its_parameters_as_leaves(name: str):
    make, use = MODULES[name]
    module = make()
    attempt = record(lambda: use(module))
    leaves = [step for step in attempt.program.body if step.op == PLACEHOLDER and step.args[0].requires_grad]
    assert len(leaves) >= sum(1 for step in leaves if step.name == "x") + 1
    assert judged(attempt, TorchBackend()).verdict.outcome == "aligned"
    again = record(lambda: use(module))
    assert judged(again, FxBackend("")).verdict.outcome == "aligned"


def test_module__parameters__get_their_gradients():
    module = nn.Linear(3, 2)
    attempt = record(lambda: module(tensor(4, 3)))
    verdict = judged(attempt, TorchBackend()).verdict
    assert verdict.outcome == "aligned"
    shapes = {attempt.program.steps[key].name: tuple(found.shape) for key, found in attempt.trace.gradients.items()}
    assert shapes["parameter"] in {(2, 3), (2,)}
    assert module.weight.grad is None


def test_module__kernel_inside_it_that_is_wrong__is_found():
    module = Residual()
    wrong = substitute(batch_norm=lambda x, *_args, **_kwargs: x * 1.0)
    verdict = judged(record(lambda: module(tensor(2, 3, 6, 6))), wrong).verdict
    assert (verdict.outcome, verdict.operator) == ("misaligned", "torch.nn.functional.batch_norm")


def test_module__used_twice__has_its_parameters_once():
    module = nn.Linear(4, 4)
    program = record(lambda: module(module(tensor(2, 4)))).program
    assert sum(step.op == PLACEHOLDER for step in program.body) == 3


def test_captured_tensor__written_to_by_plain_torch__is_captured_anew():
    def body() -> Any:
        x, held = tensor(3), real.zeros(3)
        first = x + held
        held.add_(1)
        return first, x + held

    attempt = record(body)
    first, second = (attempt.trace.values[ref.index] for ref in attempt.program.body[-1].args)
    assert real.equal(second, attempt.sources["t0"] + 1)
    assert real.equal(first, attempt.sources["t0"])

"""Nothing that a body did may vanish: what is written where nothing is recorded breaks the test, and says what it was."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch as real
from torch import nn

from ci_autotest import random_tensor, torch
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.errors import AuthorError
from tests.engine import judged, record


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(real.ones(3))
        self.shift = nn.Parameter(real.zeros(3))

    def forward(self, x: Any) -> Any:
        return x * self.weight + self.shift


def gone_back() -> tuple[Scale, Any]:
    module = Scale()
    loss = module(random_tensor(2, 4, 3)).sum()
    loss.backward()
    return module, loss


def add(tensor: real.Tensor) -> None:
    with real.no_grad():
        tensor.add_(1)


def through_numpy(tensor: real.Tensor) -> None:
    tensor.detach().numpy()[0] += 1


def update(module: Scale) -> None:
    with real.no_grad():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad  # noqa: PLW2901 - in place


class OwnOptimizer:
    """What is no optimizer of torch's."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = list(parameters)

    def step(self) -> None:
        for parameter in self.parameters:
            parameter.data.add_(parameter.grad, alpha=-0.1)


def clamped_step(module: Scale) -> None:
    optimizer = real.optim.SGD(module.parameters(), lr=0.1)
    module.weight.grad.data.clamp_(-0.01, 0.01)
    optimizer.step()
    optimizer.zero_grad()


def hooked_step(module: Scale) -> None:
    optimizer = real.optim.SGD(module.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: module.weight.data.zero_())
    optimizer.step()


WRITES = {
    "an update by hand": update,
    "an optimizer of one's own": lambda module: OwnOptimizer(module.parameters()).step(),
    "in place, without a gradient": lambda module: add(module.weight),
    "through .data": lambda module: module.weight.data.mul_(2),
    "through .detach()": lambda module: module.weight.detach().mul_(2),
    "through numpy": lambda module: through_numpy(module.weight),
    "an element": lambda module: module.shift.data.__setitem__(0, 5.0),
    "copy_": lambda module: module.weight.data.copy_(real.zeros(3)),
    "nn.init": lambda module: nn.init.uniform_(module.weight),
    "load_state_dict": lambda module: module.load_state_dict(
        {name: value + 1 for name, value in module.state_dict().items()}
    ),
    "_foreach": lambda module: real._foreach_mul_([p.data for p in module.parameters()], 2) or add(module.weight),
    "clip_grad_norm_": lambda module: nn.utils.clip_grad_norm_(module.parameters(), 0.01),
    "clip_grad_value_": lambda module: nn.utils.clip_grad_value_(module.parameters(), 0.01),
    "a gradient scaled": lambda module: module.weight.grad.mul_(0.5),
    "a gradient through .data": lambda module: module.weight.grad.data.zero_(),
    "a gradient through numpy": lambda module: through_numpy(module.weight.grad),
    "a gradient through .data, then used": lambda module: (module.weight.grad.data.zero_(), module.weight.grad + 1),
    "a gradient through .data, then an optimizer": lambda module: clamped_step(module),
    "a hook of an optimizer": lambda module: hooked_step(module),
    "a gradient assigned": lambda module: setattr(module.weight, "grad", real.ones(3)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("is_used_again", [False, True], ids=["at the end", "before another use"])
def test_body__writes_where_nothing_is_recorded__is_broken(write, is_used_again):
    def body() -> Any:
        module, loss = gone_back()
        write(module)
        return module(random_tensor(2, 4, 3)) if is_used_again else loss

    with pytest.raises(AuthorError, match=re.escape("of the body's own, float32[3], was written to where nothing was")):
        record(body)


def test_body__reads_gradients_of_its_own_parameters__they_are_recorded():
    def body() -> Any:
        module, _ = gone_back()
        return module.weight.grad, module.shift.grad

    attempt = record(body)
    shown = [attempt.trace.values[ref.index] for ref in attempt.program.body[-1].args]
    x = attempt.sources["t0"]
    assert real.equal(shown[0], x.sum(0))
    assert real.equal(shown[1], real.full((3,), 4.0))
    assert judged(attempt, TorchBackend()).verdict.outcome == "aligned"


def test_body__clears_gradients_between_two_passes__as_torch_does():
    def body() -> Any:
        module, _ = gone_back()
        module.zero_grad()
        module(random_tensor(2, 4, 3)).sum().backward()
        return module.weight.grad

    attempt = record(body)
    given = attempt.trace.values[attempt.program.body[-1].args[0].index]
    second = [source for key, source in attempt.sources.items() if source.shape == (4, 3)][1]
    assert real.equal(given, second.sum(0))


def test_tensor_without_gradient__written_through_data__is_an_input_of_its_own_each_time():
    def body() -> Any:
        x, held = random_tensor(1, 3), real.ones(3)
        first = x * held
        held.data.zero_()
        return first, x * held

    attempt = record(body)
    shown = [attempt.trace.values[ref.index] for ref in attempt.program.body[-1].args]
    assert real.equal(shown[0], attempt.sources["t0"])
    assert not shown[1].any()


@pytest.mark.parametrize(
    "body",
    [
        lambda: Scale()(random_tensor(2, 4, 3)),
        lambda: gone_back()[1],
        lambda: torch.exp(random_tensor(2, 4, 3)) * real.ones(3).mul_(2),
        lambda: nn.BatchNorm1d(3)(random_tensor(2, 4, 3)),
    ],
    ids=["no backward pass", "a backward pass", "a constant in the making", "running statistics"],
)
def test_body__writes_nothing_that_counts__is_recorded(body):
    assert record(body).refused is None


def test_array_of_another_library__outputs_rest_on_it_alone__nothing_is_compared():
    attempt = record(lambda: torch.from_numpy(np.tanh(random_tensor(1, 3).detach().numpy())) * 2)
    assert attempt.has_outside
    assert "computed outside of the recorded steps" in attempt.untested


def test_array_of_another_library__beside_something_recorded__is_named():
    def body() -> Any:
        x = random_tensor(1, 3)
        return torch.from_numpy(np.tanh(x.detach().numpy())) * x

    attempt = record(body)
    assert (attempt.has_outside, attempt.untested) == (True, "")


def test_array_that_no_value_left_for__is_an_input_like_others():
    attempt = record(lambda: torch.from_numpy(np.ones(3, np.float32)) * random_tensor(1, 3))
    assert not attempt.has_outside

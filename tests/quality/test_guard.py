"""Nothing that a body did may vanish: what is written where nothing is recorded breaks the test, and says what it was."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest
import torch as real
from torch import nn

from ci_autotest import random_tensor, torch
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.operators.identity import operator_of
from ci_autotest.backends.substitute.backend import SubstituteBackend
from ci_autotest.errors import AuthorError, UnsupportedReason
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


def clipped_step(module: Scale) -> None:
    optimizer = real.optim.Adam(module.parameters(), lr=0.1)
    nn.utils.clip_grad_norm_(module.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()


def hooked_step(module: Scale) -> None:
    optimizer = real.optim.SGD(module.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: module.weight.data.zero_())
    optimizer.step()


def returned_hook(module: Scale) -> None:
    optimizer = real.optim.SGD(module.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: through_numpy(module.weight))
    optimizer.step()


#: What a body may do to parameters and gradients of its own: each is recorded, as torch does it.
RECORDED = {
    "an update by hand": update,
    "an optimizer of one's own": lambda module: OwnOptimizer(module.parameters()).step(),
    "in place, without a gradient": lambda module: add(module.weight),
    "through .data": lambda module: module.weight.data.mul_(2),
    "through .detach()": lambda module: module.weight.detach().mul_(2),
    "an element": lambda module: module.shift.data.__setitem__(0, 5.0),
    "copy_": lambda module: module.weight.data.copy_(real.full((3,), 7.0)),
    "load_state_dict": lambda module: module.load_state_dict(
        {name: value + 1 for name, value in module.state_dict().items()}
    ),
    "_foreach": lambda module: real._foreach_mul_([p.data for p in module.parameters()], 2) or add(module.weight),
    "_foreach of lists": lambda module: real._foreach_add_(
        [p.data for p in module.parameters()], [p.grad for p in module.parameters()], alpha=-0.5
    ),
    "clip_grad_norm_": lambda module: nn.utils.clip_grad_norm_(module.parameters(), 0.01),
    "clip_grad_norm_ of one": lambda module: nn.utils.clip_grad_norm_(module.weight, 0.01, norm_type=1.0),
    "clip_grad_norm_ without foreach": lambda module: nn.utils.clip_grad_norm_(
        module.parameters(), 1e-3, foreach=False
    ),
    "clip_grad_norm_ of inf": lambda module: nn.utils.clip_grad_norm_(module.parameters(), 0.01, float("inf")),
    "clip_grad_value_": lambda module: nn.utils.clip_grad_value_(module.parameters(), 0.01),
    "a gradient scaled": lambda module: module.weight.grad.mul_(0.5),
    "a gradient through .data": lambda module: module.weight.grad.data.zero_(),
    "a gradient through .data, then used": lambda module: (module.weight.grad.data.zero_(), module.weight.grad + 1),
    "a gradient through .data, then an optimizer": clamped_step,
    "a gradient clipped, then an optimizer": clipped_step,
    "a hook of an optimizer": hooked_step,
}
#: What nothing can record.
REFUSED = {
    "through numpy": lambda module: through_numpy(module.weight),
    "a gradient through numpy": lambda module: through_numpy(module.weight.grad),
    "a gradient assigned": lambda module: setattr(module.weight, "grad", real.ones(3)),
    "data assigned": lambda module: setattr(module.weight, "data", real.full((3,), 7.0)),
    "a storage filled": lambda module: module.weight.untyped_storage().fill_(1),
    "a hook of an optimizer through numpy": returned_hook,
}


@pytest.mark.parametrize("write", RECORDED.values(), ids=RECORDED)
def test_body__writes_to_its_own_parameters__is_recorded_as_torch_does_it(write):
    attempt = record(lambda: seen_of(write, random_tensor(2, 4, 3), random_tensor(2, 4, 3)))
    first, second = (source for source in attempt.sources.values() if source.shape == (4, 3))
    expected = seen_of(write, first, second)
    shown = [attempt.trace.values[ref.index] for ref in attempt.program.body[-1].args][: len(expected)]
    for one, other in zip(shown, expected, strict=True):
        real.testing.assert_close(one, other, rtol=0, atol=0)
    assert judged(attempt, TorchBackend()).verdict.outcome == "aligned"


def seen_of(write: Any, first: Any, second: Any) -> tuple[Any, ...]:
    """Return what a write leaves: a later forward, and parameters."""
    module = Scale()
    module(first).square().sum().backward()
    write(module)
    found = module(second)
    return found, module.weight.detach(), module.shift.detach()


@pytest.mark.parametrize("write", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("is_used_again", [False, True], ids=["at the end", "before another use"])
def test_body__writes_where_nothing_is_recorded__is_broken(write, is_used_again):
    def body() -> Any:
        module, loss = gone_back()
        write(module)
        return module(random_tensor(2, 4, 3)) if is_used_again else loss

    with pytest.raises(AuthorError, match=re.escape("of the body, float32[3], was changed by a write that was not")):
        record(body)


@pytest.mark.parametrize("write", ["update", "clip", "average"])
def test_candidate__is_wrong_in_what_a_body_writes__is_found(write):
    def body() -> Any:
        module, loss = gone_back()
        if write == "update":
            update(module)
        elif write == "clip":
            nn.utils.clip_grad_norm_(module.parameters(), 0.01)
            update(module)
        else:
            average = real.zeros(3)
            for _ in range(2):
                update(module)
                with real.no_grad():
                    average.lerp_(module.weight, 0.5)
        return loss

    operator = {"update": "sub", "clip": "vector_norm", "average": "lerp"}[write]
    name = "torch.linalg.vector_norm" if write == "clip" else f"torch.{operator}"
    function = real.linalg.vector_norm if write == "clip" else getattr(real.Tensor, f"{operator}_")
    backend = SubstituteBackend({})
    backend.functions = {operator_of(name): lambda *args, **how: function(*args, **how).mul_(3)}
    verdict = judged(record(body), backend).verdict
    assert (verdict.outcome, verdict.operator, verdict.blame) == ("misaligned", name, "candidate")


def averaged_by_hand(model: nn.Module, averages: dict[str, real.Tensor]) -> None:
    with real.no_grad():
        for name, parameter in model.named_parameters():
            averages[name].mul_(0.9).add_(parameter, alpha=0.1)


def by_hand(model: nn.Module, inputs: list[Any]) -> list[Any]:
    averages = {name: one.detach().clone() for name, one in model.named_parameters()}
    for x in inputs:
        model.zero_grad()
        model(x).square().sum().backward()
        update(model)
        averaged_by_hand(model, averages)
    return list(averages.values())


def by_averaged_model(model: nn.Module, inputs: list[Any]) -> list[Any]:
    averaged = real.optim.swa_utils.AveragedModel(model, multi_avg_fn=real.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = real.optim.SGD(model.parameters(), lr=0.01)
    for x in inputs:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        averaged.update_parameters(model)
    return [one.detach() for one in averaged.parameters()]


def by_copy(model: nn.Module, inputs: list[Any]) -> list[Any]:
    for x in inputs:
        model.zero_grad()
        model(x).square().sum().backward()
        update(model)
    copied = copy.deepcopy(model)
    with real.no_grad():
        for mine, other in zip(copied.parameters(), model.parameters(), strict=True):
            mine.lerp_(other * 2, 0.5)
    return [copied(inputs[0])]


class Normalized(nn.Module):
    """Keeps a moving average in a buffer, as batch norms of users do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(real.ones(3))
        self.register_buffer("average", real.zeros(3))

    def forward(self, x: Any) -> Any:
        with real.no_grad():
            self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return (x - self.average) * self.weight


def by_buffer(_: nn.Module, inputs: list[Any]) -> list[Any]:
    module = Normalized()
    return [*[module(x) for x in inputs], module.average]


def by_batch_norm(_: nn.Module, inputs: list[Any]) -> list[Any]:
    module = nn.BatchNorm1d(3)
    found = [module(x) for x in inputs]
    with real.no_grad():
        module.running_mean.mul_(2)
    module.eval()
    return [*found, module(inputs[0]), module.running_var]


AVERAGES = {
    "by hand": by_hand, "AveragedModel": by_averaged_model, "of a copy": by_copy, "a buffer": by_buffer,
    "running statistics": by_batch_norm,
}  # fmt: skip


@pytest.mark.parametrize("average", AVERAGES.values(), ids=AVERAGES)
def test_moving_average__is_recorded_as_torch_makes_it(average):
    attempt = record(lambda: average(Scale(), [random_tensor(2, 4, 3, requires_grad=False) for _ in range(3)]))
    inputs = [source for key, source in attempt.sources.items() if source.shape == (4, 3)]
    expected = average(Scale(), inputs)
    shown = [attempt.trace.values[ref.index] for ref in attempt.program.body[-1].args][: len(expected)]
    for one, other in zip(shown, expected, strict=True):
        real.testing.assert_close(one, other, rtol=0, atol=0)
    assert len(attempt.sources) <= 3 + 2 + 2 + 2  # inputs, parameters, averages, and what is made of nothing
    assert judged(attempt, TorchBackend()).verdict.outcome == "aligned"


def test_buffer_of_a_module__written_where_nothing_is_recorded__is_broken():
    def body() -> Any:
        module, x = Normalized(), random_tensor(2, 4, 3)
        first = module(x)
        module.average.numpy()[0] = 5.0
        return first

    with pytest.raises(AuthorError, match=re.escape("float32[3], was changed by a write that was not recorded")):
        record(body)


def test_body__has_a_mode_of_its_own__is_broken_where_it_writes():
    def body() -> Any:
        with real.device("cpu"):
            module, loss = gone_back()
            update(module)
        return loss

    with pytest.raises(AuthorError, match="was changed by a write that was not recorded"):
        record(body)


def test_after_a_body__torch_is_as_it_was():
    module = Scale()
    before = copy.deepcopy(module.state_dict())

    def body() -> Any:
        module(random_tensor(2, 4, 3)).sum().backward()
        update(module)
        return module(random_tensor(2, 4, 3))

    first, second = record(body), record(body)
    assert first.program == second.program
    assert all(real.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.weight.grad is None
    assert real._C._len_torch_function_stack() == 0


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
    assert "computed outside of the recorded steps" in attempt.untested.detail
    assert attempt.untested.reason is UnsupportedReason.OUTSIDE


def test_array_of_another_library__beside_something_recorded__is_named():
    def body() -> Any:
        x = random_tensor(1, 3)
        return torch.from_numpy(np.tanh(x.detach().numpy())) * x

    attempt = record(body)
    assert (attempt.has_outside, attempt.untested) == (True, None)


def test_array_that_no_value_left_for__is_an_input_like_others():
    attempt = record(lambda: torch.from_numpy(np.ones(3, np.float32)) * random_tensor(1, 3))
    assert not attempt.has_outside

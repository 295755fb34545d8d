"""Optimizers of plain torch are recorded as the steps that they are made of, and give what torch gives."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch as real
from torch import nn, optim

from ci_autotest import random_tensor, torch
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import PLACEHOLDER
from ci_autotest.record.values import KINDS
from tests.engine import judged, record, substitute

OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "SGD maximizing": lambda p: optim.SGD(p, lr=0.1, maximize=True, dampening=0.1, momentum=0.5),
    "Adam": lambda p: optim.Adam(p, lr=0.01),
    "Adam with weight decay": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01, betas=(0.8, 0.9), eps=1e-6),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01),
    "RMSprop centered": lambda p: optim.RMSprop(p, lr=0.01, centered=True, momentum=0.1),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.1),
    "asked for foreach": lambda p: optim.SGD(p, lr=0.1, foreach=True),
}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.second(real.relu(self.first(x)))


def train(model: nn.Module, make: Any, inputs: list[Any], scheduler: Any = None) -> Any:
    optimizer = make(model.parameters())
    schedule = scheduler(optimizer) if scheduler is not None else None
    for x in inputs[:-1]:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return model(inputs[-1])


def trained(make: Any, scheduler: Any = None) -> tuple[Any, real.Tensor]:
    """Return an attempt at training, and what plain torch gives on the same data."""
    held = []

    def body() -> Any:
        model = Model()
        held.append(copy.deepcopy(model))
        return train(model, make, [random_tensor(2, 5, 3, requires_grad=False) for _ in range(4)], scheduler)

    attempt = record(body)
    program = attempt.program
    inputs = [attempt.sources[step.target] for step in program.steps if step.op == PLACEHOLDER][:4]
    return attempt, train(held[0], make, inputs, scheduler)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizer__recorded__gives_what_torch_gives(make):
    attempt, expected = trained(make)
    given = attempt.trace.values[attempt.program.body[-1].args[0].index]
    real.testing.assert_close(given, expected)
    assert judged(attempt, TorchBackend()).verdict.outcome == "aligned"


#: Ways to name the parameters of a recorded module.
PARAMETERS = {
    "an iterator": lambda model: model.parameters(),
    "names and parameters": lambda model: model.named_parameters(),
    "groups": lambda model: [
        {"params": model[0].parameters(), "lr": 0.2},
        {"params": [model[2].weight, model[2].bias]},
    ],
}


@pytest.mark.parametrize("parameters", PARAMETERS.values(), ids=PARAMETERS)
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_optimizer__of_a_recorded_module__gives_what_a_plain_one_gives(name, parameters):
    def body(here: Any) -> Any:
        model = here.nn.Sequential(here.nn.Linear(3, 4), here.nn.Tanh(), here.nn.Linear(4, 2))
        make = getattr(here.optim, name)
        inputs = [random_tensor(2, 5, 3, requires_grad=False) for _ in range(3)]
        with real.no_grad():
            for number, parameter in enumerate(model.parameters()):
                parameter.copy_(here.full_like(parameter, 0.1 * number - 0.2))
        return train(model, lambda _: make(params=parameters(model), lr=0.1), inputs)

    own, plain = record(lambda: body(torch)), record(lambda: body(real))
    results = [attempt.trace.values[attempt.program.body[-1].args[0].index] for attempt in (own, plain)]
    real.testing.assert_close(*results, rtol=0, atol=0)
    assert judged(own, TorchBackend()).verdict.outcome == "aligned"
    wrong = substitute(
        add=lambda *args, **how: real.add(*args, **how) * 3, addcdiv=lambda *args, **how: real.addcdiv(*args, **how) * 3
    )
    assert judged(own, wrong).verdict.operator in {"torch.add", "torch.addcdiv"}


#: Ways to clip gradients, by an operator that computes each.
CLIPS = {
    "norm": ("clamp", lambda clip, model: clip.clip_grad_norm_(model.parameters(), 0.05)),
    "norm of one, by names": ("linalg.vector_norm", lambda clip, model: clip.clip_grad_norm_(parameters=model.weight, max_norm=0.05)),
    "greatest element": ("stack", lambda clip, model: clip.clip_grad_norm_(model.parameters(), 0.05, norm_type=float("inf"))),
    "finite norm": ("logical_or", lambda clip, model: clip.clip_grad_norm_(model.parameters(), 0.05, error_if_nonfinite=True)),
    "value": ("clamp", lambda clip, model: clip.clip_grad_value_([*model.parameters()], 0.01)),
}  # fmt: skip


@pytest.mark.parametrize(("operator", "clip"), CLIPS.values(), ids=CLIPS)
def test_clip__of_a_recorded_module__gives_what_a_plain_one_gives(operator, clip):
    def body(here: Any) -> Any:
        model = here.nn.Linear(3, 4)
        with real.no_grad():
            for number, parameter in enumerate(model.parameters()):
                parameter.copy_(here.full_like(parameter, 0.1 * number - 0.2))
        model(random_tensor(2, 5, 3, requires_grad=False)).square().mean().backward()
        clip(here.nn.utils, model)
        return model.weight.grad * 2

    own, plain = record(lambda: body(torch)), record(lambda: body(real))
    results = [attempt.trace.values[attempt.program.body[-1].args[0].index] for attempt in (own, plain)]
    real.testing.assert_close(*results)
    assert judged(own, TorchBackend()).verdict.outcome == "aligned"
    function = operator_of(operator)
    wrong = judged(own, substitute(**{operator: lambda *args, **how: wrong_by(function(*args, **how))})).verdict
    assert (wrong.outcome, wrong.operator) == ("misaligned", f"torch.{operator}")


def operator_of(name: str) -> Any:
    return functools.reduce(getattr, name.split("."), real)


def wrong_by(value: real.Tensor) -> real.Tensor:
    return ~value if value.dtype == real.bool else value * 3


def test_optimizer__one_parameter_in_two_groups__is_refused():
    def body() -> Any:
        model = torch.nn.Linear(3, 4)
        optimizer = real.optim.SGD([{"params": [model.weight]}, {"params": [model.weight, model.bias]}], lr=0.1)
        model(random_tensor(2, 5, 3)).sum().backward()
        optimizer.step()
        return model.weight * 1

    with pytest.raises(AuthorError, match="some parameters appear in more than one parameter group"):
        record(body)


def test_clip__gradients_are_not_finite__raises_what_torch_raises():
    def body() -> Any:
        model = torch.nn.Linear(3, 4)
        (model(random_tensor(2, 5, 3)).sum() * float("inf")).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05, error_if_nonfinite=True)
        return model.weight * 1

    with pytest.raises(AuthorError, match="is non-finite"):
        record(body)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizer__what_torch_asks_of_tensors_by_itself__is_no_step(make):
    steps = trained(make)[0].program.steps
    asked = {step.target.rpartition(".")[2] for step in steps} | {
        step.args[1] for step in steps if step.target == "builtins.getattr"
    }
    assert asked.isdisjoint(KINDS), asked & KINDS


def test_kind__asked_by_the_body__is_a_step():
    program = record(lambda: random_tensor(2).dim() and random_tensor(2)).program
    assert "dim" in [step.target for step in program.steps]


def test_scheduler__recorded__gives_what_torch_gives():
    attempt, expected = trained(OPTIMIZERS["SGD"], lambda it: optim.lr_scheduler.StepLR(it, 1, 0.5))
    real.testing.assert_close(attempt.trace.values[attempt.program.body[-1].args[0].index], expected)


@pytest.mark.parametrize(
    ("make", "operator"),
    [("Adam", "addcdiv"), ("Adam", "lerp"), ("AdamW", "sqrt"), ("RMSprop", "addcmul"), ("SGD with momentum", "add"), ("Adagrad", "addcdiv")],
)  # fmt: skip
def test_optimizer__kernel_of_its_step_is_wrong__is_the_culprit(make, operator):
    function = getattr(real, operator)
    wrong = substitute(**{operator: lambda *args, **how: function(*args, **how) * 3})
    verdict = judged(trained(OPTIMIZERS[make])[0], wrong).verdict
    assert (verdict.outcome, verdict.operator, verdict.blame) == ("misaligned", f"torch.{operator}", "candidate")


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizer_that_outlives_its_case__is_as_it_was(make):
    model = Model()
    optimizer = make(model.parameters())
    count = len(optimizer.state)

    def body() -> Any:
        return train(model, lambda _: optimizer, [random_tensor(2, 5, 3, requires_grad=False) for _ in range(3)])

    first, second = record(body), record(body)
    assert first.program == second.program
    assert len(optimizer.state) == count
    assert [id(one) for one in optimizer.param_groups[0]["params"]] == [id(one) for one in model.parameters()]


def test_module_that_outlives_its_case__is_as_it_was():
    model = Model()
    before = copy.deepcopy(model.state_dict())

    def body() -> Any:
        return train(model, OPTIMIZERS["SGD"], [random_tensor(2, 5, 3, requires_grad=False) for _ in range(3)])

    first, second = record(body), record(body)
    assert all(real.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert first.program == second.program


@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize("scaler", [real.amp.GradScaler, torch.amp.GradScaler])
def test_grad_scaler__of_a_recorded_loss__is_refused(scaler, shape):
    def body(**how: Any) -> Any:
        layer = nn.Linear(3, 2)
        loss = layer(random_tensor(2, 5, 3)).sum().expand(shape)
        return scaler("cpu", **how).scale(loss)

    with pytest.raises(
        AuthorError, match=r"GradScaler\.scale of a recorded tensor: the operations of a scaler on gradients"
    ):
        record(body)
    assert judged(record(lambda: body(enabled=False)), TorchBackend()).verdict.outcome == "aligned"

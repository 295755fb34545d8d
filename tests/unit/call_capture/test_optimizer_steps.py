from __future__ import annotations

import pytest
import torch
from torch.optim import SGD, AdamW

from ci_autotest.call_capture.mode import CallMode


class Own(SGD):
    """An optimizer of the program's, with a call of its own."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.cos()
        return super().step(closure)


def counts(program) -> dict[str, int]:
    mode = CallMode()
    with mode:
        program()
    found: dict[str, int] = {}
    for call in mode.capture().calls:
        found[call.target] = found.get(call.target, 0) + call.count
    return found


def trained(optimizer, parameters, steps: int):
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 0.5)
        optimizer.step()


def parameters_of(*sizes: int) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.linspace(0, 1, size)) for size in sizes]


@pytest.mark.parametrize("is_older", [True, False], ids=["made before the capture", "made in it"])
def test_optimizer_steps__two_hundred_steps__all_are_counted_and_few_are_observed(is_older):
    parameters = parameters_of(3, 3, 4)
    older = AdamW(parameters) if is_older else None
    before = AdamW.step
    found = counts(lambda: trained(older or AdamW(parameters), parameters, 200))
    assert (found["lerp_"], found["addcdiv_"], AdamW.step.hooked) == (600, 600, True)
    assert AdamW.step is before or not is_older


def test_optimizer_steps__result__is_that_without_the_capture():
    def result():
        parameters = parameters_of(3, 4)
        trained(AdamW(parameters, lr=0.1), parameters, 9)
        return parameters

    plain = result()
    with CallMode():
        seen = result()
    assert all(map(torch.equal, plain, seen))


def test_optimizer_steps__parameter_that_is_frozen_later__its_calls_are_no_longer_counted():
    parameters = parameters_of(3, 4)
    optimizer = SGD(parameters, lr=0.1)

    def program():
        trained(optimizer, parameters, 6)
        parameters[0].grad = None
        trained(optimizer, parameters[1:], 6)

    assert counts(program)["add_"] == 6 * 2 + 6


def test_optimizer_steps__closure__is_observed_in_every_step():
    (parameter,) = parameters_of(3)
    optimizer = SGD([parameter], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = parameter.sin().sum()
        loss.backward()
        return loss

    found = counts(lambda: [optimizer.step(closure) for _ in range(5)])
    assert (found["sin"], found["add_"]) == (5, 5)


def test_optimizer_steps__own_optimizer_and_hooks__are_observed_in_every_step_and_called_as_without():
    (parameter,) = parameters_of(3)
    optimizer, called = Own([parameter], lr=0.1), []
    optimizer.register_step_pre_hook(lambda *_: called.append(parameter.tanh()))
    trained(optimizer, [parameter], 5)
    hooks = len(called)  # torch calls them for `super().step()` too if the class above has objects
    found = counts(lambda: trained(optimizer, [parameter], 5))
    assert (found["cos"], found["tanh"], found["add_"], len(called)) == (5, hooks, 5, 2 * hooks)


def test_optimizer_steps__gradients_that_become_zero__are_written_by_a_call_and_dropped_by_none():
    (parameter,) = parameters_of(3)
    optimizer = SGD([parameter], lr=0.1)
    own = torch.optim.Optimizer.zero_grad

    def program():
        for is_dropped in (True, False, True):
            parameter.grad = torch.full((3,), 2.0)
            optimizer.zero_grad(set_to_none=is_dropped)
            assert (parameter.grad is None) is is_dropped
        parameter.sin()

    assert counts(program) == {"torch.full": 3, "zero_": 1, "sin": 1}
    assert torch.optim.Optimizer.zero_grad is own


def test_optimizer_steps__step_that_fails__the_capture_goes_on():
    (parameter,) = parameters_of(3)
    optimizer = SGD([parameter], lr=0.1)
    parameter.grad = torch.ones(3)

    def program():
        for _ in range(4):
            optimizer.param_groups[0]["lr"] = "text"
            with pytest.raises(TypeError):
                optimizer.step()
            parameter.sin()

    assert counts(program)["sin"] == 4

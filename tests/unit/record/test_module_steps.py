"""Modules in a body: their construction and state are the setup's, their forwards and changes the body's."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.program.codegen import body_lines, setup_lines
from ci_autotest.program.ir import PLACEHOLDER
from tests.engine import Rules, record, tried

BITWISE = Rules(strictness="bitwise")


def x(**how):
    return random_tensor(ndim=2, dim0=2, dim1=3, **how)


def module_in(*layers):
    return lambda: torch.nn.Sequential(*(make() for make in layers))(random_tensor(ndim=2, dim1=3))


def batch_norm():
    module = torch.nn.BatchNorm1d(3)
    value = random_tensor(ndim=2, dim0=4, dim1=3)
    trained = module(value)
    module.eval()
    return trained, module(value), module.running_mean


def frozen_linear():
    module = torch.nn.Linear(3, 2).to(torch.float64).eval()
    return module(random_tensor(ndim=2, dim1=3, dtype=torch.float64))


def linear_with_its_weight():
    module = torch.nn.Linear(3, 2)
    return module(random_tensor(ndim=2, dim1=3)) + module.weight.sum()


def written_weight():
    module = torch.nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.fill_(0.5)
    return module(random_tensor(ndim=2, dim1=3))


def recurrent():
    output, (hidden, cell) = torch.nn.LSTM(3, 2)(random_tensor(ndim=3, dim2=3))
    return output, hidden, cell


MODULES = [
    pytest.param(lambda: torch.nn.ReLU()(x()), id="without state"),
    pytest.param(lambda: torch.nn.Linear(3, 2)(x()), id="linear"),
    pytest.param(lambda: torch.nn.Conv2d(2, 3, 2)(random_tensor(ndim=4, dim1=2, dim2=4, dim3=4)), id="convolution"),
    pytest.param(batch_norm, id="running statistics"),
    pytest.param(lambda: torch.nn.Dropout(0.5)(x()), id="dropout"),
    pytest.param(frozen_linear, id="to and eval"),
    pytest.param(linear_with_its_weight, id="its weight"),
    pytest.param(written_weight, id="a weight written to"),
    pytest.param(recurrent, id="nested outputs"),
    pytest.param(module_in(lambda: torch.nn.Linear(3, 2), torch.nn.ReLU), id="a module of modules"),
    pytest.param(
        lambda: torch.nn.Embedding(5, 2)(random_tensor(ndim=1, low=0, high=5, dtype=int)), id="embedding"
    ),
]  # fmt: skip


@pytest.mark.parametrize("body", MODULES)
def test_record__module__replays_bit_by_bit_with_its_state(body):
    assert record(body).refused is None
    assert {tried(body, TorchBackend(), BITWISE, case=case).outcome for case in (0, 2)} == {"aligned"}


def test_record__module__its_state_is_snapshotted_before_the_first_forward():
    attempt = record(batch_norm)
    lines = setup_lines(attempt.program)
    assert lines[0] == "module = torch.nn.BatchNorm1d(3)"
    assert lines[1].startswith("module.load_state_dict({'weight': weight, 'bias': bias, 'running_mean': running_mean")
    means = [attempt.sources[s.target] for s in attempt.program.setup if s.name == "running_mean"]
    assert means[0].tolist() == [0, 0, 0]


def test_record__module_method_after_a_forward__is_a_step_of_the_body():
    program = record(batch_norm).program
    assert "eval = module.eval()" in body_lines(program)
    assert "module.train()" not in setup_lines(program)


def test_record__module_method_before_a_forward__is_setup():
    assert setup_lines(record(frozen_linear).program)[-2:] == ["module.to(torch.float64)", "module.eval()"]


def weights(**name) -> list[float]:
    attempt = record(lambda: torch.nn.Linear(3, 2)(x()), **name)
    return next(attempt.sources[s.target] for s in attempt.program.setup if s.name == "weight").flatten().tolist()


def test_record__module_weights__are_those_of_the_attempt():
    again = weights()
    real.rand(10)
    assert weights() == again
    assert len({tuple(weights(**name)) for name in ({}, {"case": 2}, {"seed": 1}, {"number": 1})}) == 4


#: Which module runs and which is changed then, of a part, the sequence that holds it, and a list of both.
SHARED = {
    "a part, then the whole": lambda part, whole, _: (part, whole),
    "the whole, then a part": lambda part, whole, _: (whole, part),
    "an item, then its list": lambda _part, _whole, both: (both[0], both),
}


@pytest.mark.parametrize("chosen", SHARED.values(), ids=SHARED)
def test_record__module_that_shares_a_part_with_one_that_ran__is_changed_in_the_body(chosen):
    def body():
        part = torch.nn.Dropout(0.5)
        whole = torch.nn.Sequential(part, torch.nn.ReLU())
        runs, changed = chosen(part, whole, torch.nn.ModuleList([part, whole]))
        first = runs(x())
        changed.eval()
        return first, runs(x())

    program = record(body).program
    assert [step.in_setup for step in program.steps if step.target == "eval"] == [False]


def test_record__setup_and_body__are_apart():
    program = record(lambda: x() * torch.nn.Linear(1, 1).weight).program
    assert {step.in_setup for step in program.setup} == {True}
    assert {step.in_setup for step in program.body} == {False}
    assert program.body[0].op == PLACEHOLDER


def test_record__module_trained__source_stays():
    attempt = record(batch_norm)
    means = [step.target for step in attempt.program.setup if step.name == "running_mean"]
    assert attempt.sources[means[0]].tolist() == [0, 0, 0]

"""Sequences of calls: well-formed programs whose inputs hold what they should at each call."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import pytest
import torch as real

from ci_autotest import random, random_tensor, torch
from ci_autotest.alignment.cases import differentiate
from ci_autotest.alignment.fast_path import is_surely_aligned
from ci_autotest.alignment.probe import is_telling, probe_of
from ci_autotest.alignment.tolerance_rules import Rules
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.trace import Attempt
from ci_autotest.program.call_probe import CALLS, rewritten
from ci_autotest.program.call_sequence import is_repeatable
from ci_autotest.program.check import check_program
from ci_autotest.values.schedule import SCHEDULE, RowName
from tests.engine import record


def layer():
    features = random(1, 6).to(int)
    return torch.nn.Linear(in_features=features, out_features=2)(random_tensor(2, dim1=features))


def exp():
    return torch.exp(random_tensor(2, 3, 4))


def hooked():
    x = random_tensor(2)
    x.register_hook(lambda gradient: gradient * 2)
    return torch.exp(x)


def gone_back():
    x = random_tensor(2)
    torch.exp(x).sum().backward()
    return x.grad


BODIES = {
    "one call": lambda: torch.tanh(random_tensor(2, 3, 4)),
    "two inputs": lambda: torch.mul(random_tensor(2, 3, 4), random_tensor(2, 3, 4)),
    "integers": lambda: torch.add(random_tensor(2, 3, 4, dtype=int), 1),
    "a module": layer,
    "several calls": lambda: torch.exp(torch.tanh(random_tensor(2, 3, 4))).sum(),
    "one element": lambda: torch.tanh(random_tensor(1, 1)),
    "no dimension": lambda: torch.tanh(random_tensor(0)),
    "positive definite": lambda: torch.linalg.cholesky(torch.eye(3) + random_tensor(2, 3, 3).square().mean()),
}


def probed(body, **how):
    attempt = record(body, **how)
    differentiate(attempt, TorchBackend())
    return attempt, probe_of(attempt, TorchBackend(), lambda _: None)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_probe__is_well_formed_and_calls_the_body_as_often_as_it_says(body):
    attempt, probe = probed(body)
    check_program(probe.program)
    for _, step in attempt.program.calls:
        given = sum(other.target == step.target for _, other in probe.program.calls)
        assert given >= CALLS + (step.op == "call_module")
    assert probe.trace.failure is None


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_series__reference_runs_a_part__has_what_all_of_it_gives(body):
    attempt = record(body)
    differentiate(attempt, TorchBackend())
    probe = probe_of(attempt, TorchBackend(), lambda _: None, of_series=True, is_whole=False)
    check_program(probe.program)
    trace = TorchBackend().run(probe.program, probe.sources, copied=probe.trace.copies)
    assert trace.failure is None
    assert is_surely_aligned(probe.program, trace, probe.trace, Rules())
    assert trace.copies.keys() == probe.trace.copies.keys()


@pytest.mark.parametrize("profile", ["non_contiguous", "special", "zero_dim", "boundary"])
def test_probe__of_each_profile__is_well_formed(profile):
    check_program(probed(lambda: torch.tanh(random_tensor()), profile=profile)[1].program)


@pytest.mark.parametrize("body", [lambda: torch.tanh(random_tensor(1, 0)), lambda: torch.tanh(random_tensor(2, 3, 0))])
def test_probe__of_a_case_without_elements__is_left_out(body):
    assert probed(body)[1] == "empty"
    assert probed(body, profile="zero_size")[1] == "empty"


def test_probe__values__are_those_of_the_case_in_other_places_and_smaller_ones():
    attempt, probe = probed(lambda: torch.tanh(random_tensor(1, 6)))
    first = attempt.sources["t0"]
    given = [value for value in probe.sources.values() if real.equal(value.sort().values, first.sort().values)]
    others = [value for value in given if not real.equal(value, first)]
    assert (len(given), len(others)) == (5, 3)
    # They keep the first and the last element: a key may be made of those.
    assert all(value[0] == first[0] and value[-1] == first[-1] for value in others)
    # What is kept may be a norm, which the order does not change.
    smaller = (first * 0.75).sort().values
    assert sum(real.equal(value.sort().values, smaller) for value in probe.sources.values()) == 3


class Seen(NamedTuple):
    address: int
    version: int
    identity: int
    has_gradients: bool
    lives: weakref.ref


def test_probe__calls__have_the_memory_and_the_versions_that_they_should():
    seen = []

    def noting(x):
        seen.append(Seen(x.data_ptr(), x._version, id(x), real.is_grad_enabled(), weakref.ref(x)))
        return real.Tensor.tanh(x)

    backend = TorchBackend()
    _, probe = probed(lambda: torch.tanh(random_tensor(1, 6)))
    backend.steps._functions["torch.tanh"] = noting
    trace = backend.run(probe.program, probe.sources)
    assert trace.failure is None
    assert len(seen) == CALLS
    (evaluated, first, second, again, third, fourth, before, over, *copies, last) = seen
    assert [one.has_gradients for one in seen] == [False, True, True, False, True, True, *[False] * 6, True]
    assert evaluated[:3] == first[:3]
    assert second[:3] == again[:3]
    assert (first.address, first.identity) == (second.address, second.identity)
    assert first.version < second.version  # the same tensor, written to
    assert third.address == first.address
    assert third.identity != first.identity  # another tensor at the same address
    assert fourth.address != first.address  # the first values at another address
    assert [one.lives() for one in copies] == [None] * 4  # memory and identities that are given out again
    assert {one.version for one in copies} == {0}
    assert (over.address, over.version) == (before.address, before.version)
    assert over.identity != before.identity  # other values, and neither the address nor the version tells
    assert last.address == first.address


def test_probe__value_that_the_body_computes__comes_back_as_the_same_tensor_with_other_values():
    seen = []

    def noting(condition, *values):
        seen.append((id(condition), condition._version, real.is_grad_enabled()))
        return real.ops.aten.where(condition, *values)

    def body():
        mask = random_tensor(1, 6, requires_grad=False) > 0
        return torch.where(mask, random_tensor(1, 6), random_tensor(1, 6))

    backend = TorchBackend()
    _, probe = probed(body)
    backend.steps._functions["torch.where"] = noting
    assert backend.run(probe.program, probe.sources).failure is None
    evaluated, again = seen[0], seen[3]
    assert evaluated[0] == again[0]
    assert (evaluated[1], again[1]) == (0, 1)


def test_probe__expanded_inputs__have_other_values_too():
    _, probe = probed(lambda: torch.add(random_tensor(2, 3, 4), 1), profile="non_contiguous")
    assert all(0 not in step.args[0].strides for step in probe.program.body if step.op == "placeholder")
    assert any(step.target == "copy_" for step in probe.program.body)


def one_value():
    return torch.add(random_tensor(1, 1, low=3, high=4, dtype=int), 1)


def test_probe_of__inputs_have_no_other_values__is_left_to_a_later_case():
    attempt = record(one_value)
    differentiate(attempt, TorchBackend())
    assert not is_telling(attempt)
    assert isinstance(probe_of(attempt, TorchBackend(), lambda _: None), Attempt)


@pytest.mark.parametrize("body", [hooked, gone_back, lambda: torch.nn.functional.dropout(random_tensor(2))])
def test_is_repeatable__registers_goes_back_or_draws__is_not(body):
    assert not is_repeatable(record(body).program)


def test_rewritten__are_the_inputs_that_are_written_to_and_what_shares_their_memory():
    _, probe = probed(lambda: torch.tanh(random_tensor(1, 6)))
    steps = probe.program.steps
    found = {steps[index].target for index in rewritten(probe.program)}
    assert {target for target in found if not target.startswith("t")} == {"copy_", "builtins.getattr", "requires_grad_"}
    assert len(found) == 5  # two inputs beside them


@pytest.mark.parametrize("row", [RowName.SEQUENCE, RowName.SERIES])
@pytest.mark.parametrize("body", [layer, exp])
def test_probe_of__passes__are_at_most_as_many_as_its_row_says(body, row: RowName):
    attempt = record(body)
    differentiate(attempt, TorchBackend())
    found = probe_of(attempt, TorchBackend(), lambda _: None, of_series=row is RowName.SERIES)
    assert isinstance(found, Attempt)
    steps = [step for _, step in found.program.calls]
    (name,) = {step.target for _, step in attempt.program.calls}
    has_modules = body is layer
    forward = sum(step.target == name for step in steps)
    backward = sum(step.target == "torch.autograd.grad" for step in steps)
    assert backward <= SCHEDULE[row].backward
    assert (forward == SCHEDULE[row].forward) if has_modules else (forward < SCHEDULE[row].forward)

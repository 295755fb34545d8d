"""Which attempts run in lockstep, and which graphs are gone back through without the engine."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import oneof, random_tensor, torch
from ci_autotest.backends.forming import formed
from ci_autotest.backends.graph import Seen, gradients_in_columns
from ci_autotest.backends.sweep import extend, is_plain_call
from ci_autotest.program.ir import Ref, Step
from tests.engine import Nowhere, record


def call(**changed):
    given = {"op": "call_function", "target": "torch.exp", "args": (Ref(0),), **changed}
    return Step(**given)


def test_plain_call__needs_its_arguments_alone():
    assert is_plain_call(call())
    assert is_plain_call(call(op="call_method", target="mul"))


@pytest.mark.parametrize(
    "changed",
    [
        {"modes": ("no_grad",)},
        {"seed": 3},
        {"op": "get_attr"},
        {"op": "call_module"},
        {"op": "call_method", "target": "retain_grad"},
        {"op": "call_method", "target": "register_hook"},
        {"op": "call_method", "target": "numpy"},
    ],
    ids=str,
)
def test_a_call_that_leaves_or_needs_more__is_none(changed):
    assert not is_plain_call(call(**changed))


def groups_of(body, cases=24):
    attempts = [record(body, case, profile="ordinary") for case in range(cases)]
    return attempts, [[attempts[row] for row in rows] for rows, _ in formed(attempts)]


def with_a_number():
    return torch.add(random_tensor(2), oneof(1, 1.0, True))


def with_an_option():
    x = random_tensor(2)
    return torch.sum(x, dim=0, keepdim=oneof(True, False)), torch.mul(x, 2.0)


def asking_or_not():
    return torch.exp(random_tensor(2, requires_grad=oneof(True, False)))


def of_one_operator_or_another():
    x = random_tensor(2)
    return torch.exp(x) if x.shape[0] > 3 else torch.sin(x)


def test_numbers_of_other_types__are_other_forms():
    _, groups = groups_of(with_a_number)
    assert len(groups) > 1
    assert all(len({type(one.program.body[1].args[1]) for one in group}) == 1 for group in groups)


def test_options_and_sizes__are_one_form():
    attempts, groups = groups_of(with_an_option)
    assert [len(group) for group in groups] == [len(attempts)]


@pytest.mark.parametrize("body", [asking_or_not, of_one_operator_or_another], ids=lambda body: body.__name__)
def test_other_facts_and_other_steps__are_other_forms(body):
    _, groups = groups_of(body)
    assert len(groups) == 2
    told = [{(one.program.body[-2].target, one.trace.facts[0]) for one in group} for group in groups]
    assert all(len(each) == 1 for each in told)


def test_few_cases__are_run_alone():
    assert formed([record(with_an_option, case, profile="ordinary") for case in range(2)]) == []


class _Own(real.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def partly_written(x):
    y = x * 2
    y[0] = 1.0
    return y


def of_two_results(x):
    return real.split(x, 1)[0]


def hidden(x):
    return (x * 2).exp()


@pytest.mark.parametrize(
    "made", [_Own.apply, partly_written, of_two_results, hidden], ids=["own", "part", "two", "hidden"]
)
def test_whatever_is_no_plain_graph__is_the_engines(made):
    leaves = [real.rand(3, 2, requires_grad=True) for _ in range(3)]
    outputs = [made(leaf) for leaf in leaves]
    nodes = [output.grad_fn for output in outputs]
    seen = {0: Seen(leaves, None), 1: Seen(outputs, nodes)}
    ones = [real.ones_like(output) for output in outputs]
    assert gradients_in_columns(nodes, ones, seen, iter) is None


def test_a_plain_graph__is_not__and_each_node_is_entered_for_each_case():
    leaves = [real.rand(3, 2, requires_grad=True) for _ in range(3)]
    middle = [leaf * 2 for leaf in leaves]
    outputs = [value.exp() for value in middle]
    made = [[output.grad_fn for output in outputs], [value.grad_fn for value in middle]]
    entered = []

    def told(column):
        for case, item in enumerate(column):
            entered.append(case)
            yield item

    seen = {0: Seen(leaves, None), 1: Seen(middle, made[1]), 2: Seen(outputs, made[0])}
    found = gradients_in_columns(made[0], [real.ones(3, 2)] * 3, seen, told)
    assert all(map(real.equal, found[1], outputs))
    assert all(real.equal(gradient, 2 * output) for gradient, output in zip(found[0], outputs, strict=True))
    assert entered == [0, 1, 2, 0, 1, 2]


def test_an_operator_that_raises_stop_iteration__is_no_end_of_its_column():
    def stops_at(number):
        if number == 2:
            raise StopIteration
        return -number

    found = []
    with pytest.raises(RuntimeError, match="StopIteration"):
        extend(found, stops_at, [[0, 1, 2, 3]], [0, 1, 2, 3], Nowhere())
    assert found == [0, -1]
    with pytest.raises(RuntimeError, match="StopIteration"):
        extend(found, stops_at, [[0, 1, 2, 3]], [0, 1, 2, 3], Nowhere())
    assert found == [0, -1]

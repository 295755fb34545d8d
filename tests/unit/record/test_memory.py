"""What an attempt holds is given back when it is dropped, not when the collector comes: it may hold large tensors."""

from __future__ import annotations

import gc

import pytest

from ci_autotest import oneof, random, random_or_nothing, random_tensor, torch
from ci_autotest.record.recorder import Recorder
from tests.engine import record


def of_a_module():
    module = torch.nn.Sequential(torch.nn.Linear(3, random(1, 8).to(int)), torch.nn.ReLU())
    module[0].weight.requires_grad_(False)
    return module(random_tensor(ndim=2, dim1=3))


def of_one_of_its_values():
    x = random_tensor(ndim=1)
    return torch.exp(oneof(x, torch.sin(x)))


def of_generators():
    return torch.sum(random_tensor(ndim=2), dim=random_or_nothing(0, 2).to(int))


def refused():
    return torch.reshape(torch.nn.Linear(2, 3)(random_tensor(ndim=2, dim1=2)), (-2,))


@pytest.mark.parametrize(
    "body", [of_a_module, of_one_of_its_values, of_generators, refused], ids=lambda body: body.__name__
)
def test_an_attempt_that_is_dropped__leaves_nothing_to_the_collector(body):
    gc.freeze()  # what is there already is not looked through
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for case in range(4):
            record(body, case)
        gc.collect()
        assert [type(one) for one in gc.garbage if isinstance(one, Recorder)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()

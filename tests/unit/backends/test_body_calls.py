"""Bodies as plain calls, to be timed: replacements are called directly where that replaces as many calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.body_call import BodyCalls, versions
from ci_autotest.backends.body_function import begun, prepared
from ci_autotest.backends.compilers.export import ExportBackend
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.backends.fx.backend import FxBackend
from ci_autotest.backends.protocol import Backend
from tests.engine import record, substitute

if TYPE_CHECKING:
    from collections.abc import Callable

REFERENCE = TorchBackend()


def x() -> Any:
    return random_tensor(ndim=2, dim0=2, dim1=3)


def calls_of(body: Callable[[], object], backend: Backend) -> tuple[BodyCalls, list[Any]]:
    attempt = record(body)
    trace = begun(attempt.program, snapshots=False)
    assert prepared(REFERENCE.steps, attempt.program, attempt.sources, trace)
    found = backend.body_calls(attempt.program, trace.values)
    assert found is not None
    return found, trace.values


def module() -> Any:
    return torch.nn.Linear(3, 4)(x()).relu()


def test_body_calls__of_torch__gives_what_the_steps_give_on_the_very_inputs():
    found, values = calls_of(module, REFERENCE)
    linear = next(value for value in values if isinstance(value, real.nn.Module))
    given = [value for value in values if isinstance(value, real.Tensor)][-1]
    assert real.equal(found.own()[0], linear(given).relu())
    assert found.against is None


SPELLINGS = {
    "function": (lambda: torch.nn.functional.softmax(x(), dim=1), 1, True),
    "method": (lambda: x().softmax(1), 1, True),
    "twice": (lambda: torch.softmax(torch.softmax(x(), 1), 0), 2, True),
    "module": (lambda: torch.nn.Softmax(dim=1)(x()), 1, False),
    "inside of a function": (lambda: torch.softmax(x(), 1) + torch.nn.Softmax(dim=0)(x()), 2, False),
}


@pytest.mark.parametrize(("body", "count", "is_direct"), SPELLINGS.values(), ids=SPELLINGS)
def test_body_calls__of_a_substitute__calls_every_replacement(body, count: int, is_direct: bool):
    counted = []

    def mine(value, dim=None, **_):
        counted.append(dim)
        return (value - value.logsumexp(dim, True)).exp()

    found, _ = calls_of(body, substitute(softmax=mine))
    counted.clear()
    found.own()
    assert len(counted) == count
    counted.clear()
    # Where torch passes calls to a mode, it does so on both sides, and the other one has no replacement.
    assert (found.against is None) is is_direct
    if found.against is not None:
        found.against()
    assert counted == []


@pytest.mark.parametrize(
    "body",
    [
        lambda: torch.nn.functional.relu(x() * 1, inplace=True),
        lambda: (x() * 1).relu_(),
        lambda: (x() * 1).permute(1, 0),
    ],
    ids=["inplace", "in place", "separate dimensions"],
)
def test_body_calls__of_a_call_that_means_more__goes_through_the_mode(body):
    backend = substitute(relu=lambda value: value.clamp(min=0), permute=lambda value, dims: real.permute(value, dims))
    found, _ = calls_of(body, backend)
    assert found.against is not None
    assert real.equal(found.own()[0], found.against()[0])


def test_body_calls__of_a_pass__has_the_graph_before_it():
    def halved(graph: real.fx.GraphModule) -> real.fx.GraphModule:
        for node in graph.graph.nodes:
            if node.target == "relu":
                node.target = "tanh"
        graph.recompile()
        for parameter in graph.parameters():
            parameter.data.zero_()
        return graph

    backend = FxBackend("")
    backend._transform = halved
    found, values = calls_of(module, backend)
    linear = next(value for value in values if isinstance(value, real.nn.Module))
    assert found.is_original
    assert found.against is not None
    assert real.equal(found.own()[0], real.zeros(2, 4))
    given = [value for value in values if isinstance(value, real.Tensor)][-1]
    assert real.equal(found.against()[0], linear(given).relu())


def test_body_calls__of_another_backend__are_not_timed():
    assert ExportBackend.body_calls is Backend.body_calls


def test_versions__after_a_write__differ():
    tensor = real.zeros(2)
    before = versions([tensor, None, 3])
    tensor += 1
    assert (before, versions([tensor])) == ([0], [1])

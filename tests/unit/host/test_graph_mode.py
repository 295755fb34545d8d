"""A body as one graph: what is compiled is outputs alone; what was not compiled, or cannot be, says so."""

from __future__ import annotations

import numpy as np
import pytest
import torch as real
from torch import fx

from ci_autotest import random_tensor, torch
from ci_autotest.errors import UnsupportedReason
from ci_autotest.host.forward import as_graph
from ci_autotest.host.frameworks.torch_like import TorchLike
from ci_autotest.program.ir import output_refs
from tests.engine import record


class Traced(TorchLike):
    """torch itself, whose graphs are traced by torch.fx: honest."""

    def __init__(self):
        super().__init__("torch", "cpu")

    def is_tensor(self, value):
        return isinstance(value, fx.Proxy) or super().is_tensor(value)

    def graph(self, body, inputs, modules):
        graph = fx.Graph()
        tracer = fx.proxy.GraphAppendingTracer(graph)
        proxies = [fx.Proxy(graph.placeholder(f"x{i}"), tracer) for i, _ in enumerate(inputs)]
        graph.output([value.node for value in body(proxies, modules)])
        compiled = fx.GraphModule(real.nn.Module(), graph)
        return lambda tensors: compiled(*tensors)


class Eager(Traced):
    """Falls back to running the body each time."""

    def graph(self, body, inputs, modules):
        return lambda tensors: body(tensors, modules)


class EagerAfterTracing(Traced):
    """Traces, and then runs the body all the same."""

    def graph(self, body, inputs, modules):
        super().graph(body, inputs, modules)
        return lambda tensors: body(tensors, modules)


class Broken(Traced):
    """Cannot make a graph of anything."""

    def graph(self, body, inputs, modules):
        body(inputs, modules)
        message = "no such node"
        raise RuntimeError(message)


class Wrong(Traced):
    """A compiler that is off by one."""

    def graph(self, body, inputs, modules):
        compiled = super().graph(body, inputs, modules)
        return lambda tensors: [value + 1 for value in compiled(tensors)]


def x(**how):
    return random_tensor(dims=(3, 4), **how)


def run(body, framework, **how):
    attempt = record(body, profile="ordinary")
    tensors = {key: value.contiguous().view(-1).numpy() for key, value in attempt.sources.items()}
    entered = []
    return attempt, as_graph(attempt.program, tensors, framework(), entered.append, snapshots=False, **how)


def outputs(attempt, found):
    return [found.values[ref.index].detach().numpy() for ref in output_refs(attempt.program)]


BODIES = {
    "a chain": lambda: torch.exp(torch.sin(x()) * 2),
    "two outputs": lambda: (torch.exp(x()), x().sum()),
    "an output twice": lambda: [torch.exp(x())] * 2,
    "in place": lambda: torch.exp(x()).mul_(3),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_as_graph__compiled__gives_the_outputs_and_nothing_inside(body):
    attempt, found = run(body, Traced)
    assert (found.failure, found.lacking, len(found.values)) == (None, None, len(attempt.program.steps))
    right = [attempt.trace.values[ref.index].detach().numpy() for ref in output_refs(attempt.program)]
    assert all(map(np.array_equal, outputs(attempt, found), right))
    inside = {index for index, _ in attempt.program.calls} - {ref.index for ref in output_refs(attempt.program)}
    assert all(found.values[index] is None for index in inside)


def test_as_graph__wrong_compiler__is_seen_in_the_output():
    attempt, found = run(BODIES["a chain"], Wrong)
    right = attempt.trace.values[output_refs(attempt.program)[0].index].detach().numpy()
    assert not np.allclose(outputs(attempt, found)[0], right)


@pytest.mark.parametrize(
    ("framework", "reason"),
    [(Eager, UnsupportedReason.NOT_COMPILED), (EagerAfterTracing, UnsupportedReason.STEP_BY_STEP)],
)
def test_as_graph__fallback_to_eager__is_no_pass(framework, reason):
    _, found = run(BODIES["a chain"], framework)
    assert found.lacking.reason is reason


def reads(value):
    return value * 2 if float(value.sum()) > 0 else value * 3


class Unreadable(Traced):
    """Gives outputs whose elements cannot be read, once its graph ran."""

    def array(self, tensor):
        message = "negative dimensions are not allowed"
        raise ValueError(message)


def test_as_graph__result_that_cannot_be_read__is_the_failure():
    attempt = record(BODIES["a chain"], profile="ordinary")
    tensors = {key: value.contiguous().view(-1).numpy() for key, value in attempt.sources.items()}
    found = as_graph(attempt.program, tensors, Unreadable(), lambda _: None, snapshots=True)
    kind, told = found.failure[1:]
    assert (kind, told) == ("ValueError", "its result cannot be read: negative dimensions are not allowed")
    assert len(found.facts) == len(found.values)


def test_as_graph__body_that_reads_a_number__says_so():
    _, found = run(lambda: reads(x()), Traced)
    assert "builtins.float" in found.lacking.detail


def test_as_graph__graph_that_cannot_be_made__is_the_failure():
    attempt, found = run(BODIES["a chain"], Broken)
    assert found.failure[1:] == ("RuntimeError", "no such node")
    assert attempt.program.steps[found.failure[0]].op != "output"


def test_as_graph__what_fails_eagerly__fails_alike_and_makes_no_graph():
    class Raising(Broken):
        def function(self, target):
            if target == "torch.sin":
                return real.linalg.inv  # of no square matrix
            return super().function(target)

    attempt, found = run(BODIES["a chain"], Raising)
    assert attempt.program.steps[found.failure[0]].target == "torch.sin"

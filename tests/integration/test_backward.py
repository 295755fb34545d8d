"""The gradient of a call's output is what it receives from other calls, however the call computes it."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.program.ir import PLACEHOLDER, is_unpacking
from tests.engine import record, run_test, substitute
from tests.faults import with_backward

CASES = 8
SIZES = (2, 3)


def written(x, state, *weights, cut=False):
    """One step of an LSTM: the hidden state is made of the cell state, as in torch; ``cut``, of its number alone."""
    h, c = state
    gates = real.nn.functional.linear(x, weights[0], weights[2]) + real.nn.functional.linear(h, weights[1], weights[3])
    i, f, g, o = gates.chunk(4, -1)
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * (cell.detach() if cut else cell).tanh(), cell


class Fused(real.autograd.Function):
    """The same as one node, whose outputs know nothing of each other."""

    @staticmethod
    def forward(ctx, x, h, c, *weights):
        ctx.save_for_backward(x, h, c, *weights)
        return written(x, (h, c), *weights)

    @staticmethod
    def backward(ctx, *given):
        inputs = [value.detach().requires_grad_() for value in ctx.saved_tensors]
        with real.enable_grad():
            outputs = written(inputs[0], inputs[1:3], *inputs[3:])
        return real.autograd.grad(outputs, inputs, given)


def apart(x, state, *weights):
    """Each output computed anew."""
    return written(x, state, *weights)[0], written(x, state, *weights)[1]


def cell_first(x, state, *weights):
    """The cell state is made of the hidden state, which no other side does."""
    h, c = written(x, state, *weights)
    return h, c + (h - h.detach()) * 0.5 - (h - h.detach()) * 0.5


RIGHT = {
    "written": written,
    "fused": lambda x, state, *weights: Fused.apply(x, *state, *weights),
    "apart": apart,
    "made of the other output": cell_first,
}


def one_step():
    return torch.nn.LSTMCell(3, 3)(random_tensor(dims=SIZES))


def two_steps():
    module = torch.nn.LSTMCell(3, 3)
    x = random_tensor(dims=SIZES)
    h, c = module(x)
    h, c = module(x, (torch.tanh(c), h))
    return h, c * 2


def hidden_alone():
    h, _ = torch.nn.LSTMCell(3, 3)(random_tensor(dims=SIZES))
    return torch.sin(h)


def written_to():
    h, c = torch.nn.LSTMCell(3, 3)(random_tensor(dims=SIZES))
    c.mul_(2)
    return h * c


BODIES = [one_step, two_steps, hidden_alone, written_to]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("name", RIGHT)
def test_run_test__call_whose_outputs_are_made_otherwise__is_aligned(name, body):
    verdicts = run_test(body, substitute(lstm_cell=RIGHT[name]), CASES)
    assert [(item.outcome, item.misalignment) for item in verdicts if item.outcome != "aligned"] == []
    assert len(verdicts) == CASES


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.heavy
def test_run_test__share_between_the_outputs_is_lost__is_the_calls_fault(body):
    verdicts = run_test(body, substitute(lstm_cell=lambda *given: written(*given, cut=True)), CASES)
    assert {(item.kind, item.operator, item.blame) for item in verdicts if item.outcome != "aligned"} == {
        ("gradient", "torch.lstm_cell", "candidate")
    }


@pytest.mark.parametrize("operator", ["sin", "tanh"])
def test_run_test__gradient_of_another_call_is_wrong__is_that_calls_fault(operator):
    function = getattr(real, operator)
    wrong = with_backward(function, lambda x, g: g * 0.9 * real.ones_like(x))
    body = {"sin": hidden_alone, "tanh": two_steps}[operator]
    verdicts = run_test(body, substitute(**{operator: wrong, "lstm_cell": RIGHT["fused"]}), CASES)
    assert {(item.kind, item.operator) for item in verdicts} == {("gradient", f"torch.{operator}")}


def traced(body):
    """Return an attempt, the reference's trace of it with gradients, and the parts of its tuples."""
    attempt = record(body)
    backend = TorchBackend()
    trace = backend.run(attempt.program, attempt.sources, snapshots=True)
    backend.backward(attempt.program, trace, attempt.cotangents)
    return attempt, trace, [i for i, step in enumerate(attempt.program.steps) if is_unpacking(step)]


def test_backward__output_made_of_another__has_what_it_is_given_from_outside():
    attempt, trace, (*_, h, c) = traced(two_steps)
    assert real.equal(trace.gradients[h], attempt.cotangents[0])
    assert real.equal(trace.gradients[c], attempt.cotangents[1] * 2)


def test_backward__output_that_only_its_own_call_uses__has_no_gradient():
    _, trace, (_, c) = traced(hidden_alone)
    assert trace.gradients[c] is None


@pytest.mark.parametrize("body", BODIES)
def test_backward__leaves__have_torchs_gradients(body):
    attempt, trace, _ = traced(body)
    program = attempt.program
    plain = TorchBackend().run(program, attempt.sources)
    roots = [plain.values[ref.index] for ref in program.body[-1].args]
    leaves = {
        i: plain.values[i] for i, step in enumerate(program.steps) if step.op == PLACEHOLDER and not step.in_setup
    }
    leaves |= {(0, name): value for name, value in plain.values[0].named_parameters()}
    cotangents = [attempt.cotangents[i] for i in range(len(roots))]
    expected = real.autograd.grad(roots, list(leaves.values()), cotangents)
    for key, value in zip(leaves, expected, strict=True):
        real.testing.assert_close(trace.gradients[key], value, rtol=1e-6, atol=1e-7)


def test_backward__twice_over_one_graph__leaves_no_hook_behind():
    attempt, trace, (*_, c) = traced(one_step)
    program, values = attempt.program, TorchBackend().run(attempt.program, attempt.sources).values
    h, cell = (values[i] for i in range(len(values)) if is_unpacking(program.steps[i]))
    inner = real.autograd.grad(h, cell, attempt.cotangents[0], retain_graph=True)[0]
    assert inner.abs().max() > 0
    assert real.equal(trace.gradients[c], attempt.cotangents[1])

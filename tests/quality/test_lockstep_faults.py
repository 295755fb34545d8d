"""A fault that one case of a lockstep has comes out as it does alone, and no other case is held for it."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random, random_tensor, torch
from ci_autotest.alignment.abreast import can_contend, contend
from ci_autotest.alignment.cases import Contender, differentiate, is_aligned, judge_case, try_case
from ci_autotest.alignment.rules import Rules
from ci_autotest.backends.forming import formed
from ci_autotest.backends.graph import gradients_in_columns
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.judgement import Verdict
from ci_autotest.record.declare import Declaration
from tests.engine import Nowhere, attempts, substitute

CASES = 12


def one_call():
    return torch.exp(random_tensor(2))


def broadcast():
    return torch.mul(random_tensor(2), random_tensor(2, 1, 1))


def several_calls():
    x = random_tensor(2)
    y = torch.exp(x)
    return torch.mul(torch.add(y, x), y) * 2.0, y.sum()


def with_numbers():
    return torch.softmax(random_tensor(2) + random(1, 4).to(int), dim=random(0, 2).to(int))


def with_parts():
    values, _ = torch.max(torch.exp(random_tensor(2)), 1)
    return values


def overwritten():
    y = random_tensor(2) * 2.0
    y.mul_(2)
    return torch.exp(y)


BODIES = (one_call, broadcast, several_calls, with_numbers, with_parts, overwritten)


class Faulty:
    """Answer an operator right, but for what has as many elements as the input of one case: that goes through a fault."""

    def __init__(self, operator, fault, count):
        self.operator, self.fault, self.count = operator, fault, count

    def __call__(self, given, *args, **kwargs):
        result = self.operator(given, *args, **kwargs)
        return self.fault(result, given) if given.numel() == self.count else result


def off(result, *_):
    return result * 1.5


def raises(*_):
    message = "no kernel for this shape"
    raise RuntimeError(message)


def exits(*_):
    raise SystemExit


def stops(*_):
    next(iter(()))


def of_inference(result, given):
    with real.inference_mode():
        return given + 0


class Wrapped:
    """What looks like a tensor and is none."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __getattr__(self, name):
        return getattr(self.tensor, name)

    def __repr__(self):
        return "wrapped"


def wrapped(result, *_):
    return Wrapped(result)


def a_view(result, *_):
    return result.view_as(result)


def unasking(result, given):
    if given.is_leaf:
        given.requires_grad_(False)
    return result


def wide(result, *_):
    return result.double()


def no_tensor(*_):
    return 1.0


def no_gradient(result, *_):
    return result.detach()


def written(result, *_):
    with real.no_grad():
        return result.add_(0)


def its_input(result, given, *_):
    return given.view_as(given)


def input_written(result, given, *_):
    with real.no_grad():
        given.add_(1)
    return result


def other_shape(result, *_):
    return result.unsqueeze(0)


class _WrongGradient(real.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.5


class _RaisingGradient(_WrongGradient):
    @staticmethod
    def backward(ctx, gradient):
        message = "no kernel for this gradient"
        raise RuntimeError(message)


class _WritingGradient(_WrongGradient):
    @staticmethod
    def backward(ctx, gradient):
        result = gradient.clone()
        gradient.mul_(3)
        return result


class _StoppingGradient(_WrongGradient):
    @staticmethod
    def backward(ctx, gradient):
        next(iter(()))


def stopping_gradient(result, *_):
    return _StoppingGradient.apply(result)


def wrong_gradient(result, *_):
    return _WrongGradient.apply(result)


def raising_gradient(result, *_):
    return _RaisingGradient.apply(result)


def writing_gradient(result, *_):
    return _WritingGradient.apply(result)


FAULTS = (
    off, raises, exits, stops, stopping_gradient, of_inference, wrapped, a_view, unasking, wide, no_tensor, no_gradient, written, its_input, input_written, other_shape, wrong_gradient,
    raising_gradient, writing_gradient,
)  # fmt: skip


def overwritten_by_nothing():
    y = torch.exp(random_tensor(2)) * 1.0
    y.mul_(0.0)
    return y + 1.0


@pytest.mark.parametrize("body", [one_call, several_calls, overwritten], ids=lambda body: body.__name__)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_in_one_case__of_a_lockstep__comes_out_as_it_does_alone(fault, body):
    watched = frozenset({1}) if body is overwritten else frozenset()
    found = [
        attempts().attempt(Declaration(body), body, (1, body.__name__, case, 0), watched=watched)
        for case in range(CASES)
    ]
    counts = [attempt.sources["t0"].numel() for attempt in found]
    odd = next(position for position, count in enumerate(counts) if counts.count(count) == 1 and count > 1)
    contender = Contender(substitute(exp=Faulty(real.Tensor.exp, fault, counts[odd])), Rules())
    ((rows, lockstep),) = formed(found)
    assert rows == list(range(CASES))
    lockstep.backward(lockstep.reference, Nowhere(), is_torchs_own=True)
    good, traces = contend(lockstep, contender, Nowhere())
    assert good | set(traces) == set(rows)
    together = {position: verdict(lockstep.attempt(position), contender, trace) for position, trace in traces.items()}
    for attempt in found:
        differentiate(attempt, TorchBackend())
    alone = [try_case(attempt, contender, TorchBackend()).verdict for attempt in found]
    assert [one.outcome for position, one in enumerate(alone) if position in good] == ["aligned"] * len(good)
    assert all(alone[position] == one for position, one in together.items())
    is_harmless = fault is unasking and body is overwritten  # no leaf is given to it
    assert good == set(rows) - ({odd} if not is_harmless else set())
    assert is_harmless or alone[odd].outcome == "misaligned" or fault in {written, a_view}


def verdict(attempt, contender, trace):
    if is_aligned(attempt, contender, trace):
        return Verdict(outcome="aligned")
    return judge_case(attempt, contender, TorchBackend(), trace).verdict


def test_a_fault_that_a_later_step_writes_over__is_seen_in_the_copy():
    watched = frozenset({2})
    body = overwritten_by_nothing
    found = [attempts().attempt(Declaration(body), body, (1, "t", case, 0), watched=watched) for case in range(CASES)]
    ((_, lockstep),) = formed(found)
    lockstep.backward(lockstep.reference, Nowhere(), is_torchs_own=True)
    wrong = substitute(mul=lambda value, other: real.Tensor.mul(value, other) if other == 0.0 else value * 1.5)
    good, _ = contend(lockstep, Contender(wrong, Rules()), Nowhere())
    assert not [position for position in good if found[position].sources["t0"].numel()]


def test_other_strictness__is_not_vouched_for_together():
    found = [attempts().attempt(Declaration(one_call), one_call, (1, "t", case, 0)) for case in range(CASES)]
    ((_, lockstep),) = formed(found)
    lockstep.backward(lockstep.reference, Nowhere(), is_torchs_own=True)
    good, traces = contend(lockstep, Contender(TorchBackend(), Rules(strictness="bitwise")), Nowhere())
    assert (good, len(traces)) == (set(), CASES)
    assert not can_contend(Contender(TorchBackend(), Rules(check_graph=True)))


def test_under_anomaly_detection__the_engine_goes_back():
    body = one_call
    found = [attempts().attempt(Declaration(body), body, (1, "t", case, 0)) for case in range(CASES)]
    with real.autograd.set_detect_anomaly(True):
        ((_, lockstep),) = formed(found)
        assert gradients_in_columns([one.trace.values[1].grad_fn for one in found], [], {}, list) is None
        lockstep.backward(lockstep.reference, Nowhere(), is_torchs_own=True)
    assert len(lockstep.reference.gradients[0]) == CASES

"""A fault that one case of a batch has comes out as it does alone, and no other case is held for it."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.cases import Contender, aligned_in_batch, differentiate, judge_case, try_case
from ci_autotest.alignment.tolerance_rules import Rules
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.record.declaration import Declaration
from tests.engine import Unreported, attempts, substitute

CASES = 12


def one_call():
    return torch.exp(random_tensor(2))


def several_calls():
    x = random_tensor(2)
    y = torch.exp(x)
    return torch.mul(torch.add(y, x), y) * 2.0, y.sum()


def overwritten():
    y = random_tensor(2) * 2.0
    y.mul_(2)
    return torch.exp(y)


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


class Panic(BaseException):
    """What a kernel in Rust raises: no ``Exception``."""


class Untold(Panic):
    def __str__(self):
        raise Panic


def panics(*_):
    raise Panic


def closes(*_):
    raise GeneratorExit


def untold(*_):
    raise Untold


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


class _PanickingGradient(_WrongGradient):
    @staticmethod
    def backward(ctx, gradient):
        raise Panic


def panicking_gradient(result, *_):
    return _PanickingGradient.apply(result)


def stopping_gradient(result, *_):
    return _StoppingGradient.apply(result)


def wrong_gradient(result, *_):
    return _WrongGradient.apply(result)


def raising_gradient(result, *_):
    return _RaisingGradient.apply(result)


def writing_gradient(result, *_):
    return _WritingGradient.apply(result)


FAULTS = (
    off, raises, exits, panics, closes, untold, panicking_gradient, stops, stopping_gradient, of_inference, wrapped, a_view, unasking, wide, no_tensor, no_gradient, written, its_input, input_written, other_shape, wrong_gradient,
    raising_gradient, writing_gradient,
)  # fmt: skip


def overwritten_by_nothing():
    y = torch.exp(random_tensor(2)) * 1.0
    y.mul_(0.0)
    return y + 1.0


@pytest.mark.parametrize("body", [one_call, several_calls, overwritten], ids=lambda body: body.__name__)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_in_one_case__of_a_batch__comes_out_as_it_does_alone(fault, body):
    watched = frozenset({1}) if body is overwritten else frozenset()
    found = [
        attempts().attempt(Declaration(body), body, (1, body.__name__, case, 0), watched=watched)
        for case in range(CASES)
    ]
    for attempt in found:
        differentiate(attempt, TorchBackend())
    counts = [attempt.sources["t0"].numel() for attempt in found]
    odd = next(position for position, count in enumerate(counts) if counts.count(count) == 1 and count > 1)
    contender = Contender(substitute(exp=Faulty(real.Tensor.exp, fault, counts[odd])), Rules())
    enter = Entered()
    sure, traces = held(found, contender, enter)
    assert enter.positions == [*range(CASES), *range(CASES)]
    alone = [try_case(attempt, contender, TorchBackend()).verdict for attempt in found]
    for position, (attempt, trace) in enumerate(zip(found, traces, strict=True)):
        if position in sure:
            assert alone[position].outcome == "aligned"
        else:
            assert judge_case(attempt, contender, TorchBackend(), trace).verdict == alone[position]
    is_harmless = fault is unasking and body is overwritten  # no leaf is given to it
    assert sure == set(range(CASES)) - ({odd} if not is_harmless else set())
    assert is_harmless or alone[odd].outcome == "misaligned" or fault in {written, a_view}


class Entered(Unreported):
    def __init__(self) -> None:
        self.positions: list[int] = []

    def __call__(self, position: int, /) -> None:
        self.positions.append(position)


def held(found, contender, enter=Unreported()):  # noqa: B008 - it holds nothing
    traces = contender.backend.submit(found, enter).traces()
    return aligned_in_batch(found, contender, traces, enter), traces


def test_a_fault_that_a_later_step_writes_over__is_seen_in_the_copy():
    watched = frozenset({2})
    body = overwritten_by_nothing
    found = [attempts().attempt(Declaration(body), body, (1, "t", case, 0), watched=watched) for case in range(CASES)]
    for attempt in found:
        differentiate(attempt, TorchBackend())
    wrong = substitute(mul=lambda value, other: real.Tensor.mul(value, other) if other == 0.0 else value * 1.5)
    sure, _ = held(found, Contender(wrong, Rules()))
    assert not [position for position in sure if found[position].sources["t0"].numel()]


def test_check_graph__is_judged_case_by_case():
    found = [attempts().attempt(Declaration(one_call), one_call, (1, "t", case, 0)) for case in range(CASES)]
    for attempt in found:
        differentiate(attempt, TorchBackend())
    assert held(found, Contender(TorchBackend(), Rules(check_graph=True)))[0] == set()

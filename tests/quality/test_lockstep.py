"""Cases in lockstep come out as they do alone: gradients to the bit, and every fault that one case of a batch may have."""

from __future__ import annotations

import importlib
import re

import msgspec
import pytest
import torch as real

from ci_autotest import random, random_tensor, torch
from ci_autotest.alignment.abreast import contend
from ci_autotest.alignment.cases import Contender, differentiate, is_aligned, judge_case, try_case
from ci_autotest.alignment.elements import same_bits
from ci_autotest.alignment.rules import Rules
from ci_autotest.backends.forming import formed
from ci_autotest.backends.torch_eager import TorchBackend
from ci_autotest.config import Candidate
from ci_autotest.discovery import families
from ci_autotest.judgement import Verdict
from ci_autotest.record.declare import Declaration, declaration_of
from ci_autotest.run import casework
from ci_autotest.run.bench import Bench
from ci_autotest.run.messages import Discover, Hello, RunCases
from ci_autotest.run.place import Place
from ci_autotest.run.tests import SUITE
from tests.engine import attempts, record, substitute

CASES = 12


def nowhere(case: int) -> None:
    """Be told a case."""


def declared_in(family: str):
    module = importlib.import_module(f"ci_autotest.suite.{family}")
    return [found for value in vars(module).values() if (found := declaration_of(value)) is not None]


@pytest.mark.parametrize("family", families())
def test_gradients_of_the_suite__in_columns__are_the_engines_to_the_bit(family):
    apart, swept = [], 0
    for declaration in declared_in(family):
        attempts = [
            attempt
            for case in range(4)
            if (attempt := record(declaration.body, case, test="t", auto_backward=declaration.auto_backward)).refused
            is None
        ]
        for _, lockstep in formed(attempts):
            lockstep.backward(lockstep.reference, nowhere, is_torchs_own=True)

            for position in lockstep.reference.cases:
                attempt = lockstep.attempt(position)
                gradients, swept = attempt.trace.gradients, swept + 1
                differentiate(attempt, TorchBackend())
                assert gradients.keys() == attempt.trace.gradients.keys(), declaration.body.__name__
                for key, expected in attempt.trace.gradients.items():
                    found = gradients[key]
                    same = found is expected if expected is None else found is not None and same_bits(found, expected)
                    apart += [] if same else [(declaration.body.__name__, key)]
    assert apart == []
    assert swept or family not in {"activations", "arithmetic", "pointwise", "reductions", "shape"}


def told(family: str, size: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what a bench says of 24 cases of each test of a family in batches of a size, times aside."""
    monkeypatch.setattr(casework, "BATCH", size)
    monkeypatch.setattr(casework, "_PART_S", float("inf"))
    bench = Bench(Place.create(), lambda _: None)
    candidates = [Candidate(name="torch", backend="torch"), Candidate(name="off", backend="torch")]
    bench.answer(
        Hello(
            root=".", folders=[], seed=0, strictness="tolerance", reference_device="cpu", candidates=candidates,
            tolerances=[],
        )
    )  # fmt: skip
    bench.equipment.backends["off"] = substitute(
        exp=lambda value: real.Tensor.exp(value) * 1.01, mul=real.Tensor.mul, sum=real.Tensor.sum
    )
    found = bench.answer(Discover(f"{SUITE}{family}"))
    done = [
        bench.answer(RunCases(test=test, cases=list(range(24)), candidates=["torch", "off"])) for test in found.tests
    ]
    return [re.sub(r'"\w*_s":[0-9.e+-]+', "", msgspec.json.encode(one).decode()) for one in done]


@pytest.mark.filterwarnings("ignore")  # torch warns once in a process: one of the two runs only
@pytest.mark.parametrize("family", families())
def test_the_suite__in_batches_of_1_and_of_7__comes_out_the_same(family, monkeypatch):
    assert told(family, 1, monkeypatch) == told(family, 7, monkeypatch)


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


def wrong_gradient(result, *_):
    return _WrongGradient.apply(result)


def raising_gradient(result, *_):
    return _RaisingGradient.apply(result)


def writing_gradient(result, *_):
    return _WritingGradient.apply(result)


FAULTS = (
    off, raises, exits, wide, no_tensor, no_gradient, written, its_input, input_written, other_shape, wrong_gradient,
    raising_gradient, writing_gradient,
)  # fmt: skip


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
    lockstep.backward(lockstep.reference, nowhere, is_torchs_own=True)
    good, traces = contend(lockstep, contender, nowhere)
    assert good | set(traces) == set(rows)
    together = {position: verdict(lockstep.attempt(position), contender, trace) for position, trace in traces.items()}
    for attempt in found:
        differentiate(attempt, TorchBackend())
    alone = [try_case(attempt, contender, TorchBackend()).verdict for attempt in found]
    assert [one.outcome for position, one in enumerate(alone) if position in good] == ["aligned"] * len(good)
    assert all(alone[position] == one for position, one in together.items())
    assert good == set(rows) - {odd}
    assert alone[odd].outcome == "misaligned" or fault is written


def verdict(attempt, contender, trace):
    if is_aligned(attempt, contender, trace):
        return Verdict(outcome="aligned")
    return judge_case(attempt, contender, TorchBackend(), trace).verdict

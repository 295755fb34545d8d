"""Confirming: a side that differs from itself is told apart; aliases; accumulated error and a third opinion."""

from __future__ import annotations

from itertools import groupby

import pytest
import torch as real
from torch.utils._python_dispatch import TorchDispatchMode

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.examination import TrialSides
from ci_autotest.alignment.repeatability import NUMBERS, judge_confirmed
from ci_autotest.alignment.verdict import live_of
from ci_autotest.backends.eager.backend import TorchBackend
from tests.engine import RULES, Rules, judged, record, substitute
from tests.faults import with_backward


def x(**how):
    return random_tensor(ndim=2, dim0=3, dim1=4, **how)


def chain():
    return torch.tanh(torch.exp(x()) * 2)


def unsteady():
    """Return an exp that is off in every second call."""
    calls = []

    def call(value):
        calls.append(1)
        return value.exp() + len(calls) % 2

    return call


def now_and_then_raising():
    calls = []

    def call(value):
        calls.append(1)
        if len(calls) % 2:
            message = "now and then"
            raise ValueError(message)
        return value.exp()

    return call


def sounder(is_off, wrong, right):
    """Return ``right``, which is ``wrong`` in the calls for which ``is_off`` says so."""
    calls = []

    def call(*args, **kwargs):
        calls.append(1)
        return (wrong if is_off(len(calls)) else right)(*args, **kwargs)

    return call


def raising(*_args):
    message = "at the first look"
    raise ValueError(message)


def only_the_first(count):
    return count == 1


def every_second(count):
    return bool(count % 2)


def exp_with_gradient(scaled):
    return with_backward(real.exp, lambda v, g: scaled(g) * v.exp())


def confirmed(body, candidate, reference=None, rules=RULES):
    return judge_confirmed(live_of(record(body)), TrialSides(candidate, reference or TorchBackend(), rules))


@pytest.mark.parametrize("exp", [unsteady(), now_and_then_raising()], ids=["values", "errors"])
def test_judge_confirmed__candidate_differs_from_itself__is_nondeterminism(exp):
    found = confirmed(chain, substitute(exp=exp))
    verdict = found.verdict
    assert (verdict.outcome, verdict.operator, verdict.kind, verdict.blame) == (
        "misaligned", "torch.exp", "nondeterminism", "candidate",
    )  # fmt: skip
    assert [step.target for _, step in found.live.program.calls] == ["torch.exp"]
    assert "differs from itself" in verdict.misalignment.detail


def test_judge_confirmed__reference_differs_from_itself__is_not_the_candidates_fault():
    verdict = confirmed(chain, TorchBackend(), substitute(exp=unsteady())).verdict
    assert (verdict.operator, verdict.kind, verdict.blame) == ("torch.exp", "nondeterminism", "reference")


@pytest.mark.parametrize("elements", [3000, 20_000])
def test_judge_confirmed__kernel_that_writes_nothing__differs_from_itself(elements):
    # The same body each time: what the runs before have left must not make up for it.
    unwritten = substitute(exp=lambda v: real.empty(v.shape))
    for _ in range(3):
        found = confirmed(lambda: torch.exp(random_tensor(ndim=1, dim0=elements, requires_grad=False)) * 2, unwritten)
        verdict = found.verdict
        assert (verdict.operator, verdict.kind, verdict.blame) == ("torch.exp", "nondeterminism", "candidate")


class Written(TorchDispatchMode):
    """Note the numbers that whole tensors are filled with, in the order of what else is noted."""

    def __init__(self, events):
        super().__init__()
        self.events = events

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is real.ops.aten.full.default:
            self.events.append(args[1])
        return function(*args, **(kwargs or {}))


def test_judge_confirmed__between_two_runs__memory_is_written_to_with_another_number():
    # What a kernel that writes nothing gives is the allocator's affair: this is what does not depend on it.
    events = []

    def exp(value):
        events.append("run")
        return value.exp()

    with Written(events):
        confirmed(lambda: torch.exp(x(requires_grad=False)), substitute(exp=exp))
    told = [event for event, _ in groupby(events)]
    first, second = NUMBERS
    assert first != second
    assert told == [first, second, "run", first, "run", second, "run"]


def test_judge_confirmed__both_repeat__is_the_verdict():
    assert confirmed(chain, TorchBackend()).verdict.outcome == "aligned"
    assert confirmed(chain, substitute(exp=lambda v: v.exp() + 1)).verdict.kind == "value"


FIRST_LOOKS = {
    "value": lambda v: v.exp() * 3,
    "shape": lambda v: v.exp()[:1],
    "dtype": lambda v: v.exp().double(),
    "no gradient": lambda v: v.exp().detach(),
    "gradient": exp_with_gradient(lambda g: g * 5),
    "forward raises": raising,
    "backward raises": exp_with_gradient(raising),
}


@pytest.mark.parametrize("is_off", [only_the_first, every_second])
@pytest.mark.parametrize("wrong", FIRST_LOOKS.values(), ids=FIRST_LOOKS.keys())
def test_judge__only_the_first_run_is_off__is_nondeterminism(wrong, is_off):
    candidate = substitute(exp=sounder(is_off, wrong, real.exp))
    verdict = judged(record(lambda: torch.exp(x())), candidate).verdict
    assert (verdict.outcome, verdict.operator, verdict.kind, verdict.blame) == (
        "misaligned", "torch.exp", "nondeterminism", "candidate",
    )  # fmt: skip


def test_judge__another_choice_in_each_run__is_aligned():
    def dropped(value, p=0.5, **_):
        return value * (real.rand(value.shape, generator=noise) > p) / (1 - p)

    noise = real.Generator().manual_seed(5)
    candidate = substitute(**{"nn.functional.dropout": dropped})
    assert judged(record(lambda: torch.nn.functional.dropout(x()) * 2), candidate).verdict.outcome == "aligned"


def test_judge_confirmed__gradient_differs_from_itself__is_of_the_operator_that_it_came_through():
    steps = sounder(every_second, exp_with_gradient(lambda g: g * 5), real.exp)
    verdict = confirmed(lambda: torch.exp(x()), substitute(exp=steps)).verdict
    assert (verdict.operator, verdict.target, verdict.kind) == ("torch.exp", "torch.exp", "nondeterminism")
    assert verdict.misalignment.what == "gradient of x"


def view_written_to():
    a = x(requires_grad=False)
    b = a.view(-1)
    b.mul_(2)
    return a + 1


def view_alone():
    return x().transpose(0, 1)


def fresh():
    return torch.relu(x(low=0.5, high=1.0, requires_grad=False))


@pytest.mark.parametrize(
    ("body", "operator", "function"),
    [
        pytest.param(view_written_to, "Tensor.view", lambda v, *shape: v.reshape(-1).clone(), id="written to later"),
        pytest.param(view_alone, "transpose", lambda v, a, b: v.transpose(a, b).clone(), id="a view became a copy"),
        pytest.param(fresh, "relu", lambda v: v[:], id="a result became a view"),
    ],
)
def test_judge_program__lost_alias__is_its_own_kind(body, operator, function):
    verdict = judged(record(body), substitute(**{operator: function})).verdict
    assert (verdict.outcome, verdict.kind, verdict.blame) == ("misaligned", "aliasing", "candidate")
    assert verdict.operator.rpartition(".")[2] == operator.rpartition(".")[2]
    assert verdict.misalignment.what.startswith("memory of ")


def test_judge_program__copy_where_neither_is_promised__is_aligned():
    copied = substitute(reshape=lambda v, shape: v.reshape(shape).clone())
    assert judged(record(lambda: x().reshape((4, 3))), copied).verdict.outcome == "aligned"


def test_judge_program__no_step_misaligned_alone__tells_how_the_error_grows():
    def body():
        value = random_tensor(ndim=1, dim0=8, low=1.0, high=2.0)
        for _ in range(6):
            value = value * 1.5
        return value

    verdict = judged(
        record(body), substitute(mul=lambda a, b: a * b * (1 + 9e-7)), Rules(rtol=1.3e-6, atol=0.0)
    ).verdict
    assert verdict.accumulated
    errors = [item.greatest_absolute for item in verdict.growth]
    assert len(errors) == 6
    assert errors == sorted(errors)
    assert errors[-1] > 3 * errors[0] > 0


def test_judge__gradient__is_told_what_gradcheck_says():
    doubled = substitute(tanh=with_backward(real.tanh, lambda v, g: 1.0005 * g * (1 - v.tanh() ** 2)))
    sentence = judged(record(lambda: torch.tanh(x())), doubled).verdict.oracle
    assert "gradcheck confirms the float64 gradient" in sentence
    assert "ULP from it" in sentence


def test_judged__first_run_of_the_reference_was_off__is_aligned_and_not_measured():
    attempt = record(lambda: torch.exp(x(requires_grad=False)))
    kept = judged(attempt, TorchBackend())
    attempt.trace.values[1].add_(1)
    found = judged(attempt, TorchBackend())
    assert (kept.verdict.outcome, kept.is_first_run_off) == ("aligned", False)
    assert (found.verdict.outcome, found.is_first_run_off) == ("aligned", True)

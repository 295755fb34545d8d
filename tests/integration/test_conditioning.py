"""What the inputs of a program account for: what a sum of terms that cancel costs, and nothing that is wrong."""

from __future__ import annotations

import math

import pytest
import torch as real

from ci_autotest import random_tensor, torch
from ci_autotest.alignment.blame.conditioning import excuse_by_inputs
from ci_autotest.alignment.blame.float64_runs import Float64Question, chosen, distance, widened
from ci_autotest.alignment.blame.oracle import blamed
from ci_autotest.alignment.blame.rounding import Errors
from ci_autotest.alignment.verdict import live_of
from tests.engine import record, substitute, tried

#: Elements that a bias' gradient is the sum of, for ``ConvTranspose2d`` of an image of 2 x 1023.
TERMS = 24_536


def summed():
    return torch.sum(random_tensor(ndim=2, dim0=2, dim1=TERMS), dim=1)


def asked(*absolute, wanted=(33.371676564216614, 126.85300707817078)):
    """Ask about two sums of ``TERMS`` elements of one size, with these sums of absolute values."""
    live = live_of(record(summed))
    wide, places = widened(live)
    size = real.tensor(absolute, dtype=real.float64)[:, None] / TERMS
    signs = real.ones(2, TERMS, dtype=real.float64)
    signs[:, ::2] = -1  # They cancel; what is left of them is the sum that is wanted.
    signs[:, 0] += real.tensor(wanted, dtype=real.float64) / size[:, 0]
    (key,) = wide.sources
    index = live.program.calls[-1][0]
    return Float64Question(live, wide._replace(sources={key: signs * size}), ("value", places[index]))


def told(candidate, reference, absolute=(12783.534606933594, 19574.47821044922), bad=(True, True)):
    question = asked(*absolute)
    truth = real.tensor([33.371676564216614, 126.85300707817078], dtype=real.float64)
    sides = [real.tensor(side, dtype=real.float64) for side in (candidate, reference)]
    errors = Errors(*sides, 1e-5 + 1.3e-6 * truth, real.tensor(bad), truth, real.float32)
    return excuse_by_inputs(question, errors)


#: Case 15 of the suite's ``conv_transpose2d`` in the soak: oneDNN adds the cotangents one by one, plain torch in blocks.
LUCKY = (1.609325408935547e-05, 5.0067901611328125e-06)
USUAL = (0.00014793872833251953, 0.0001933574676513672)
DROPPED = (12783.5 / TERMS, 0.0)


@pytest.mark.parametrize(
    ("sides", "is_excused"),
    [
        pytest.param((LUCKY, USUAL), True, id="one side 9 and 39 times nearer by luck"),
        pytest.param((USUAL, LUCKY), True, id="the other"),
        pytest.param((DROPPED, LUCKY), False, id="one term of 24,536 dropped"),
        pytest.param((LUCKY, DROPPED), False, id="one term dropped by the reference"),
        pytest.param(((DROPPED[0] / 100, 0.0), LUCKY), False, id="one term off by a hundredth"),
        pytest.param(((math.inf, 0.0), LUCKY), False, id="not finite"),
    ],
)
def test_excuse_by_inputs__a_sum_that_cancels(sides, is_excused):
    said = told(*sides)
    assert said == ("in float64 both sides are as near as the rounding of terms that cancel lets them be" * is_excused)


def test_excuse_by_inputs__terms_that_cancel_nothing__owe_what_the_result_does():
    assert told(LUCKY, USUAL, absolute=(33.371676564216614, 126.85300707817078)) == ""


@pytest.mark.parametrize(
    ("side", "apart"),
    [
        pytest.param(complex(math.inf, 1.5), 0.5, id="beside the same infinity"),
        pytest.param(complex(-math.inf, 1.0), math.inf, id="another infinity"),
        pytest.param(complex(2.0, 1.0), math.inf, id="a number"),
        pytest.param(complex(math.inf, math.nan), math.inf, id="NaN"),
    ],
)
def test_distance__complex_number_with_an_infinite_part__is_that_of_the_parts(side, apart):
    exact = real.tensor([complex(math.inf, 1.0)], dtype=real.complex128)
    assert distance(real.tensor([side], dtype=real.complex128), exact).tolist() == [apart]


@pytest.mark.parametrize(
    ("share", "is_excused"),
    [
        pytest.param(1.0, False, id="the reference is near where both sides agree"),
        pytest.param(10.0, True, id="the reference is as far where both sides agree"),
        pytest.param(1e6, False, id="the reference is wrong there: rounding has an end"),
    ],
)
def test_excuse_by_inputs__ten_times_what_one_sum_owes__by_the_references_worst(share, is_excused):
    owed = (12783.534606933594 * 2**-24, 19574.47821044922 * 2**-24)
    far = 10.0 if share <= 10 else 40.0
    assert bool(told((far * owed[0], 0), (0, share * owed[1]), bad=(True, False))) is is_excused


def in_turn(values):
    """Add one after the other, in the dtype of the values."""
    if values.dtype is real.float16:
        return _halves(values)
    return real.from_numpy(values.numpy().cumsum(-1, dtype="float32")[..., -1:]).reshape(values.shape[:-1])


def _halves(values):
    total = real.zeros((), dtype=real.float16)
    for value in values.flatten():
        total = total + value
    return total


def balanced(dtype=None, size=4097):
    """A sum of which little is left."""
    x = random_tensor(ndim=1, dim0=size, low=-64, high=64, dtype=dtype or float, requires_grad=False)
    return torch.sum(torch.cat([x * 1, x * -1.0000001]))


@pytest.mark.parametrize("seed", range(4))
def test_judge__sum_in_another_order__blames_nobody(seed):
    verdict = tried(balanced, substitute(sum=in_turn), seed=seed)
    assert (verdict.outcome, verdict.blame) == ("aligned", "ill_conditioned")


@pytest.mark.parametrize("seed", range(4))
def test_judge__one_term_of_that_sum_dropped__is_the_candidates(seed):
    verdict = tried(balanced, substitute(sum=lambda values: values[1:].sum()), seed=seed)
    assert (verdict.outcome, verdict.blame) == ("misaligned", "candidate")


def test_judge__half_precision_summed_in_half__is_the_candidates():
    """The reference sums in single precision: what adding in half costs is no rounding of that sum."""
    verdict = tried(lambda: balanced(real.float16, 257), substitute(sum=in_turn))
    assert (verdict.outcome, verdict.blame) == ("misaligned", "candidate")


def test_judge__wrong_at_a_tie__is_the_candidates():
    """Where the inputs move, the tie is broken: the gradient moves by as much as both sides are apart, and at once."""

    class AllOfThem(real.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            ctx.save_for_backward(values)
            return values.amax()

        @staticmethod
        def backward(ctx, gradient):
            (values,) = ctx.saved_tensors
            return gradient * (values == values.amax())

    def tied():
        return torch.amax(torch.ones(64) * random_tensor(ndim=0, low=1, high=2))

    verdict = tried(tied, substitute(amax=AllOfThem.apply))
    assert (verdict.outcome, verdict.blame) == ("misaligned", "candidate")


def trained():
    module = torch.nn.BatchNorm1d(2, momentum=None)
    module.train()
    x = random_tensor(dims=(129, 2), low=-1e5, high=1e5)
    return module(torch.cat([x, x * -1.0000001]))


def normalized(mean):
    """Return ``batch_norm`` with another way of writing down the mean."""

    def function(values, running_mean, running_var, *more, **how):
        before = running_mean.clone()
        result = real.nn.functional.batch_norm(values, running_mean, running_var, *more, **how)
        mean(values, running_mean, before)
        return result

    return function


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        pytest.param(
            lambda values, state, _: state.data.copy_(values.detach().double().mean(0)),
            ("aligned", "ill_conditioned"),
            id="summed in double",
        ),
        pytest.param(
            lambda values, state, _: state.data.copy_(values.detach()[1:].mean(0)),
            ("misaligned", "candidate"),
            id="one left out",
        ),
        pytest.param(
            lambda _, state, __: state.data.add_(1), ("misaligned", "candidate"), id="off by one of a hundred thousand"
        ),
    ],
)
def test_judge__state_after_the_run__float64_is_asked(mean, expected):
    verdict = tried(trained, substitute(**{"nn.functional.batch_norm": normalized(mean)}))
    assert (verdict.outcome, verdict.blame, verdict.kind) == (*expected, "state")


def powers():
    x = random_tensor(ndim=1, dim0=8, low=-3, high=-1)
    return torch.pow(x * 1.0, torch.ones(8) * 3)


class WrongSlope(real.autograd.Function):
    """A power whose gradient forgets the exponent of the base."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return real.pow(x, y)

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * y * x, None


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda x, y: real.full_like(x, 7.0) + 0 * x * y, id="seven"),
        pytest.param(lambda x, y: real.pow(x.abs(), y), id="the sign lost"),
        pytest.param(WrongSlope.apply, id="the gradient"),
    ],
)
def test_judge__a_step_leaves_the_domain__is_the_candidates(wrong):
    """A power of a negative base is NaN where the exponent is moved: that no measure exists excuses nothing."""
    verdict = tried(powers, substitute(pow=wrong))
    assert (verdict.outcome, verdict.blame) == ("misaligned", "candidate")


@pytest.mark.parametrize("name", ["acos", "asin", "acosh"])
def test_judge__at_the_edge_of_the_domain__is_the_candidates(name):
    def edge():
        return getattr(torch, name)(torch.ones(6) * torch.sign(random_tensor(ndim=0, low=1, high=2)))

    verdict = tried(edge, substitute(**{name: lambda x: getattr(real, name)(x) + 0.1}))
    assert (verdict.outcome, verdict.blame) == ("misaligned", "candidate")


@pytest.mark.parametrize("is_constant", [False, True])
def test_judge__beside_an_element_that_is_nan__is_the_candidates(is_constant):
    """The correlation with a constant row is NaN; moved, it is a number: that is no measure of the other elements."""

    def correlated():
        x = random_tensor(ndim=2, dim0=3, dim1=4, low=1, high=4, requires_grad=False)
        return torch.corrcoef(torch.cat([x * 1.0, torch.sign(x)[:1] * 2.0]) if is_constant else x * 1.0)

    def off(x):
        result = real.corrcoef(x).clone()
        result[0, 1] += 4e-5
        return result

    verdict = tried(correlated, substitute(corrcoef=off))
    assert (verdict.outcome, verdict.blame) == ("misaligned", "candidate")


def test_chosen__large_tensor__what_is_misaligned_and_a_sample():
    bad = real.zeros(1000, 1000, dtype=real.bool)
    bad[3, 5] = bad[999, 999] = True
    found = chosen(bad)
    assert {3005, 999_999} <= set(found.tolist())
    assert len(found) <= 2**16 + 2
    assert found.tolist() == sorted(set(found.tolist()))


def test_blamed__alone_wrong_somewhere_and_nearer_elsewhere__is_both():
    exact, bad = real.tensor([1.0, 1.0], dtype=real.float64), real.tensor([True, True])
    sides = real.tensor([2.0, 3.0]), real.tensor([1.0, math.inf])
    far = [(side.double() - exact).abs() for side in sides]
    opinion = blamed(sides, exact, Errors(far[0], far[1], real.full((2,), 1e-5), bad, exact, real.float32), "")
    assert (opinion.blame, "times farther" in opinion.sentence) == ("both", False)

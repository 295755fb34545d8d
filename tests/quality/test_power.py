"""The power of planted tests: a strong one notices every mutant, a weak one misses some and says why."""

from __future__ import annotations

import sys

import pytest
import torch as real

from ci_autotest import random, random_bool, random_tensor, torch
from ci_autotest.alignment.cases import differentiate
from ci_autotest.alignment.tolerance_rules import rules_for
from ci_autotest.backends.eager.backend import TorchBackend
from ci_autotest.power.mutated_torch import Noting
from ci_autotest.power.trial import MutantTrial, Terms
from ci_autotest.record.declaration import Declaration
from ci_autotest.record.user_operators import UserClass
from ci_autotest.values.power import MutantKind, SurvivalReason, UnscoredReason
from tests.engine import record

CASES = 12


def softmax():
    return torch.nn.functional.softmax(random_tensor(ndim=random(2, 4).to(int)), dim=random(0, 2).to(int))


def mean():
    return torch.mean(random_tensor(ndim=3), dim=random(0, 3).to(int), keepdim=random_bool())


def mean_without_keepdim():
    return torch.mean(random_tensor(ndim=3), dim=1)


def product():
    return random_tensor(ndim=2, dim0=4, dim1=3) * random_tensor(ndim=2, dim0=4, dim1=3)


def small():
    return torch.mul(random_tensor(ndim=2, low=-1, high=1), 4e-6)


def near_one():
    return torch.exp(random_tensor(ndim=2, low=-1e-3, high=1e-3))


def sign():
    return torch.sign(random_tensor(ndim=2, low=1, high=2))


def power_of(body, cases=CASES, mutants=100, operators=(), sources=0, **declared):
    attempts = {}
    for case in range(cases):
        attempt = record(body, case, test=body.__name__, edits={}, **declared)
        if attempt.is_complete:
            differentiate(attempt, TorchBackend())
            attempts[case] = attempt
    rules = rules_for((), "tolerance", "", Declaration(body, **declared))
    terms = Terms(rules, frozenset(operators), "0", mutants, sources)
    return MutantTrial(body.__name__, attempts, TorchBackend(), terms).power(lambda *_: None, {})


def survivors(power):
    return {(each.kind, each.detail): (each.reason, each.evidence) for each in power.mutants if each.reason}


def test_power__strong_test__notices_all_but_what_no_case_gives():
    found = power_of(softmax)

    assert survivors(found) == {(MutantKind.IGNORED, "dtype"): (SurvivalReason.ARGUMENT, "dtype=torch.float64")}
    assert found.score == found.killed / (found.killed + 1) > 0.9


def test_power__same_test_twice__is_the_same():
    assert power_of(mean, mutants=8) == power_of(mean, mutants=8)


def test_power__argument_that_is_drawn__is_no_reason():
    assert (MutantKind.IGNORED, "keepdim") not in survivors(power_of(mean))


def test_power__argument_that_is_never_given__is_the_reason():
    found = survivors(power_of(mean_without_keepdim))

    assert found[MutantKind.IGNORED, "keepdim"] == (SurvivalReason.ARGUMENT, "keepdim=True")


def test_power__no_backward_pass__is_the_reason():
    found = survivors(power_of(softmax, auto_backward=False))

    assert found[MutantKind.GRADIENT_TAIL, ""] == (SurvivalReason.NO_GRADIENT, "")


def sum_of_softmax():
    return torch.nn.functional.softmax(random_tensor(ndim=2), dim=-1).sum(-1)


def softmax_without_gradient():
    x = random_tensor(ndim=2)
    return torch.nn.functional.softmax(x, dim=-1).argmax(-1), x.sin()


@pytest.mark.parametrize("body", [sum_of_softmax, softmax_without_gradient])
def test_power__gradient_that_no_output_shows__is_no_notice_of_a_run(body):
    found = survivors(power_of(body, operators=["torch.nn.functional.softmax"]))

    assert found[MutantKind.GRADIENT_TAIL, ""] == (SurvivalReason.COTANGENT, "")


def test_power__gradient_that_an_output_shows__is_noticed():
    found = power_of(softmax, operators=["torch.nn.functional.softmax"])

    assert {each.kind for each in found.mutants if each.by == "gradient"} >= {MutantKind.GRADIENT_TAIL}


def test_power__no_broadcast__is_the_reason():
    reason, evidence = survivors(power_of(product))[MutantKind.NO_BROADCAST, ""]

    assert (reason, evidence) == (SurvivalReason.SHAPE, "an input 0 that is broadcast")


def test_power__no_dtype_compared__is_the_reason():
    def index():
        return torch.argmax(random_tensor(ndim=2), dim=1)

    found = survivors(power_of(index, check_dtype=False))

    assert found[MutantKind.INT32, ""] == (SurvivalReason.DTYPE_UNCHECKED, "int32")


def test_power__no_element_compared__is_the_reason():
    found = power_of(softmax, check_allclose=False)

    assert survivors(found)[MutantKind.ZEROS, ""] == (SurvivalReason.VALUES_UNCHECKED, "")
    assert not found.powerless


def test_power__tolerance_that_hides_zeros__is_powerless():
    found = power_of(small, rtol=1e-3, atol=1e-2)

    zeros = next(each for each in found.powerless if each.kind is MutantKind.ZEROS)
    assert zeros.evidence == "rtol 0.001, atol 0.01"
    assert 1e-6 < zeros.error < 4.1e-6
    assert zeros.allowed == pytest.approx(1e-2, rel=0.01)


def test_power__tolerance_that_hides_unrelated_elements__is_powerless_with_the_correlation():
    found = power_of(near_one, rtol=0.0, atol=1e-2)

    (unrelated,) = found.powerless
    assert unrelated.kind is MutantKind.UNRELATED
    assert unrelated.correlation == pytest.approx(0.086, abs=0.02)


def random_numbers():
    return torch.randn_like(random_tensor(ndim=2))


def dropped():
    return torch.nn.functional.dropout(random_tensor(ndim=2, dim0=2, dim1=2))


@pytest.mark.parametrize(
    ("body", "operator", "kinds"),
    [
        (random_numbers, "torch.randn_like", {MutantKind.ZEROS, MutantKind.UNRELATED}),
        (dropped, "torch.nn.functional.dropout", {MutantKind.ZEROS}),
    ],
)
def test_power__operator_that_leaves_its_result_open__is_powerless_and_counts(body, operator, kinds):
    found = power_of(body, operators=[operator])

    assert {each.kind for each in found.powerless} == kinds
    assert {each.reason for each in found.powerless} == {SurvivalReason.OPEN}
    assert found.survived >= len(kinds)


def test_power__uninitialized_memory__may_be_zeros():
    def body():
        return torch.empty_like(random_tensor(ndim=2))

    assert power_of(body).powerless == ()


def test_power__default_tolerance__is_not_powerless():
    assert power_of(small, rtol=1e-5, atol=1e-9).powerless == ()
    assert power_of(near_one).powerless == ()


def test_power__mutants_that_are_right__do_not_count():
    found = power_of(product)

    assert {each.kind for each in found.mutants if each.outcome == "equivalent"} == {MutantKind.SWAPPED}
    assert found.killed + found.survived + found.equivalent == len(found.mutants)
    assert found.score == found.killed / (found.killed + found.survived)


def test_power__few_mutants__keeps_the_hollow_ones():
    found = power_of(softmax, mutants=3)

    assert len(found.mutants) == 3
    assert [each.kind for each in found.mutants[:2]] == [MutantKind.ZEROS, MutantKind.UNRELATED]


def test_power__other_operators_than_the_replaced__are_left_alone():
    def body():
        return torch.exp(torch.nn.functional.softmax(random_tensor(ndim=2), dim=1))

    found = power_of(body, operators=["torch.exp"])

    assert {each.operator for each in found.mutants} == {"torch.exp"}
    none = power_of(softmax, operators=["torch.exp"])
    assert none.unscored is UnscoredReason.NOT_REPLACED
    assert none.why == "torch.nn.functional.softmax"


class _Gate(real.nn.Module):
    """A layer of the author, in which an operator of torch has one of its arguments."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner = real.nn.Linear(size, 3)

    def forward(self, x: real.Tensor, bias: float = 0.5) -> real.Tensor:
        return real.sigmoid(self.inner(x)) + bias


Gate = UserClass(f"{__name__}._Gate", _Gate)


def test_power__class_of_modules__has_mutants_of_its_calls(monkeypatch: pytest.MonkeyPatch):
    def body():
        n = random(1, 40).to(int)
        return Gate(n)(random_tensor(ndim=2, dim1=n))

    operator = f"{__name__}._Gate"
    monkeypatch.setattr(sys.modules[__name__], "_Gate", Gate)
    found = power_of(body, operators=[operator])

    assert {each.operator for each in found.mutants} == {operator}
    assert {MutantKind.ZEROS, MutantKind.LAST_ELEMENT, MutantKind.DETACHED, MutantKind.BFLOAT16} <= {
        each.kind for each in found.mutants if each.outcome == "killed"
    }
    assert survivors(found) == {(MutantKind.IGNORED, "bias"): (SurvivalReason.ARGUMENT, "bias=1.25")}


class _Counting(real.nn.Module):
    """A layer of the author that writes to its state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", real.zeros(()))

    def forward(self, x: real.Tensor) -> real.Tensor:
        self.calls += 1
        return x * 2.0 + self.calls


Counting = UserClass(f"{__name__}._Counting", _Counting)


def test_power__module_with_a_state__is_called_once(monkeypatch: pytest.MonkeyPatch):
    def body():
        return Counting()(random_tensor(ndim=2)) * 0.0

    operator = f"{__name__}._Counting"
    monkeypatch.setattr(sys.modules[__name__], "_Counting", Counting)
    found = power_of(body, operators=[operator])

    # A module that a mutant called twice would be noticed by its state.
    assert "state" not in {each.by for each in found.mutants}
    assert any(each.outcome == "killed" for each in found.mutants)


class _Doubling(real.nn.Module):
    """A layer of the author that writes to its input."""

    def forward(self, x: real.Tensor) -> real.Tensor:
        return x.mul_(2.0)


Doubling = UserClass(f"{__name__}._Doubling", _Doubling)


def test_power__module_that_writes_to_its_input__has_mutants_that_count(monkeypatch: pytest.MonkeyPatch):
    operator = f"{__name__}._Doubling"
    monkeypatch.setattr(sys.modules[__name__], "_Doubling", Doubling)
    found = power_of(lambda: Doubling()(random_tensor(ndim=2) * 1.0), operators=[operator])

    assert {MutantKind.ZEROS, MutantKind.BFLOAT16, MutantKind.LAST_ELEMENT} <= {
        each.kind for each in found.mutants if each.outcome == "killed"
    }


def test_noting__entered_again_while_it_is_in_force__gives_calls_of_modules_back():
    before, mode = real.nn.Module.__call__, Noting(0, asks_gradient=False)
    with mode, mode:
        assert real.nn.Module.__call__ is not before
    assert real.nn.Module.__call__ is before


def test_power__dimension_without_large_sizes__is_named_with_its_greatest_one():
    def body():
        n = random(1, 40).to(int)
        return torch.exp(random_tensor(ndim=2, dim1=n))

    (limit,) = power_of(body, cases=20).limits
    assert (limit.dimension, limit.most, limit.why) == ("n", 39, "range")
    assert power_of(lambda: torch.exp(random_tensor(ndim=1)), cases=20).limits == ()


def test_power__nothing_compared__has_no_score():
    assert power_of(softmax, cases=0).unscored is UnscoredReason.NOTHING_COMPARED


def test_power__no_operator__has_no_score():
    def body():
        return random_tensor(ndim=2).detach()

    assert power_of(body).unscored is UnscoredReason.NO_OPERATOR


def test_power__mutant_that_ended_its_worker__is_noticed_and_not_run_again():
    attempt = record(softmax, 0)
    differentiate(attempt, TorchBackend())
    trial = MutantTrial(
        "t", {0: attempt}, TorchBackend(), Terms(rules_for((), "tolerance", "", None), frozenset(), "0", 2)
    )
    entered = []

    found = trial.power(lambda case, number, _: entered.append(number), {0: "crash"})

    assert found.mutants[0].by == "crash"
    assert found.mutants[0].outcome == "killed"
    assert 0 not in entered


def test_power__eigenvectors__sign_is_no_mistake_of_a_mutant():
    def body():
        x = random_tensor(ndim=2, dim0=4, dim1=4)
        return torch.linalg.eigh(x + x.transpose(0, 1))[1]

    found = power_of(body, auto_backward=False, mutants=400)

    assert all(each.outcome != "survived" for each in found.mutants if each.kind is MutantKind.ZEROS)


def test_power__sources__are_changes_in_what_answers_the_operator():
    found = power_of(softmax, cases=4, mutants=1, sources=12)

    changed = [each for each in found.mutants if each.kind is MutantKind.SOURCE]
    assert len(changed) == 12
    assert all(" -> " in each.detail and each.operator == "torch.nn.functional.softmax" for each in changed)
    assert {each.outcome for each in changed} >= {"killed", "equivalent"}
    assert all(each.by != "error" for each in changed)


def test_power__sources__are_the_same_for_the_same_seed():
    assert power_of(softmax, cases=2, mutants=1, sources=3) == power_of(softmax, cases=2, mutants=1, sources=3)

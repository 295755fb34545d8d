"""Each mutant changes what its name says, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from ci_autotest.backends.nest import tensors_in
from ci_autotest.power.argument_mutants import axis, constant, ignored, no_broadcast, stuck, swapped
from ci_autotest.power.call import OperatorCall
from ci_autotest.power.mutants import mutants_of
from ci_autotest.power.mutated_torch import Mutating
from ci_autotest.power.result_mutants import (
    beyond_tolerance,
    bfloat16,
    copy_of_input,
    detached,
    divisor,
    dropped_term,
    gradient_tail,
    half_sum,
    int32,
    last_element,
    of_result,
    stale,
    unrelated,
    written_input,
    zeros,
)
from ci_autotest.values.power import MutantKind
from ci_autotest.values.tolerance import tolerance_for

X = torch.tensor([[0.5, -1.0, 2.0], [3.0, 0.25, -4.0]])
Y = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
ROW = torch.tensor([10.0, 20.0, 30.0])


def call(function, *args, **kwargs):
    return OperatorCall(function, args, kwargs)


@pytest.mark.parametrize(
    ("mutant", "given", "expected"),
    [
        pytest.param(of_result(zeros), call(torch.exp, X), torch.zeros(2, 3), id="zeros"),
        pytest.param(of_result(copy_of_input), call(torch.exp, X), X, id="copy of the input"),
        pytest.param(
            of_result(last_element), call(torch.abs, X), torch.tensor([[0.5, 1, 2], [3, 0.25, 0]]), id="last element"
        ),
        pytest.param(of_result(divisor), call(torch.mean, Y), torch.tensor(21 / 5), id="N - 1"),
        pytest.param(axis("dim"), call(torch.sum, Y, 0), torch.tensor([6.0, 15.0]), id="another axis"),
        pytest.param(
            axis("dim"), call(torch.sum, Y, [0], keepdim=True), Y.sum(1, keepdim=True), id="another axis, list"
        ),
        pytest.param(swapped, call(torch.sub, X, Y), Y - X, id="swapped"),
        pytest.param(constant("negative_slope"), call(functional.leaky_relu, -Y, 0.5), -Y * 0.55, id="constant off"),
        pytest.param(
            constant("alpha"), call(functional.elu, -Y), functional.elu(-Y, 1.1), id="constant off that is a default"
        ),
        pytest.param(ignored("keepdim"), call(torch.sum, Y, 0, keepdim=True), Y.sum(0), id="ignored keepdim"),
        pytest.param(
            ignored("bias"), call(functional.linear, X, Y, torch.ones(2)), functional.linear(X, Y), id="ignored bias"
        ),
        pytest.param(stuck("keepdim"), call(torch.sum, Y, 0), Y.sum(0, keepdim=True), id="switch that is stuck"),
        pytest.param(
            no_broadcast, call(torch.add, Y, ROW), torch.tensor([[11.0, 22, 33], [4, 5, 6]]), id="no broadcast"
        ),
        pytest.param(int32, call(torch.argmax, Y, 1), torch.tensor([2, 2], dtype=torch.int32), id="int32 indices"),
        pytest.param(
            of_result(half_sum), call(torch.sum, torch.tensor([2048.0, 1.0])), torch.tensor(2048.0), id="sum in half"
        ),
        pytest.param(bfloat16, call(torch.add, torch.tensor(256.0), 1), torch.tensor(256.0), id="bfloat16"),
    ],
)
def test_mutant__of_a_call__changes_what_it_says(mutant, given, expected):
    torch.testing.assert_close(mutant(given), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("mutant", "given"),
    [
        pytest.param(of_result(copy_of_input), call(torch.sum, X), id="no input of the result's shape"),
        pytest.param(axis("dim"), call(torch.sum, ROW, 0), id="one axis alone"),
        pytest.param(swapped, call(torch.exp, X), id="one input"),
        pytest.param(swapped, call(torch.mm, X, Y.T.contiguous()[:, :1]), id="the other order is refused"),
        pytest.param(ignored("dim"), call(torch.sum, X), id="left out already"),
        pytest.param(no_broadcast, call(torch.add, X, Y), id="same shapes"),
        pytest.param(no_broadcast, call(torch.mm, X, Y.T), id="shapes that do not broadcast"),
        pytest.param(int32, call(torch.exp, X), id="no int64"),
        pytest.param(of_result(unrelated), call(torch.sum, X), id="one element has no other order"),
    ],
)
def test_mutant__of_a_call_that_cannot_show_it__is_right(mutant, given):
    assert torch.equal(mutant(given), given.run())


def test_unrelated__floats__have_the_mean_the_spread_and_a_correlation_of_0_086():
    found = of_result(unrelated)(call(torch.exp, X))

    both = torch.stack([found.flatten(), X.exp().flatten()])
    assert torch.corrcoef(both)[0, 1] == pytest.approx(0.086, abs=1e-5)
    torch.testing.assert_close(both.mean(1)[0], both.mean(1)[1])
    torch.testing.assert_close(both.std(1)[0], both.std(1)[1])


def test_unrelated__integers__are_in_another_order():
    found = of_result(unrelated)(call(torch.argsort, Y[0]))

    assert found.tolist() != [0, 1, 2]
    assert sorted(found.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_beyond_tolerance__default_tolerance__is_above_it_by_half(dtype):
    name = str(dtype).removeprefix("torch.")
    allowed = tolerance_for(name)
    given = call(torch.abs, Y.to(dtype))

    wrong = of_result(beyond_tolerance(tolerance_for))(given)

    error, bound = (wrong - given.run()).abs().double(), allowed.atol + allowed.rtol * given.run().double()
    assert (error > bound).all()
    assert (error < 3 * bound).all()


def test_stale__same_shape_with_other_values__returns_the_first_result():
    mutant = stale()

    first, again, other = (mutant(call(torch.exp, each)) for each in (X, Y, ROW))

    assert torch.equal(first, X.exp())
    assert torch.equal(again, X.exp())
    assert torch.equal(other, ROW.exp())


def test_written_input__right_result__changes_the_first_element_alone():
    given = X.clone()

    assert torch.equal(written_input(call(torch.exp, given)), X.exp())
    assert (given != X).flatten().tolist() == [True, False, False, False, False, False]


def gradients(mutant, function, *inputs):
    leaves = [each.clone().requires_grad_() for each in inputs]
    result = mutant(call(function, *leaves))
    if not result.requires_grad:
        return result, None
    return result, torch.autograd.grad(result, leaves, torch.ones_like(result), allow_unused=True)


def test_detached__result_of_leaves__requires_no_gradient():
    result, found = gradients(detached, torch.mul, X, Y)
    assert torch.equal(result, X * Y)
    assert found is None


def test_dropped_term__second_input__has_no_gradient():
    result, found = gradients(dropped_term(1), torch.mul, X, Y)

    assert torch.equal(result, X * Y)
    assert torch.equal(found[0], Y)
    assert found[1] is None


def test_gradient_tail__of_the_first_input__is_zero():
    result, found = gradients(gradient_tail, torch.mul, X, Y)

    assert torch.equal(result, X * Y)
    assert found[0].tolist() == [[1, 2, 3], [4, 5, 0]]
    assert torch.equal(found[1], X)


@pytest.mark.parametrize("change", [zeros, unrelated, last_element])
def test_of_result__other_elements__have_the_right_gradient(change):
    _, found = gradients(of_result(change), torch.mul, X, Y)

    assert torch.equal(found[0], Y)


def test_of_result__named_tuple__keeps_its_type_and_integers():
    found = of_result(zeros)(call(torch.max, Y, 1))

    assert type(found) is torch.return_types.max
    assert [each.tolist() for each in tensors_in(found)] == [[0, 0], [0, 0]]


def test_mutating__in_place_spelling__writes_the_mistake_to_the_receiver():
    given = Y.clone()

    with Mutating("torch.exp", of_result(zeros)):
        result = given.exp_()

    assert result is given
    assert torch.equal(given, torch.zeros_like(Y))


def test_mutating__other_operator__is_right():
    with Mutating("torch.exp", of_result(zeros)):
        assert torch.equal(torch.sqrt(Y), Y.sqrt())


def kinds(operator, *calls, **how):
    return {(each.kind, each.detail) for each in mutants_of(operator, calls, tolerance_for, **how)}


def test_mutants_of__reduction__has_what_its_calls_can_show():
    found = kinds("torch.sum", call(torch.sum, X, 0))

    assert found == {
        (MutantKind.ZEROS, ""), (MutantKind.UNRELATED, ""), (MutantKind.LAST_ELEMENT, ""), (MutantKind.HALF_SUM, ""),
        (MutantKind.BEYOND_TOLERANCE, ""), (MutantKind.WRITTEN_INPUT, ""), (MutantKind.BFLOAT16, ""),
        (MutantKind.STALE, ""), (MutantKind.DETACHED, ""), (MutantKind.GRADIENT_TAIL, ""), (MutantKind.AXIS, "dim"),
        (MutantKind.STUCK, "keepdim"), (MutantKind.IGNORED, "keepdim"), (MutantKind.IGNORED, "dtype"),
    }  # fmt: skip


def test_mutants_of__python_operator__misses_no_argument_that_it_cannot_give():
    given = call(torch.add, X, Y)

    assert (MutantKind.IGNORED, "alpha") in kinds("torch.add", given)
    assert (MutantKind.IGNORED, "alpha") not in kinds("torch.add", given, is_syntax=True)


def test_mutants_of__integers__have_no_gradient_and_no_tolerance():
    found = {kind for kind, _ in kinds("torch.argmax", call(torch.argmax, X, 1))}

    assert MutantKind.INT32 in found
    assert not found & {MutantKind.DETACHED, MutantKind.GRADIENT_TAIL, MutantKind.BEYOND_TOLERANCE}

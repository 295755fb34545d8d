"""What a body may not do, and what the reference refuses: an error that says what to write, or a rejected attempt."""

from __future__ import annotations

import unittest
from functools import partial

import numpy as np
import pytest
import torch as real

from ci_autotest import note, random, random_tensor, torch
from ci_autotest.alignment.cases import Contender, judge_refusal, refusal_of
from ci_autotest.errors import AuthorError
from ci_autotest.program.refusal import is_demanded
from ci_autotest.record.function import plain_function
from tests.engine import Rules, record, substitute


def x(**how):
    return random_tensor(ndim=2, dim0=2, dim1=3, **how)


def without_torch_function(value):
    with real._C.DisableTorchFunctionSubclass():
        return real.sin(value)


def with_gradient():
    value = x()
    (value * 2).sum().backward()
    return value


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda: 3, "the body returns int 3, which no recorded step gave: every side would return the same."),
        (lambda: x().sum().item, "the body returns Method."),
        (lambda: [x(), "text"], "the body returns str 'text', which"),
        (lambda: {x()}, "the body returns set"),
        (lambda: real.ones(2), "the body returns Tensor"),
        (lambda: x().data_ptr(), "`.data_ptr` of a recorded tensor: an address means nothing for a candidate. Compare values"),
        (lambda: (x() * 2).grad_fn.next_functions, "`.grad_fn.next_functions` of a recorded tensor: a grad_fn depends on the implementation"),
        (lambda: x().no_such, "the body raised AttributeError: torch.Tensor has no attribute 'no_such'."),
        (lambda: without_torch_function(x()), "code in C++ calls aten.sin.default on a recorded tensor, and only calls from Python"),
        (lambda: real.utils.dlpack.to_dlpack(x()), "Code in C++ read the memory of a recorded tensor: put the call into"),
        (lambda: real.nn.utils.clip_grad_norm_([with_gradient()], 1, foreach=True), "torch._foreach_norm is not recorded: pass foreach=False."),
        (lambda: setattr(real.zeros(2, 3), "data", x()), "`p.data = x` of a plain tensor is not recorded: write"),
        (lambda: real.nn.Parameter(x()), "torch.nn.Parameter of a recorded tensor is not recorded: a module would keep it"),
        (lambda: real.optim.SGD([x() * 2], lr=0.1), "can't optimize a non-leaf Tensor"),
        (lambda: x() + object(), "a object cannot be an argument of a recorded call"),
        (lambda: x() * np.ones(3), "a ndarray cannot be an argument of a recorded call"),
        (lambda: torch.nn.Linear(3, 2).register_backward_hook(print), "`.register_backward_hook()` of a module is not recorded. Use .register_full_backward_hook. Use its forward"),
        (lambda: 1 / 0, "the body raised ZeroDivisionError: division by zero"),
        (lambda: torch.no_such(x()), "the body raised AttributeError: module 'torch' has no attribute 'no_such'"),
    ],
    ids=[
        "an int", "a function", "a list with text", "a set", "a plain tensor", "data_ptr", "grad_fn",
        "no such attribute", "an operator in C++", "memory in C++", "a foreach kernel", "data of a plain tensor", "a parameter",
        "an error below a frame of the compiler", "an object", "an array", "a module's method", "the body's own error",
        "no such operator",
    ],
)  # fmt: skip
def test_record__what_cannot_be_recorded__says_what_to_write(body, said):
    with pytest.raises(AuthorError) as caught:
        record(body)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [lambda: 1 / 0, lambda: x().data_ptr(), lambda: torch.einsum(random(0, 1), x())],
    ids=["own error", "refused method", "untyped generator"],
)
def test_record__error_of_the_author__names_file_and_line(body):
    with pytest.raises(AuthorError, match=rf"\(test_unsupported_uses\.py, line {body.__code__.co_firstlineno}\)"):
        record(body)


def test_record__error_in_a_folder_named_as_one_of_torchs__is_the_authors_own():
    names: dict = {}
    exec(compile("def fail():\n    return 1 / 0\n", "/home/me/torch/nested/mine.py", "exec"), names)  # noqa: S102
    with pytest.raises(AuthorError, match=r"the body raised ZeroDivisionError: .* \(mine\.py, line 2\)"):
        record(lambda: x() * names["fail"]())


def test_record__error_of_torchs_own_transform__says_what_to_write():
    with pytest.raises(AuthorError, match=r"torch\.func is not recorded"):
        record(lambda: real.func.vmap(real.sin)(x()))


def test_record__reference_refuses__is_a_rejection():
    attempt = record(lambda: x().reshape(7) * 2)
    assert (attempt.refused.target, attempt.refused.args[1:]) == ("reshape", (7,))
    assert refusal_of(attempt).startswith("reshape: RuntimeError: shape '[7]' is invalid")
    assert attempt.program.steps[-2] == attempt.refused


def test_record__refusal_caught_by_the_body__is_a_step_and_the_body_goes_on():
    def body():
        value = x()
        try:
            value.reshape(7)
        except RuntimeError:
            pass
        return value * 2

    attempt = record(body)
    assert attempt.refused is None
    assert [(step.target, step.modes) for step in attempt.program.steps] == [
        ("t0", ()), ("reshape", ("refuses:RuntimeError",)), ("operator.mul", ()), ("output", ()),
    ]  # fmt: skip


def expects_by_pytest():
    value = x()
    with pytest.raises(RuntimeError, match="invalid"):
        value.reshape(7)
    return value * 2


def expects_by_unittest():
    value = x()
    with unittest.TestCase().assertRaises(RuntimeError):  # noqa: PT027 - what is tested
        value.reshape(7)
    return value * 2


@pytest.mark.parametrize("body", [expects_by_pytest, expects_by_unittest])
def test_record__refusal_that_the_body_expects__is_demanded(body):
    attempt = record(body)
    assert attempt.refused is None
    assert [step.modes for step in attempt.program.steps] == [(), ("raises:RuntimeError",), (), ()]


def test_record__raises_is_declared_and_the_reference_refuses__ends_there_and_is_accepted():
    attempt = record(lambda: x().reshape(7) * 2, raises=(RuntimeError,), match="invalid for input")
    assert (attempt.refused, [step.target for step in attempt.program.steps]) == (None, ["t0", "reshape", "output"])
    assert [is_demanded(step) for step in attempt.program.steps] == [False, True, False]


def refused_with_a_note():
    note("seven of six")
    return torch.reshape(x(), (7,))


def test_record__refusal_after_a_note__has_the_note_demanded_or_not():
    demanded, rejected = record(refused_with_a_note, raises=(RuntimeError,)), record(refused_with_a_note)
    assert (demanded.notes, rejected.notes) == (("seven of six",),) * 2
    lenient = judge_refusal(rejected, Contender(substitute(reshape=lambda value, shape: value), Rules()))
    assert lenient.verdict.notes == ("seven of six",)


def test_record__refusal_of_an_ordinary_case_that_was_to_have_a_profile__says_why_it_has_none():
    attempt = record(
        lambda: torch.ones(2).reshape(7), raises=(RuntimeError,), test="a", case=1, profiles=("non_contiguous",)
    )
    assert (attempt.profile, attempt.unfit) == ("ordinary", ("non_contiguous", "no_drawn_tensor"))


ACCEPTS = "the reference refuses nothing: the body should raise RuntimeError, but it returned. Correct the body"
OTHER = "the reference raises RuntimeError: shape '[7]' is invalid for input of size 6, but the body should raise IndexError"
WORDS = "but the body should raise RuntimeError matching 'must match'. Correct raises= and match="


@pytest.mark.parametrize(
    ("body", "declared", "says"),
    [
        pytest.param(lambda: x() * 2, {"raises": (RuntimeError,)}, ACCEPTS, id="accepts"),
        pytest.param(lambda: x().reshape(7), {"raises": (IndexError,)}, OTHER, id="another class"),
        pytest.param(lambda: x().reshape(7), {"raises": (RuntimeError,), "match": "must match"}, WORDS, id="words"),
        pytest.param(
            lambda: 1 / 0, {"raises": (ZeroDivisionError,)}, "the body raised ZeroDivisionError", id="no step"
        ),
    ],
)
def test_record__raises_is_declared_and_not_so__is_the_authors_error(body, declared, says):
    with pytest.raises(AuthorError) as error:
        record(body, **declared)
    assert says in str(error.value)


def test_record__profile_brings_a_refusal_of_its_own__is_a_rejection():
    def body():
        value, weight = random_tensor(1, 4, requires_grad=False), random_tensor(1, 4)
        doubled = value * weight
        value.mul_(weight)
        doubled.sum().backward()

    attempts = [
        record(body, number=number, raises=(RuntimeError,), match="modified by an inplace", profile="non_contiguous")
        for number in range(12)
    ]
    assert {attempt.refused.target if attempt.refused else "" for attempt in attempts} == {"", "mul_"}


def test_record__expected_by_the_body_and_accepted_by_the_reference__is_the_authors_error():
    def body():
        with pytest.raises(RuntimeError):
            x().reshape(6)

    with pytest.raises(AuthorError, match=r"the body raised Failed: DID NOT RAISE .*RuntimeError"):
        record(body)


def test_record__refused_otherwise_than_the_body_expects__is_the_authors_error():
    def body():
        with pytest.raises(RuntimeError, match="must match"):
            x().reshape(7)

    with pytest.raises(AuthorError, match="the body raised AssertionError"):
        record(body)


def test_record__refusal_turned_into_another_error__is_rejected():
    def body():
        try:
            x().reshape(7)
        except RuntimeError as error:
            message = "mine"
            raise ValueError(message) from error

    assert record(body).refused.target == "reshape"


def test_record__refusal_with_a_module__ends_with_the_refused_step():
    attempt = record(lambda: torch.nn.Linear(9, 2)(x()))
    assert attempt.refused.target == "torch.nn.Linear"
    assert attempt.program.body[-2] == attempt.refused
    assert len(attempt.trace.values) == len(attempt.program.steps)


def test_record__module_that_cannot_be_made__is_a_rejection():
    assert record(lambda: torch.nn.Conv2d(3, 2, 1, groups=2)(x())).refused.target == "torch.nn.Conv2d"


def test_record__leaf_written_in_place__is_a_rejection():
    def body():
        value = x()
        value += 1
        return value

    assert record(body).refused.target == "operator.iadd"


def test_plain_function__callable_without_a_name__is_told_by_its_type():
    with pytest.raises(
        AuthorError, match=r"^a functools\.partial without a name is not recorded, because it is no operator"
    ):
        plain_function(partial(real.sin))

"""Findings and programs speak of a tensor as its test does."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import index_tensor, oneof, permutation_tensor, random, random_tensor, torch
from ci_autotest.program.codegen import body_lines, names
from ci_autotest.program.ir import PLACEHOLDER
from tests.engine import judged, record, substitute, tried


def inputs_of(body) -> list[str]:
    program = record(body).program
    return [name for name, step in zip(names(program), program.steps, strict=True) if step.op == PLACEHOLDER]


def test_author_name__variable_that_is_bound__is_the_tensors_name():
    def body():
        weight = random_tensor(2, 3, 4)
        rows = index_tensor(weight, 0)
        for _ in range(2):
            part = random_tensor(1, 4)
            weight = weight + part
        return weight[rows]

    assert inputs_of(body) == ["weight", "rows", "part", "part_1"]


def test_author_name__values_of_one_statement__have_the_name_that_each_is_bound_to():
    def body():
        left, right = random_tensor(1, 4), random_tensor(1, 4)
        first, rows, last = random_tensor(1, 4), index_tensor(left, 0), random_tensor(1, len("four"))
        a, b, c, d = random_tensor(1, 4), random_tensor(1, 4), random_tensor(1, 4), random_tensor(1, 4)
        q, k, v = (random_tensor(1, 4) for _ in range(3))
        return left + right + first[rows] + last + a + b + c + d + q + k + v

    assert inputs_of(body) == ["left", "right", "first", "rows", "last", *"abcd", *"qkv"]


def test_author_name__copy_that_is_bound__is_the_tensors_name():
    def body():
        one = other = random_tensor(1, 4)
        return torch.neg(x := random_tensor(1, 4)) + x + one + other

    assert inputs_of(body) == ["other", "x"] or inputs_of(body) == ["one", "x"]


size = 3


def test_draws__generator_of_a_function__hides_the_modules_variable():
    def body():
        size = random(2, 100).to(int)
        return torch.exp(random_tensor(1, size))

    assert [draw.label for draw in record(body, edits={"size": 7}).draws] == ["size"]


def test_draws__edit_by_number_and_by_name__the_number_counts():
    def body():
        x = random_tensor(ndim=1)
        return torch.exp(x)

    found = record(body, edits={"x.dim0": 5, "0.dim0": 3})
    assert [(draw.label, draw.value) for draw in found.draws] == [("x.dim0", 3)]


def test_author_name__part_of_a_longer_expression__is_not_the_variables():
    def body():
        total = random_tensor(1, 4) + random_tensor(1, 4)
        pair = (random_tensor(1, 4), random_tensor(1, 4))
        return total + pair[0] + pair[1]

    assert inputs_of(body) == ["x", "y", "z", "w"]


def test_draws__of_a_case_with_edits__have_the_tests_names_and_take_edits_by_them():
    size = random(2, 6).to(int)

    def body():
        n, mode = random(2, 100).to(int), oneof("sum", "mean")
        weight, bias = random_tensor(2, dim1=n), random_tensor(1, dim0=n)
        rows = permutation_tensor(size)
        mode.value()
        return torch.exp(weight + bias), rows, random_tensor(1)

    given = {"n": 7, "weight.dim0": 3, "size": 4, "mode.pick": 1, "8.dim0": 2}
    attempt = record(body, edits=given)
    assert {draw.label: draw.value for draw in attempt.draws} == given
    assert all(draw.name == "" for draw in record(body).draws)


def test_author_name__value_that_is_used_at_once__has_a_usual_name():
    def body():
        scale = random_tensor(1, 4).abs()
        return scale + random_tensor(1, 4)

    assert inputs_of(body) == ["x", "y"]


def test_author_name__gradient__is_of_that_name():
    def body():
        bias = random_tensor(1, 4)
        return torch.exp(bias)

    class Wrong(real.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value.exp()

        @staticmethod
        def backward(ctx, grad):
            return grad

    verdict = tried(body, substitute(exp=Wrong.apply))
    assert verdict.misalignment.what == "gradient of bias"


def test_author_name__in_a_step_alone__is_kept():
    def body():
        x, w = random_tensor(1, 4), random_tensor(1, 4)
        return torch.exp(torch.mul(x, w))

    program = judged(record(body), substitute(mul=lambda a, b: a * b * 2)).live.program
    assert [name for name, step in zip(names(program), program.steps, strict=True) if step.op == PLACEHOLDER] == [
        "x",
        "w",
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        *((name, name) for name in ("expected", "lambda_", "value", "input")),
        *((name, f"{name}_0") for name in ("found", "print", "max", "inputs")),
        *((name, "value") for name in ("torch", "device")),
    ],
)
def test_author_name__a_name_of_the_script__hides_nothing(name: str, shown: str):
    held: dict = {}
    lines = f"def body():\n    {name} = random_tensor(1, 4)\n    return {name}.exp()\n"
    exec(lines, {"random_tensor": random_tensor}, held)  # noqa: S102 - a body with a given name
    program = record(held["body"]).program
    (line,) = body_lines(program)
    assert line.startswith("exp = ")
    assert names(program)[0] == shown

"""Findings and programs speak of a tensor as its test does."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import index_tensor, random_tensor, torch
from ci_autotest.program.codegen import body_lines, names
from ci_autotest.program.ir import PLACEHOLDER
from tests.engine import record, substitute, tried


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

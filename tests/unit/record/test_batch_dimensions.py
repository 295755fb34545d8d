"""Where `@autotest(batch=…)` says that the batch is: by key of the input, or what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch as real

from ci_autotest import expect, random_tensor, torch
from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import PLACEHOLDER
from tests.engine import record


def body() -> Any:
    return torch.nn.Linear(3, 2)(random_tensor(2, 5, 3)) + random_tensor(1, 2)


def shapes(made: Any) -> dict[tuple[int, ...], int]:
    """Return the dimension of the batch of each input by its shape."""
    found = {step.target: step.args[0].shape for step in made.program.steps if step.op == PLACEHOLDER}
    return {found[key]: dimension for key, dimension in made.batch.items()}


def test_batch_of__number__is_that_of_a_tensor_that_the_body_draws():
    assert shapes(record(body, profiles=(), batch={0: 0})) == {(5, 3): 0}
    assert shapes(record(body, profiles=(), batch={1: 0})) == {(2,): 0}


def test_batch_of__expected_value__has_no_number():
    def expecting() -> Any:
        x = random_tensor(2, 5, 3, requires_grad=False)
        expect(torch.abs(x), real.ones(5, 3))
        return torch.nn.Linear(4, 2)(random_tensor(2, 5, 4))

    assert shapes(record(expecting, profiles=(), batch={0: 0, 1: 0})) == {(5, 3): 0, (5, 4): 0}


def with_room(batch: dict[int, int] | None, function: Any = torch.exp) -> Any:
    """Record a body in the form that gives a call memory to write to, between the two tensors of the body."""

    def calling() -> Any:
        sequence = function(random_tensor(3, 4, 6, 3))
        return torch.nn.Linear(3, 2)(sequence) + random_tensor(3, 4, 6, 2)

    cases = (record(calling, case, profiles=(), forms=("out",), batch=batch) for case in range(64))
    return next(made for made in cases if any(step.name == "out" for step in made.program.body))


def test_batch_of__memory_that_a_form_adds__moves_no_number_and_lies_as_the_result():
    made = with_room({0: 1, 1: 1})
    keys = [(step.target, step.name) for step in made.program.body if step.op == PLACEHOLDER]

    assert [name for _, name in keys] == ["x", "out", "tensor"]
    assert made.batch == {key: 1 for key, _ in keys}


def test_batch_of__memory_that_a_form_adds__is_not_counted():
    with pytest.raises(AuthorError, match="names tensor 2, and the body draws only tensors 0 to 1"):
        with_room({0: 1, 2: 1})


def test_batch_of__memory_without_the_batch__is_the_same_on_every_rank():
    made = with_room(None, lambda x: torch.sum(x, 0))
    keys = {step.name: step.target for step in made.program.body if step.op == PLACEHOLDER}

    assert made.batch == {keys["x"]: 0, keys["tensor"]: 0}


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (
            {9: 0},
            "autotest(batch={9: 0}) names tensor 9, and the body draws only tensors 0 to 1. Tensors count from 0, in the "
            "order in which the body draws them. Name only those that it draws in every case.",
        ),
        (
            {0: 0, 2: 0},
            "autotest(batch={0: 0, 2: 0}) names tensor 2, and the body draws only tensors 0 to 1. Tensors count from 0, "
            "in the order in which the body draws them. Name only those that it draws in every case.",
        ),
        (
            {0: 2},
            "autotest(batch={0: 2}) names dimension 2 of tensor 0, which has only dimensions 0 to 1. Correct the number, "
            "or draw the tensor with more dimensions in every case.",
        ),
        (
            {1: 1},
            "autotest(batch={1: 1}) names dimension 1 of tensor 1, which has only dimension 0. Correct the number, or "
            "draw the tensor with more dimensions in every case.",
        ),
        (
            {0: 0, 1: 0},
            "autotest(batch={0: 0, 1: 0}) names dimensions of different sizes: 5 in dimension 0 of tensor 0 and 2 in "
            "dimension 0 of tensor 1. All tensors of a batch have as many rows. Draw them with the same size, or leave "
            "out those that every rank gets whole.",
        ),
    ],
    ids=["no such tensor", "one of two", "no such dimension", "of one dimension", "sizes"],
)
def test_batch_of__what_the_case_does_not_have__is_the_authors_error(batch: dict[int, int], said: str):
    with pytest.raises(AuthorError) as refused:
        record(body, profiles=(), batch=batch)

    assert str(refused.value) == said


def test_batch_of__dimension_that_a_profile_leaves_out__is_no_error():
    made = record(lambda: torch.exp(random_tensor()), profile="zero_dim", batch={0: 1})

    assert made.profile == "zero_dim"
    assert list(made.batch.values()) == [1]

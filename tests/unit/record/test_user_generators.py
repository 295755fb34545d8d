"""Generators of the user's own: a function from draws to a value, logged, edited and replayed like the others."""

from __future__ import annotations

import pytest
import torch as real

from ci_autotest import Draws, generator, nothing, oneof, random, random_tensor, torch
from ci_autotest.errors import AuthorError
from tests.engine import record


@generator
def odd(draws: Draws, below: int) -> int:
    return 2 * draws.integer(0, below // 2) + 1


@generator
def sizes(draws: Draws) -> tuple[int, int]:
    return draws.integer(1, 4), draws.choice((5, 6))


@generator
def mask(draws: Draws, size: int):
    return real.from_numpy(draws.array((size,), float, 0, 1)) > 0.5


def shapes(body, cases=40, **how):
    return [tuple(record(body, case, **how).trace.values[0].shape) for case in range(0, cases, 2)]


def test_generator__of_a_function__takes_what_it_gives():
    found = {shape[0] for shape in shapes(lambda: random_tensor(dims=(odd(7),)) * 1)}
    assert found == {1, 3, 5}


def test_generator__argument_that_is_a_generator__is_drawn():
    assert {shape[0] for shape in shapes(lambda: random_tensor(dims=(odd(random(3, 8).to(int)),)) * 1)} == {1, 3, 5}


def test_generator__in_a_union_and_arithmetic__combines():
    found = {shape[0] for shape in shapes(lambda: random_tensor(dims=(odd(5) * 10 | 7,)) * 1)}
    assert found == {10, 30, 7}


def test_generator__used_twice__has_one_value():
    def body():
        size = odd(99)
        return random_tensor(dims=(size,)) + random_tensor(dims=(size,))

    assert all(record(body, case).refused is None for case in range(0, 20, 2))


def test_generator__as_a_call_argument__is_recorded_as_a_value():
    step = record(lambda: torch.zeros(sizes()) + random_tensor(ndim=1, dim0=1)).program.calls[0][1]
    assert step.args[0][0] in {1, 2, 3}
    assert step.args[0][1] in {5, 6}


def test_generator__that_gives_a_tensor__is_one_input_of_the_program():
    def body():
        chosen = mask(4)
        x = random_tensor(dims=(3, 4))
        return torch.masked_fill(x, chosen, 0.0) + torch.where(chosen, x, x * 2)

    attempts = [record(body, case) for case in range(0, 8, 2)]
    assert all(attempt.refused is None and len(attempt.sources) == 2 for attempt in attempts)
    assert len({tuple(attempt.trace.values[1].tolist()) for attempt in attempts}) > 1


def test_generator__edited_draw__gives_another_value():
    def body():
        return random_tensor(dims=(odd(99),)) * 1

    first = record(body)
    site = next(draw[0] for draw in first.draws if draw[1] == "int")
    assert record(body, edits={site: 20}).trace.values[0].shape == (41,)
    assert record(body, edits={site: 1000}).trace.values[0].shape == (97,)  # kept within the range


def test_generator__other_draws_of_an_attempt__do_not_move_its_array():
    def body():
        random_tensor(dims=(random(1, 9).to(int),)) * 1
        return torch.where(mask(30), random_tensor(ndim=1, dim0=1), 0.0)

    masks = []
    for edits in ({}, {"1": 3}):
        attempt = record(body, edits=edits)
        masks.append(
            next(value for value in attempt.trace.values if isinstance(value, real.Tensor) and value.numel() == 30)
        )
    assert real.equal(*masks)


def test_generator__returning_nothing_or_a_generator__is_settled():
    @generator
    def dim(draws: Draws):
        return oneof(0, 1) if draws.boolean() else nothing()

    calls = [record(lambda: torch.sum(random_tensor(ndim=2), dim=dim())).program.calls[0][1] for _ in range(3)]
    assert all(dict(step.kwargs).get("dim", 0) in {0, 1} for step in calls)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda: generator(3), "generator() got 3. Decorate a function", id="no function"),
        pytest.param(
            lambda: record(lambda: random_tensor(dims=(generator(lambda draws: draws.integer(3, 3))(),)) * 1),
            "a draw of [3, 3) has an empty range",
            id="empty range",
        ),
        pytest.param(
            lambda: record(lambda: random_tensor(dims=(generator(lambda draws: 1 / 0)(),)) * 1),
            "the body raised ZeroDivisionError",
            id="its own error",
        ),
    ],
)
def test_generator__misused__says_what_to_write(make, said):
    with pytest.raises(AuthorError) as caught:
        make()
    assert said in str(caught.value)


def test_draws__every_kind__is_logged_below_the_generators_site():
    @generator
    def everything(draws: Draws):
        draws.integer(0, 3), draws.floating(0, 1), draws.boolean(0.9), draws.choice("abc")
        return draws.value(random(1, 4), int)

    log = record(lambda: random_tensor(dims=(everything(),)) * 1).draws
    assert [draw[1] for draw in log][:5] == ["int", "float", "bool", "choice", "int"]
    assert len({draw[0] for draw in log}) == len(log)

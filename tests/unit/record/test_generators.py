"""What varies: the meaning of each name, one value however often it is used, and errors that say what to write."""

from __future__ import annotations

from collections import Counter
from typing import Optional, Union

import pytest
import torch as real

from ci_autotest import (
    constant,
    cpu_device,
    gpu_device,
    nothing,
    oneof,
    random,
    random_bool,
    random_device,
    random_or_nothing,
    random_tensor,
    torch,
)
from ci_autotest.errors import AuthorError
from ci_autotest.program.ir import Device
from ci_autotest.record.draw.draws import Drawer
from ci_autotest.record.draw.generators import NOTHING, Generator
from ci_autotest.record.draw.streams import Streams
from tests.engine import record

STREAMS = Streams()


def drawer(case: int = 0, **edits: object) -> Drawer:
    return Drawer(STREAMS, (7, case), edits or None)


def many(make, wanted: object = None, count: int = 200) -> list[object]:
    """Draw a fresh generator in many attempts."""
    return [make().value(drawer(case), wanted) for case in range(count)]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(lambda: random(1, 4).to(int), {1, 2, 3}, id="int: high is exclusive"),
        pytest.param(lambda: random(-2, 1).to(int), {-2, -1, 0}, id="int: negative"),
        pytest.param(lambda: random().to(int), {1, 2, 3, 4, 5}, id="defaults are 1 and 6"),
        pytest.param(lambda: random(0, 1).to(bool), {False, True}, id="bool"),
        pytest.param(random_bool, {False, True}, id="random_bool"),
        pytest.param(lambda: oneof("a", "b", 3), {"a", "b", 3}, id="oneof"),
        pytest.param(lambda: oneof("a", random(1, 3).to(int)), {"a", 1, 2}, id="oneof of a generator"),
        pytest.param(lambda: constant(1) | constant(2) | 3, {1, 2, 3}, id="union"),
        pytest.param(lambda: 3 | constant(1), {1, 3}, id="union, reflected"),
        pytest.param(lambda: constant(5), {5}, id="constant"),
        pytest.param(nothing, {NOTHING}, id="nothing"),
        pytest.param(lambda: random(1, 3).to(int) | nothing(), {1, 2, NOTHING}, id="a number or nothing"),
        pytest.param(lambda: random_or_nothing(1, 3).to(int), {1, 2, NOTHING}, id="random_or_nothing"),
        pytest.param(lambda: random(1, 3).to(int) + 10, {11, 12}, id="+"),
        pytest.param(lambda: 10 + random(1, 3).to(int), {11, 12}, id="+, reflected"),
        pytest.param(lambda: random(1, 3).to(int) - 1, {0, 1}, id="-"),
        pytest.param(lambda: 1 - random(1, 3).to(int), {0, -1}, id="-, reflected"),
        pytest.param(lambda: random(1, 3).to(int) * 3, {3, 6}, id="*"),
        pytest.param(lambda: 3 * random(1, 3).to(int), {3, 6}, id="*, reflected"),
        pytest.param(lambda: random(4, 8).to(int) // 2, {2, 3}, id="//"),
        pytest.param(lambda: random(4, 8).to(int) % 2, {0, 1}, id="%"),
        pytest.param(lambda: random(1, 4).to(int) ** 2, {1, 4, 9}, id="**"),
        pytest.param(lambda: -random(1, 3).to(int), {-1, -2}, id="negated"),
        pytest.param(lambda: random(random(2, 3).to(int), 4).to(int), {2, 3}, id="a generator as a bound"),
        pytest.param(random_device, {Device("cpu"), Device("device")}, id="random_device"),
        pytest.param(cpu_device, {Device("cpu")}, id="cpu_device"),
        pytest.param(gpu_device, {Device("device")}, id="gpu_device"),
    ],
)
def test_value__over_many_attempts__takes_each_value(make, expected):
    assert set(many(make)) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(int, int, id="int"),
        pytest.param(float, float, id="float"),
        pytest.param(bool, bool, id="bool"),
        pytest.param(Optional[int], int, id="Optional[int]"),  # noqa: UP045 - as annotations in the wild spell it
        pytest.param(int | None, int, id="int | None"),
        pytest.param(Union[int, None], int, id="Union[int, None]"),  # noqa: UP007 - likewise
    ],
)
def test_random__callee_asks_for_a_type__draws_that_type(wanted, expected):
    assert {type(value) for value in many(lambda: random(0, 9), wanted)} == {expected}


@pytest.mark.parametrize("wanted", [tuple[int, int], list[int]], ids=["tuple", "list"])
def test_random__callee_asks_for_several__draws_each(wanted):
    values = many(lambda: random(0, 9), wanted)
    assert all(isinstance(value, tuple) and all(type(item) is int for item in value) for value in values)
    assert len(set(values)) > 5


def test_random__union_of_types__picks_every_member():
    kinds = Counter(type(value) for value in many(lambda: random(0, 9), int | float))
    assert set(kinds) == {int, float}
    assert min(kinds.values()) > 50


def test_random__float__lies_in_the_range():
    values = many(lambda: random(-2, 3).to(float))
    assert all(-2 <= value < 3 for value in values)
    assert min(values) < -1 < 2 < max(values)


@pytest.mark.parametrize(
    ("make", "share"),
    [
        pytest.param(lambda: oneof("hit", "miss", possibility=0.9), 0.9, id="possibility 0.9"),
        pytest.param(lambda: oneof("hit", "miss"), 0.5, id="two alternatives"),
        pytest.param(lambda: oneof("hit", "miss") | "other" | "more", 0.25, id="flattened: each as likely"),
        pytest.param(lambda: oneof("hit", "miss", "x"), 1 / 3, id="three"),
    ],
)
def test_oneof__share_of_the_first__is_as_given(make, share):
    values = many(make, count=1000)
    assert abs(values.count("hit") / 1000 - share) < 0.06


def test_random_or_nothing__share_of_nothing__is_a_third():
    values = many(lambda: random_or_nothing(1, 3).to(int), count=1000)
    assert abs(values.count(NOTHING) / 1000 - 1 / 3) < 0.06


def test_value__used_twice_in_one_attempt__is_one_value():
    size = random(1, 1000).to(int)
    one = drawer()
    assert size.value(one) == size.value(one)
    assert len(one.log) == 1


def test_value__in_another_attempt__is_drawn_again():
    size = random(1, 1000).to(int)
    assert len({size.value(drawer(case)) for case in range(20)}) > 10


def test_value__used_bare_and_typed__is_one_value():
    number = random(1, 1000)
    typed = number.to(int)
    one = drawer()
    assert typed.value(one) == number.value(one, int)


def test_value__in_arithmetic_twice__is_linked():
    size = random(1, 1000).to(int)
    one = drawer()
    assert (size * 2).value(one) == 2 * size.value(one)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(
            lambda: random(120),
            "random(120) has an empty range: low is 120, high is 6. Write random(0, 120) or random(120, 121).",
            id="one number, as if it were the count",
        ),
        pytest.param(
            lambda: random(3, 3), "random(3, 3) has an empty range: low is 3, high is 3. Write", id="low is high"
        ),
        pytest.param(lambda: random(-5, -9), "Write random(-5, 1).", id="negative"),
        pytest.param(oneof, "oneof() has no alternative. Write oneof(a, b).", id="oneof of nothing"),
        pytest.param(
            lambda: oneof(1, 2, 3, possibility=0.5),
            "oneof(possibility=0.5) has 3 alternatives. Give exactly two.",
            id="a probability for three",
        ),
        pytest.param(lambda: bool(random_bool()), "random_bool() has no value until it is used in a call.", id="if"),
        pytest.param(
            lambda: random(1, 3).value(drawer()),
            "the type of random(1, 3) is unknown. Write random(1, 3).to(int), .to(float) or .to(bool).",
            id="untyped",
        ),
        pytest.param(
            lambda: random(1, random(1, 2).to(int)).to(int).value(drawer()), "has an empty range", id="drawn bounds"
        ),
    ],
)
def test_generator__misused__says_what_to_write(make, said):
    with pytest.raises(AuthorError) as caught:
        make()
    assert said in str(caught.value)


def call_of(body) -> tuple[tuple[object, ...], dict[str, object]]:
    step = record(body).program.calls[0][1]
    return step.args[1:], dict(step.kwargs)


@pytest.mark.parametrize(
    ("call", "args", "kwargs"),
    [
        pytest.param(lambda x: torch.sum(x, dim=nothing()), (), set(), id="keyword"),
        pytest.param(lambda x: torch.sum(x, dim=0, keepdim=nothing()), (), {"dim"}, id="one of two keywords"),
        pytest.param(lambda x: torch.sum(x, nothing()), (), set(), id="last positional"),
        pytest.param(lambda x: torch.nn.functional.softmax(x, 0, nothing()), (0,), set(), id="last of three"),
        pytest.param(
            lambda x: torch.nn.functional.softmax(x, 0, nothing(), torch.float64), (0,), {"dtype"}, id="before another"
        ),
        pytest.param(lambda x: x.sum(dim=nothing()), (), set(), id="keyword of a method"),
        pytest.param(lambda x: x.sum(nothing()), (), set(), id="last positional of a method"),
    ],
)
def test_nothing__in_a_call__is_not_given(call, args, kwargs):
    said_args, said_kwargs = call_of(lambda: call(random_tensor(ndim=2)))
    assert (said_args, set(said_kwargs)) == (args, kwargs)


def test_nothing__in_a_module__is_not_given():
    step = record(lambda: torch.nn.Conv2d(1, 1, 1, stride=nothing())(random_tensor(ndim=4, dim1=1))).program.setup[0]
    assert (step.args, step.kwargs) == ((1, 1, 1), ())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        pytest.param(
            lambda x: torch.sum(x, dtype=random(0, 2)),
            "argument 'dtype' of torch.sum: the type of random(0, 2) is unknown. Write random(0, 2).to(int)",
            id="a dtype, keyword",
        ),
        pytest.param(
            lambda x: torch.einsum(random(0, 2), x),
            "argument 0 of torch.einsum: the type of random(0, 2) is unknown",
            id="a text, positional",
        ),
        pytest.param(
            lambda x: x.to(random(0, 2)), "argument 0 of to: the type of random(0, 2) is unknown", id="a method"
        ),
        pytest.param(
            lambda x: torch.sum(x, nothing(), True),
            "nothing() comes before another positional argument of torch.sum. Write keywords.",
            id="nothing before another, names unknown",
        ),
        pytest.param(
            lambda x: torch.nn.functional.softmax(nothing(), 1), "nothing() was drawn", id="nothing without a default"
        ),
    ],
)
def test_generator__in_a_call_that_cannot_take_it__says_what_to_write(call, said):
    with pytest.raises(AuthorError) as caught:
        record(lambda: call(random_tensor(ndim=2)))
    assert said in str(caught.value)
    assert "test_generators.py, line" in str(caught.value)


def test_generator__annotated_callee__needs_no_type():
    (dim,), _ = call_of(lambda: torch.nn.functional.softmax(random_tensor(ndim=2), random(0, 2)))
    assert dim in (0, 1)


def test_generator__annotated_module__needs_no_type():
    step = record(lambda: torch.nn.Linear(3, random(1, 9))(random_tensor(ndim=2, dim1=3))).program.setup[0]
    assert type(step.args[1]) is int


def test_generator__shared_by_two_tensors__links_their_sizes():
    def body():
        k = random(1, 50).to(int)
        return torch.matmul(random_tensor(ndim=2, dim1=k), random_tensor(ndim=2, dim0=k))

    for case in range(0, 20, 2):
        attempt = record(body, case)
        assert attempt.refused is None


def test_generator__of_the_module__has_a_value_per_attempt():
    size = random(1, 1000).to(int)
    sizes = {
        record(lambda: random_tensor(ndim=1, dim0=size) * 1, case).trace.values[0].shape for case in range(0, 20, 2)
    }
    assert len(sizes) > 5


def test_oneof__of_recorded_tensors_and_nothing__passes_the_tensor():
    def body():
        x = random_tensor(ndim=2, dim1=4)
        weight = random_tensor(ndim=1, dim0=4)
        return torch.nn.functional.layer_norm(x, (4,), weight=oneof(weight, nothing()))

    attempts = [record(body, case) for case in range(0, 20, 2)]
    assert {"weight" in dict(attempt.program.calls[0][1].kwargs) for attempt in attempts} == {True, False}
    assert all(attempt.refused is None for attempt in attempts)


def test_generator__inside_a_tuple__is_drawn():
    x = record(lambda: torch.zeros((random(1, 9).to(int), 2)) * random_tensor(ndim=2, dim0=1, dim1=2))
    assert x.refused is None
    assert isinstance(x.trace.values[1], real.Tensor)


@pytest.mark.parametrize(
    "union",
    [
        lambda x: x | nothing(),
        lambda x: nothing() | x,
        lambda x: x | (nothing() | random_tensor(dims=(3,))),
        lambda x: x | oneof(nothing(), 1),
    ],
    ids=["behind it", "before it", "of three", "an alternative"],
)
def test_or__recorded_tensor_and_nothing__is_either(union):
    def body():
        x = random_tensor(dims=(2, 3))
        return torch.nn.functional.layer_norm(x, (3,), union(random_tensor(dims=(3,))))

    found = [record(body, case, seed=seed) for case in (0, 2, 4, 6) for seed in range(5)]
    given = {len(attempt.program.calls[-1][1].args) + len(attempt.program.calls[-1][1].kwargs) for attempt in found}
    assert {attempt.refused for attempt in found if attempt.refused is None} == {None}
    assert given >= {2, 3}


def test_or__recorded_tensor_and_a_number__is_the_operator():
    attempt = record(lambda: random_tensor(dims=(3,), dtype=int) | random(0, 8).to(int))
    assert [step.target for _, step in attempt.program.calls] == ["operator.or_"]


def test_random_tensor__negative_ndim__is_refused():
    with pytest.raises(AuthorError, match=r"random_tensor\(ndim=-1\): a tensor cannot have fewer than 0 dimensions"):
        record(lambda: random_tensor(ndim=-1) * 2)


class Refusing(Generator):
    """Refuses in words that we use for something else."""

    def value(self, drawer: Drawer, wanted: object = None) -> object:
        message = "what I want cannot be told"
        raise AuthorError(message)


def test_argument__generator_refuses_in_our_words__its_message_is_left_as_it_is():
    with pytest.raises(AuthorError) as caught:
        record(lambda: torch.sum(random_tensor(), dim=Refusing()))
    assert str(caught.value).startswith("what I want cannot be told (test_generators.py")


def test_eval__generator_of_others__draws_all_of_them_anew():
    seen = []

    def body():
        low = random(0, 1000).to(int)
        total = low + constant(1)
        seen.append([(total.eval(), low.value()) for _ in range(20)])
        assert total.value() == seen[-1][-1][0]
        return random_tensor(1, 3) * 2

    record(body)
    assert all(total == low + 1 for total, low in seen[0])
    assert len(set(seen[0])) > 10


def test_oneof__called__calls_the_drawn_alternative():
    attempt = record(lambda: oneof(torch.sin, torch.cos)(random_tensor(2)))
    assert attempt.program.steps[1].target in {"torch.sin", "torch.cos"}

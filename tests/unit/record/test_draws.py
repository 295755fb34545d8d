"""Streams: a value depends on the attempt's key and its site, and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch as real

from ci_autotest import oneof, random, random_tensor, torch
from ci_autotest.record.attempt import Attempts
from ci_autotest.record.draw.draws import Drawer
from ci_autotest.record.draw.streams import Streams
from ci_autotest.values.case import Draw, draws_of, key_of
from tests.engine import record

#: Words 0 and 1 that Philox gives for the key (1, 2), as opened.
WORDS = [5705853004827290377, 6584680345644299050]


def drawer(key: tuple[int, int] = (1, 2), **edits: object) -> Drawer:
    return Drawer(Streams(), key, edits or None)


def linear():
    """Draw sizes that are linked, a choice and a number."""
    batch, features = random(1, 9).to(int), random(1, 9).to(int)
    x = random_tensor(ndim=2, dim0=batch, dim1=features)
    y = random_tensor(ndim=2, dim0=features, dim1=random(1, 9).to(int))
    return torch.matmul(x, y) * oneof(1.0, 2.0, 3.0)


def data(attempt) -> dict[str, list[float]]:
    return {key: tensor.flatten().tolist() for key, tensor in attempt.sources.items()}


def test_streams__same_key__same_words():
    assert [Streams().open((1, 2)), Streams().open((3, 4))] == [Streams().open((1, 2)), Streams().open((3, 4))]


def test_streams__opened_again_after_others__same_words():
    streams = Streams()
    first = streams.open((1, 2)), streams.more(), streams.data("x", 5).tolist()
    streams.open((9, 9))
    streams.data("y", 100)
    assert (streams.open((1, 2)), streams.more(), streams.data("x", 5).tolist()) == first


@pytest.mark.parametrize("other", [(1, 3), (2, 2)], ids=["another case", "another test"])
def test_streams__another_key__other_words(other):
    assert not set(Streams().open((1, 2))) & set(Streams().open(other))


def test_streams__data_of_two_sites__differ():
    streams = Streams()
    streams.open((1, 2))
    assert not set(streams.data("0", 50).tolist()) & set(streams.data("1", 50).tolist())


def test_streams__data__do_not_meet_the_scalars():
    streams = Streams()
    scalars = set(streams.open((1, 2))) | set(streams.more())
    assert not scalars & set(streams.data("0", 100).tolist())


def test_streams__first_words__are_those_of_this_release():
    # NumPy promises raw Philox words; a change here changes every seed that was ever written down.
    assert Streams().open((1, 2))[:2] == WORDS


def test_drawer__log__says_site_kind_range_value_and_simplest():
    one = drawer()
    values = [one.integer("a", 2, 9), one.floating("b", -1.0, 1.0), one.boolean("c"), one.choice("d", 3, 1)]
    assert draws_of(one.log) == [
        Draw("a", "int", 2, 9, values[0], 2),
        Draw("b", "float", -1.0, 1.0, values[1], 0.0),
        Draw("c", "bool", 0, 2, values[2], simplest=False),
        Draw("d", "choice", 0, 3, values[3], 1),
    ]


@pytest.mark.parametrize(
    ("low", "high", "simplest"),
    [
        pytest.param(3, 9, 3, id="positive: the least"),
        pytest.param(-5, 9, 0, id="around zero: zero"),
        pytest.param(-9, -4, -5, id="negative: the nearest to zero"),
        pytest.param(0, 4, 0, id="from zero"),
        pytest.param(-3, 0, -1, id="up to zero, exclusive"),
    ],
)
def test_integer__range__simplest_is_the_value_nearest_to_zero(low, high, simplest):
    one = drawer()
    one.integer("a", low, high)
    assert Draw(*one.log[0]).simplest == simplest


def test_floating__range_below_zero__simplest_lies_in_the_range():
    one = drawer()
    one.floating("a", -3.0, -1.0)
    assert -3.0 <= Draw(*one.log[0]).simplest < -1.0


@pytest.mark.parametrize(("edited", "value"), [(5, 5), (99, 8), (-99, 2)], ids=["inside", "above", "below"])
def test_integer__edited__is_kept_in_the_range(edited, value):
    assert drawer(a=edited).integer("a", 2, 9) == value


def test_drawer__edited_draw__leaves_the_others():
    def values(one: Drawer) -> list[object]:
        return [one.integer("a", 0, 1000), one.floating("b", 0, 1), one.boolean("c"), one.integer("d", 0, 10**9)]

    assert values(drawer(a=7))[1:] == values(drawer())[1:]


def test_drawer__many_draws__do_not_repeat_words():
    one = drawer()
    values = [one.integer(str(i), 0, 2**62) for i in range(500)]
    assert len(set(values)) == 500


def test_integer__many__is_uniform():
    one = drawer()
    counts = np.bincount([one.integer(str(i), 0, 8) for i in range(8000)])
    assert counts.min() > 850
    assert counts.max() < 1150


def test_record__same_name__same_attempt():
    first, second = record(linear, 4), record(linear, 4)
    assert (first.draws, first.program, data(first)) == (second.draws, second.program, data(second))


@pytest.mark.parametrize(
    "other",
    [{"case": 6}, {"number": 1}, {"seed": 1}, {"test": "another"}],
    ids=["case", "attempt", "root seed", "test"],
)
def test_record__another_name__other_data(other):
    first, second = record(linear, 4), record(linear, **{"case": 4, **other})
    assert data(first) != data(second)


def test_record__after_other_tests__same_attempt():
    alone = data(record(linear, 4))
    for case in range(5):
        record(lambda: random_tensor() * 2, case, test="other")
    assert data(record(linear, 4)) == alone


def test_record__global_generators__are_set_before_each_attempt():
    def body():
        seen.append((real.rand(3).tolist(), np.random.rand(), __import__("random").random()))
        return random_tensor(ndim=1, requires_grad=False) * 1

    seen: list[object] = []
    record(body, 4)
    real.rand(7)
    np.random.rand()
    Attempts()  # another one takes numpy's global generator over
    record(body, 4)
    record(body, 6)
    assert seen[0] == seen[1] != seen[2]


def test_record__edited_size__leaves_the_other_tensors_data():
    def body():
        x = random_tensor(ndim=1, dim0=random(3, 9).to(int))
        y = random_tensor(ndim=1, dim0=4)
        return torch.sum(x) + y

    whole = record(body, 4)
    site = whole.draws[0].site
    edited = record(body, 4, edits={site: 3})
    assert edited.sources["t0"].shape == (3,)
    assert edited.sources["t1"].tolist() == whole.sources["t1"].tolist()


def test_record__edited_size__keeps_the_elements_that_are_left():
    def body():
        return random_tensor(ndim=1, dim0=random(3, 9).to(int)) * 1

    site = record(body, 4).draws[0].site
    whole, edited = (record(body, 4, edits={site: size}) for size in (8, 5))
    assert edited.sources["t0"].shape == (5,)
    assert edited.sources["t0"].tolist() == whole.sources["t0"].tolist()[:5]


def test_record__edited_shared_size__stays_shared():
    whole = record(linear, 4)
    inner = whole.sources["t0"].shape[1]
    site = next(d.site for d in whole.draws if d.value == inner and d.site != whole.draws[0].site)
    edited = record(linear, 4, edits={site: 1})
    assert edited.refused is None
    assert (edited.sources["t0"].shape[1], edited.sources["t1"].shape[0]) == (1, 1)


def test_record__edited_with_its_own_log__is_the_same():
    whole = record(linear, 4)
    assert data(record(linear, 4, edits={d.site: d.value for d in whole.draws})) == data(whole)


def test_record__cotangents__are_signed_and_of_the_case():
    whole = record(linear, 4, edits={})
    again = record(linear, 4)
    assert whole.cotangents[0].tolist() == again.cotangents[0].tolist()
    big = record(lambda: random_tensor(ndim=1, dim0=100) * 1, 4)
    weights = big.cotangents[0]
    assert bool((weights < 0).any())
    assert bool((weights > 0).any())
    assert weights.tolist() != big.sources["t0"].tolist()


def test_record__two_outputs__have_cotangents_of_their_own():
    attempt = record(lambda: [(x := random_tensor(ndim=1, dim0=20)) * 2, x * 3])
    assert attempt.cotangents[0].tolist() != attempt.cotangents[1].tolist()


@pytest.mark.parametrize("cases", [[0], [5, 6, 7], list(range(16)), [3, 9]], ids=str)
def test_prefetch__any_run_of_cases__gives_what_is_drawn_one_by_one(cases):
    streams, ahead = Streams(), Streams()
    ahead.prefetch(7, cases)
    for case in cases:
        for attempt in (0, 1):
            key = key_of(7, case, attempt)
            assert ahead.open(key) == streams.open(key)
            assert ahead.more() == streams.more()
            assert ahead.small(3, 40).tolist() == streams.small(3, 40).tolist()
            assert ahead.data("1", 9).tolist() == streams.data("1", 9).tolist()


def test_streams__blocks_of_neighbours__share_no_word():
    streams = Streams()
    words = [word for case in range(40) for word in streams.open(key_of(7, case, 0))]
    floats = [
        bits for case in range(40) for bits in (streams.open(key_of(7, case, 0)), streams.small(0, 48).tolist())[1]
    ]
    assert len(set(words)) == len(words)
    assert len(set(floats)) > 0.99 * len(floats)


def test_cotangent__larger_than_the_noise__is_long_enough_and_the_seed_says_where_it_begins():
    streams = Streams()
    streams.open((1, 2))
    large = streams.cotangent(0, 300_000, 5)
    assert large.shape == (300_000,)
    assert large[:100].tolist() != streams.cotangent(0, 300_000, 6)[:100].tolist()
    assert abs(float(large.mean())) < 0.01

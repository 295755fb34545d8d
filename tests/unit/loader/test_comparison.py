from __future__ import annotations

import pytest

from ci_autotest.loader.comparison import problems, remarks
from ci_autotest.loader.observations import LoaderSample, Observations, ObservedGenerator, SampleDraws

HELD = ObservedGenerator(kind="numpy.random.Generator", place="self.rng", access="dataset.rng")
ORDER = ("0", "1", "2", "3")


def sample(worker, position, before="", after="after", **more):
    draws = (
        (SampleDraws(generator="dataset.rng", before=before, after=after, numbers=("0.5",)),) if before or after else ()
    )
    items = more.pop("items", (f"{worker}-{position}",))
    return LoaderSample(
        worker=worker, position=position, items=items, digest=more.pop("digest", "d"), draws=draws, **more
    )


def still(worker, item, digest=""):
    return sample(worker, 0, "", "", items=() if item is None else (item,), digest=digest)


def seen(*epochs, **more):
    return Observations(dataset="data.Rows", epochs=epochs, generators={"dataset.rng": HELD}, **more)


def patterns(*ranks):
    return [(problem.pattern, problem.who, problem.equal, problem.of) for problem in problems(ranks)]


def test_problems__workers_begin_with_one_state__share_numbers():
    one = tuple(sample(worker, place, f"s{place}") for worker in (0, 1) for place in (0, 1))

    assert patterns(seen(one)) == [("workers", (0, 1), 2, 4)]


def test_problems__workers_share_in_every_epoch__is_told_once():
    one = tuple(sample(worker, 0, "s") for worker in (0, 1))

    assert patterns(seen(one, one)) == [("workers", (0, 1), 1, 2)]


def test_problems__epochs_begin_with_one_state__repeat():
    one = (sample(0, 0, "a"), sample(1, 0, "b"))

    assert patterns(seen(one, one)) == [("epochs", (0, 1), 2, 4)]


def test_problems__ranks_begin_with_one_state__share_numbers():
    rows = [(sample(0, 0, "a", items=("0",)),), (sample(0, 0, "a", items=("1",)),)]

    assert patterns(seen(rows[0]), seen(rows[1])) == [("ranks", (0, 1), 1, 2)]


def test_problems__each_worker_has_its_state__is_none():
    assert patterns(seen((sample(0, 0, "a"), sample(1, 0, "b")), (sample(0, 0, "c"), sample(1, 0, "d")))) == []


def test_problems__first_sample_makes_equal_generators__is_known_by_the_state_after():
    one = (sample(0, 0, "", "same"), sample(1, 0, "", "same"))

    assert patterns(seen(one)) == [("workers", (0, 1), 1, 2)]


def test_problems__every_sample_makes_a_generator__is_none():
    one = (sample(0, 1, "", "same"), sample(1, 1, "", "same"))

    assert patterns(seen(one)) == []


def test_problems__samples_seed_the_generator_anew__is_none():
    one = (sample(0, 0, "s"), sample(1, 0, "s"))

    assert patterns(seen(one, reseeded=("dataset.rng",))) == []


@pytest.mark.parametrize(
    ("digests", "moves_state", "expected"),
    [
        pytest.param(["ab", "ab"], False, [("hidden", (0, 1), 2, 4)], id="equal random values"),
        pytest.param(["ab", "cd"], False, [], id="own random values"),
        pytest.param(["aa", "aa"], False, [], id="constant"),
        pytest.param(["ab", "ab"], True, [], id="a counter of the dataset"),
    ],
)
def test_problems__nothing_is_drawn_from_a_known_generator(digests, moves_state, expected):
    probe = tuple(
        LoaderSample(worker=worker, position=place, items=("0",), digest=digest, moves_state=moves_state)
        for worker, row in enumerate(digests)
        for place, digest in enumerate(row)
    )

    assert patterns(seen((), probe=probe)) == expected


def test_problems__every_worker_gives_the_whole_stream():
    alone = (still(0, None, "a"), still(0, None, "b"))
    whole = (*alone, still(1, None, "a"), still(1, None, "b"))

    assert patterns(seen(whole, alone=alone, is_iterable=True)) == [("whole", (0, 1), 2, 4)]


def test_problems__random_samples_of_a_whole_stream__their_number_tells():
    alone = (still(0, None, "a"), still(0, None, "a"))
    whole = tuple(still(worker, None, f"{worker}{n}") for worker in (0, 1) for n in range(2))

    assert patterns(seen(whole, alone=alone, is_iterable=True)) == [("whole", (0, 1), 2, 4)]


def test_problems__random_samples_of_a_longer_epoch_than_was_observed__their_number_tells():
    alone = (still(0, None, "a"), still(0, None, "b"))
    part = tuple(still(worker, None, f"{worker}{n}") for worker, n in ((0, 0), (1, 0), (0, 1)))

    assert patterns(seen(part, alone=alone, is_iterable=True, is_whole=False)) == [("whole", (0, 1), 1, 3)]


def test_problems__workers_share_the_stream__is_none():
    alone = (still(0, None, "a"), still(0, None, "b"))

    assert patterns(seen((still(0, None, "a"), still(1, None, "b")), alone=alone, is_iterable=True)) == []


def test_problems__other_items_with_workers():
    one, alone = (still(0, "1"), still(1, "2")), (still(0, "1"), still(0, "3"))

    assert patterns(seen(one, alone=alone)) == [("items", (), 1, 2)]


def test_problems__items_are_drawn_with_replacement__is_none():
    assert patterns(seen((still(0, "1"), still(1, "2")), alone=(still(0, "3"), still(0, "3")))) == []


def test_problems__ranks_have_the_same_rows():
    rows = tuple(still(0, item) for item in ORDER)

    assert patterns(seen(rows), seen(rows)) == [("rows", (0, 1), 4, 4)]


def test_problems__ranks_share_the_row_that_fills_up__is_none():
    assert patterns(seen(tuple(still(0, i) for i in "012")), seen(tuple(still(0, i) for i in "340"))) == []


@pytest.mark.parametrize(
    ("orders", "sampler", "expected"),
    [
        pytest.param((ORDER, ORDER), "loader.sampler.inner", [("order", (0, 1), 4, 4)], id="same"),
        pytest.param((ORDER, ORDER[::-1]), "loader.sampler", [], id="own"),
        pytest.param((ORDER, ORDER), "", [], id="nothing shuffles"),
    ],
)
def test_problems__order_of_epochs(orders, sampler, expected):
    epochs = [tuple(still(0, item) for item in order) for order in orders]

    assert patterns(seen(*epochs, distributed=sampler)) == expected


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        pytest.param((still(0, "1", "a"),), [], id="equal"),
        pytest.param(
            (still(0, "2", "a"),), ["two loaders that are made with the same seed give another order"], id="order"
        ),
        pytest.param(
            (still(0, "1", "b"),),
            ["two loaders that are made with the same seed give other samples in the same order"],
            id="samples",
        ),
    ],
)
def test_remarks__second_loader_of_the_seed(again, expected):
    assert remarks([seen((still(0, "1", "a"),), again=again)]) == expected

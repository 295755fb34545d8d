"""The plan of sizes: every free dimension has its turn to be large, alone, and as seed and test say."""

from __future__ import annotations

from itertools import chain
from random import Random

import pytest
import torch as real

from ci_autotest import every, oneof, random, random_tensor, torch
from ci_autotest.record.attempt import Attempts
from ci_autotest.record.declaration import Declaration
from ci_autotest.record.dependent_tensors import symmetric_tensor
from ci_autotest.values.case import test_key as stream_key
from ci_autotest.values.size_classes import CLASSES, joined_sizes, sizes_of
from tests.engine import record

DEFAULT, ALL = range(20), range(100)
#: Greatest size of a dimension that has no turn, in an ordinary case.
SMALL = 7


def total(*tensors):
    return sum(x.sum() for x in tensors)


def planned(body, cases=DEFAULT, **how):
    """Return the first attempts of the cases that may have a turn."""
    return [record(body, case, **how) for case in cases if case % 2 == 0]


def reached(body, cases=DEFAULT, **how) -> dict[str, set[str]]:
    """Return the classes that each free dimension reached by the plan alone."""
    found = joined_sizes(sizes_of(attempt.dimensions) for attempt in planned(body, cases, **how))
    return {name: {each for each, why in classes.items() if why == "reached"} for name, classes in found.items()}


def why_not(body, cases=DEFAULT, **how) -> dict[str, dict[str, str]]:
    """Return the classes that each free dimension did not reach, and why."""
    found = joined_sizes(sizes_of(record(body, case, **how).dimensions) for case in cases)
    return {name: {each: why for each, why in classes.items() if why != "reached"} for name, classes in found.items()}


def of_ndims(*ndims: int):
    return lambda: total(*[random_tensor(ndim=ndim) for ndim in ndims])


def drawn_bodies() -> list[tuple[str, int, tuple[int, ...]]]:
    """Return tests with 1 to 10 free dimensions in all: a name, a seed, and the dimensions of each tensor."""
    choose = Random(36)  # noqa: S311 - no secret
    found = []
    for count in range(1, 11):
        for _ in range(3):
            rest, ndims = count, []
            while rest:
                ndims.append(choose.randint(1, min(rest, 5)))
                rest -= ndims[-1]
            found.append((f"t{choose.randrange(99)}", choose.randrange(1 << 32), tuple(ndims)))
    return found


@pytest.mark.parametrize(("test", "seed", "ndims"), drawn_bodies(), ids=str)
def test_plan__up_to_ten_free_dimensions__each_is_large_in_a_default_run_and_alone(test, seed, ndims):
    attempts = planned(of_ndims(*ndims), seed=seed, test=test)
    large = [[d.name for d in attempt.dimensions if d.size > 256] for attempt in attempts]
    names = [f"{slot}.dim{i}" for slot, ndim in enumerate(ndims) for i in range(ndim)]
    assert sorted(chain.from_iterable(large)) == sorted(names)
    assert max(map(len, large)) == 1
    assert all(d.size <= SMALL for attempt in attempts for d in attempt.dimensions if d.size <= 256)


@pytest.mark.parametrize(("test", "seed", "ndims"), drawn_bodies()[::4], ids=str)
def test_plan__hundred_cases__take_each_dimension_through_every_class(test, seed, ndims):
    found = reached(of_ndims(*ndims), ALL, seed=seed, test=test)
    assert found == {f"{slot}.dim{i}": {*CLASSES} for slot, ndim in enumerate(ndims) for i in range(ndim)}


@pytest.mark.parametrize("seed", range(6))
def test_plan__free_number_of_dimensions__has_enough_of_them_in_the_turn_of_each(seed):
    found = reached(lambda: total(random_tensor(), random_tensor(ndim=random(1, 4).to(int))), seed=seed)
    names = {*(f"0.dim{i}" for i in range(5)), *(f"1.dim{i}" for i in range(3))}
    assert {name for name, classes in found.items() if "beyond_256" in classes} == names


def test_plan__more_than_ten_dimensions__two_tensors_share_a_turn():
    found = reached(of_ndims(5, 5, 5))
    assert {name for name, classes in found.items() if "beyond_256" in classes} == set(found)
    assert len(found) == 15


def turns(body, seed: int, test: str = "a_test") -> dict[str, int]:
    return {
        dimension.name: case
        for case, attempt in zip(range(0, 20, 2), planned(body, seed=seed, test=test), strict=True)
        for dimension in attempt.dimensions
        if dimension.size > 256
    }


def test_plan__another_seed_or_test__begins_at_another_case():
    body = of_ndims(2)
    assert len({tuple(turns(body, seed).items()) for seed in range(80)}) == 10
    assert len({tuple(turns(body, 0, f"t{i}").items()) for i in range(80)}) == 10


def test_plan__case_alone_and_among_others__is_the_same():
    alone = record(of_ndims(2, 3), 14)
    planned(of_ndims(2, 3))
    again = record(of_ndims(2, 3), 14)
    assert (alone.draws, alone.dimensions) == (again.draws, again.dimensions)


def test_plan__other_sizes_of_the_tensor__are_small():
    found = [[d.size for d in attempt.dimensions] for attempt in planned(of_ndims(4), ALL)]
    rest = [size for sizes in found if max(sizes) > 30 for size in sizes if size != max(sizes)]
    assert {*rest} == {1, 2, 3}


def test_plan__size_that_two_tensors_share__has_one_turn_and_one_name():
    def body():
        n = random(1, 400).to(int)
        return total(random_tensor(ndim=1, dim0=n), random_tensor(ndim=1, dim0=n))

    found = planned(body)
    assert {dimension.name for attempt in found for dimension in attempt.dimensions} == {found[0].draws[0].site}
    assert sum(attempt.profile == "boundary" for attempt in found) == 1
    assert all("beyond_256" in classes for classes in reached(body).values())


def test_plan__size_from_another_tensor__counts_where_it_is_free():
    def body():
        x = random_tensor(ndim=1)
        return x + random_tensor(ndim=1, dim0=x.shape[0])

    assert {name: "beyond_256" in classes for name, classes in reached(body).items()} == {"0.dim0": True}


def test_plan__size_of_a_module_that_is_made_first__goes_beyond_256():
    def body():
        n = random(1, 400).to(int)
        return torch.nn.Linear(n, 3)(random_tensor(ndim=2, dim1=n))

    found = reached(body)
    assert len(found) == 2
    assert all("beyond_256" in classes for classes in found.values())


def test_plan__number_that_is_drawn_after_the_tensors__is_the_same_in_a_replay():
    def body():
        return random_tensor(ndim=1, dim0=2) * random(-1000, 1000).to(int)

    found = planned(body)
    assert [attempt.profile for attempt in found].count("boundary") == 1
    again = [record(body, 2 * i, profile=attempt.profile) for i, attempt in enumerate(found)]
    assert [attempt.draws for attempt in again] == [attempt.draws for attempt in found]
    assert min(attempt.draws[-1].value for attempt in found) < 0


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        pytest.param(1, 9, {"near_32", "near_128", "beyond_256", "beyond_1024"}, id="small"),
        pytest.param(1, 130, {"beyond_256", "beyond_1024"}, id="up to 129"),
        pytest.param(300, 400, {"one", "near_32", "near_128", "beyond_1024"}, id="large"),
    ],
)
def test_plan__range_of_the_test__is_kept_and_is_the_reason(low, high, expected):
    def body():
        return torch.neg(random_tensor(ndim=1, dim0=random(low, high).to(int)))

    (found,) = why_not(body, ALL).values()
    assert found == dict.fromkeys(expected, "range")
    sizes = {dimension.size for attempt in planned(body, ALL) for dimension in attempt.dimensions}
    assert low <= min(sizes) <= max(sizes) < high


def test_plan__range_up_to_200__goes_beyond_128_in_a_default_run():
    sizes = [
        attempt.dimensions[0].size
        for attempt in planned(lambda: torch.neg(random_tensor(ndim=1, dim0=random(1, 200).to(int))))
        if attempt.profile == "boundary"
    ]
    assert sizes == [129]


def why_of_one(**how) -> str:
    """Return why the one free dimension of a vector is not beyond 1,024 in a default run."""
    return why_not(of_ndims(1), **how)["0.dim0"]["beyond_1024"]


def test_reason__default_run__has_few_cases():
    assert why_not(of_ndims(1), range(0, 20, 2))["0.dim0"].items() >= {("beyond_1024", "few_cases")}


@pytest.mark.parametrize("profiles", [(), ("special",)], ids=["none", "one"])
def test_reason__boundary_left_out__is_the_tests(profiles):
    assert why_of_one(profiles=profiles) == "profiles"


def test_reason__grid__has_no_profiles():
    def body():
        return random_tensor(ndim=1) * every(1.0, 2.0)

    assert why_not(body, grid=2)["0.dim0"]["beyond_256"] == "grid"


def test_reason__tensor_that_the_test_makes_wide__is_the_element_cap():
    def body():
        return torch.neg(random_tensor(ndim=2, dim1=4000))

    found = why_not(body, range(0, 100, 2))
    assert found == {"0.dim0": {"beyond_256": "element_cap", "beyond_1024": "element_cap"}}


def test_plan__rows_of_a_thousand_elements__go_beyond_256():
    def body():
        return torch.neg(random_tensor(ndim=3, dim2=1024))

    assert all("beyond_256" in classes for classes in reached(body).values())


def test_plan__fourth_attempt__is_as_without_a_plan_and_says_that_the_reference_rejected():
    found = [record(of_ndims(1), case, number=3) for case in range(0, 20, 2)]
    assert {attempt.profile for attempt in found} == {"ordinary"}
    classes = joined_sizes(sizes_of(attempt.dimensions) for attempt in found)["0.dim0"]
    assert (classes["beyond_256"], classes["beyond_1024"]) == ("rejected", "few_cases")


def test_plan__third_attempt__has_ones_that_broadcast():
    found = [record(of_ndims(3), case, number=2) for case in range(0, 20, 2)]
    large = [[d.size for d in attempt.dimensions] for attempt in found if attempt.profile == "boundary"]
    assert [sorted(sizes)[:2] for sizes in large] == [[1, 1]] * 3


def test_plan__examples__are_as_the_test_names_them():
    found = [record(of_ndims(1), case, examples=({"0.dim0": 3},) * 20) for case in range(20)]
    assert {attempt.dimensions[0].size for attempt in found} == {3}


@pytest.mark.parametrize(("shapes", "expected"), [(3, {"0.dim0", "0.dim1"}), (1, {"0.dim0"})])
def test_plan__shared_sets_of_sizes__goes_through_what_there_is(shapes, expected):
    attempts, body = Attempts(shapes=shapes), of_ndims(2)
    found = joined_sizes(
        sizes_of(attempts.attempt(Declaration(body), body, (stream_key(0, "t"), "t", case, 0)).dimensions)
        for case in range(0, 100, 2)
    )
    assert {name for name, classes in found.items() if classes["beyond_256"] == "reached"} == expected
    others = {why for classes in found.values() for why in classes.values()}
    assert others - {"reached"} == {"shapes"}


def test_plan__matrix_with_a_free_size__goes_beyond_256_and_no_further():
    found = why_not(lambda: symmetric_tensor(ndim=3) * 1, ALL)
    assert {name: classes.get("beyond_1024") for name, classes in found.items()} == {
        "0.batch0": None, "0.dim0": "element_cap",
    }  # fmt: skip
    assert not any("beyond_256" in classes for classes in found.values())


def test_draws__size_that_has_its_turn__is_one_draw_that_shrinks_to_any_size():
    case = next(iter(turns(of_ndims(2), 0).values()))
    (wide,) = [draw for draw in record(of_ndims(2), case).draws if draw.high > 8]
    assert (wide.kind, wide.low, wide.simplest, wide.value > 256) == ("dim", 1, 1, True)
    smaller = record(of_ndims(2), case, edits={wide.site: 129}, profile="boundary")
    assert {d.name: d.size for d in smaller.dimensions}[wide.site] == 129


def test_draws__logged_values__make_the_same_case():
    for attempt, case in zip(planned(of_ndims(2, 3)), range(0, 20, 2), strict=True):
        edits = {draw.site: draw.value for draw in attempt.draws}
        again = record(of_ndims(2, 3), case, edits=edits, profile=attempt.profile)
        assert (again.draws, again.profile) == (attempt.draws, attempt.profile)
        assert all(real.equal(again.sources[key], value) for key, value in attempt.sources.items())


def test_draws__cases_without_a_turn__are_as_without_a_plan():
    free = planned(of_ndims(2, 3))
    plain = planned(of_ndims(2, 3), profile="ordinary")
    kept = [(a.draws, b.draws) for a, b in zip(free, plain, strict=True) if a.profile == "ordinary"]
    assert len(kept) == 5
    assert all(one == other for one, other in kept)


def test_draws__choice_after_a_size_that_has_its_turn__is_the_same():
    def body():
        return random_tensor(ndim=1) * oneof(1.0, 2.0, 3.0)

    def choices(**how):
        return [attempt.draws[-1].value for attempt in planned(body, **how)]

    assert choices() == choices(profile="ordinary")

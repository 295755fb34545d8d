"""Classes of sizes: what a dimension reached, why not, and parts of a run that are joined in any order."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from ci_autotest.values.size_classes import CLASSES, FreeDimension, joined_sizes, sizes_of


def standing(size: int, **how):
    given = {"low": 1, "high": None, "missed": (), "otherwise": "few_cases"}
    return sizes_of([FreeDimension(name="0.dim0", size=size, **{**given, **how})])["0.dim0"]


def reached(size: int) -> set[str]:
    return {name for name, found in standing(size).items() if found == "reached"}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, set()), (1, {"one"}), (2, set()), (30, set()), (31, {"near_32"}), (33, {"near_32"}), (34, set()),
        (127, {"near_128"}), (129, {"near_128"}), (130, set()), (256, set()), (257, {"beyond_256"}),
        (1024, {"beyond_256"}), (1025, {"beyond_256", "beyond_1024"}),
    ],
)  # fmt: skip
def test_sizes_of__size__reaches_its_classes(size, expected):
    assert reached(size) == expected


def test_sizes_of__range_of_the_test__excludes_classes():
    assert standing(200, low=2, high=257) == {
        "one": "range", "near_32": "few_cases", "near_128": "few_cases", "beyond_256": "range", "beyond_1024": "range",
    }  # fmt: skip


def test_sizes_of__class_that_was_missed__has_its_reason_and_others_have_the_usual_one():
    assert standing(1, missed=(("beyond_256", "rejected"),), otherwise="shapes") == {
        "one": "reached", "near_32": "shapes", "near_128": "shapes", "beyond_256": "rejected", "beyond_1024": "shapes",
    }  # fmt: skip


def test_joined_sizes__reached_in_one_part__is_reached_and_the_stronger_reason_holds():
    one = sizes_of([FreeDimension("0.dim0", 1, 1, None, (("beyond_256", "element_cap"),), "few_cases")])
    other = sizes_of([FreeDimension("0.dim0", 32, 1, None, (("beyond_256", "rejected"),), "few_cases")])
    assert joined_sizes([one, other])["0.dim0"] == {
        "one": "reached", "near_32": "reached", "near_128": "few_cases", "beyond_256": "element_cap",
        "beyond_1024": "few_cases",
    }  # fmt: skip


def test_joined_sizes__names__are_in_the_order_of_their_numbers():
    names = ["10.dim0", "2.dim1", "2", "2.dim0"]
    parts = [sizes_of([FreeDimension(name, 1, 1, None, (), "few_cases")]) for name in names]
    assert list(joined_sizes(parts)) == ["2", "2.dim0", "2.dim1", "10.dim0"]


def test_joined_sizes__any_order_and_grouping__is_the_same():
    choose = Random(0)  # noqa: S311 - no secret
    reasons = ("element_cap", "rejected")
    dimensions = [
        FreeDimension(
            choose.choice(["0.dim0", "0.dim1", "1"]), choose.choice([1, 5, 32, 129, 300, 1100]), 1, None,
            ((choose.choice([*CLASSES]), choose.choice(reasons)),), "few_cases",
        )
        for _ in range(5)
    ]  # fmt: skip
    parts = [sizes_of([dimension]) for dimension in dimensions]
    whole = joined_sizes(parts)
    for order in permutations(parts):
        assert joined_sizes([joined_sizes(order[:2]), joined_sizes(order[2:])]) == whole

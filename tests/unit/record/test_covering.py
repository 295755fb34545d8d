"""Covering arrays: within 20 cases every pair of alternatives meets, in every test."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from ci_autotest import nothing, oneof, random, random_bool, random_tensor, torch
from ci_autotest.record.draw.covering import ROWS, planned
from ci_autotest.record.draw.profiles import ORDINARY
from tests.engine import record


@pytest.mark.parametrize("test", [0, 7, 1 << 63], ids=str)
@pytest.mark.parametrize(
    "levels", [(2,) * 8, (3, 3, 3), (4, 4), (2, 3, 4, 2), (5, 4), (3, 2, 2, 2, 2, 3), (10, 2)], ids=str
)
@pytest.mark.parametrize("block", [0, 3])
def test_planned__twenty_cases__has_every_pair(levels, test, block):
    columns = [
        [planned(test, case, levels[:at], levels[at]) for case in range(block * ROWS, (block + 1) * ROWS)]
        for at in range(len(levels))
    ]
    for (i, one), (j, other) in combinations(enumerate(columns), 2):
        assert set(zip(one, other, strict=True)) == set(product(range(levels[i]), range(levels[j])))


def test_planned__ordinary_cases__have_every_alternative():
    assert all(len({planned(5, case, (2, 2), count) for case in range(0, ROWS, 2)}) == count for count in range(1, 11))


def test_planned__beside_a_choice_of_another_rule__has_every_pair_with_it():
    turns = tuple(case // 2 % 4 for case in range(ROWS))
    for test, block in product((0, 7), (0, 3)):
        chosen = [planned(test, case, (turns,), 3) for case in range(block * ROWS, (block + 1) * ROWS)]
        assert set(zip(turns, chosen, strict=True)) == set(product(range(4), range(3)))


def test_planned__another_test__has_other_choices():
    assert len({tuple(planned(test, case, (), 4) for case in range(ROWS)) for test in range(40)}) == 4


def test_attempt__choices_of_twenty_cases__meet_in_every_pair():
    def body():
        x = random_tensor(2, 3, 3)
        return torch.sum(
            x, dim=oneof(0, 1, (0, 1), None), keepdim=random_bool() | nothing(), dtype=oneof(torch.float64, nothing())
        )

    programs = [record(body, case, profile=ORDINARY).program for case in range(ROWS)]
    given = [dict(program.steps[1].kwargs) for program in programs]
    assert len({(str(item.get("dim")), str(item.get("keepdim", "left out"))) for item in given}) == 4 * 3
    assert len({(str(item.get("dim")), "dtype" in item) for item in given}) == 4 * 2


def test_attempt__case_alone__has_the_choices_that_it_has_among_others():
    def body():
        return torch.full((random(1, 4).to(int), random(1, 3).to(int)), oneof(1.0, 2.0, 3.0))

    drawn = [record(body, case).draws for case in range(ROWS)]
    assert [record(body, case).draws for case in reversed(range(ROWS))][::-1] == drawn
    shapes = {record(body, case).trace.values[0].shape for case in range(ROWS)}
    assert shapes == set(product((1, 2, 3), (1, 2)))


def test_attempt__second_attempt__is_drawn_by_chance():
    def body():
        return torch.full((2,), oneof(*range(10)))

    firsts, seconds = ([record(body, case, number=number).draws[0].value for case in range(10)] for number in (0, 1))
    assert len(set(seconds)) < len(set(firsts))

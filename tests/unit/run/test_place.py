"""The place in flight: what a worker says of where it is, and what the parent reads."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from ci_autotest.run.place import Place


@pytest.mark.parametrize("attempts", [(0, 0, 0), (0, 2, 1)], ids=["first attempts", "other attempts"])
def test_each__of_a_column__case_and_attempt_are_said_before_its_item(attempts):
    place = Place.create()
    place.enter(3, 0, 0)
    place.step(7)
    moves = place.read().moves
    seen = []
    for item in place.entering(1, dict(enumerate(zip((5, 6, 9), attempts, strict=True)))).each([0, 1, 2], "abc"):
        spot = place.read()
        seen.append((item, spot.case, spot.candidate, spot.step, spot.attempt))
        assert spot.moves == moves + 1
    assert seen == [
        (item, case, 1, -1, attempt) for item, case, attempt in zip("abc", (5, 6, 9), attempts, strict=True)
    ]
    place.remove()


def test_lent__another_says_where_it_is__and_the_place_is_as_before():
    place = Place.create()
    place.enter(3, 0, 2)
    before = place.read()
    with place.lent():
        place.enter(8, 1, 0)
        assert place.read().case == 8
    after = place.read()
    assert after._replace(moves=0) == before._replace(moves=0)
    assert after.moves > before.moves
    place.remove()


def test_lent__lost_meanwhile__the_place_is_where_that_was():
    place = Place.create()
    place.enter(3, 0, 2)
    lost = ExitStack()
    lost.enter_context(place.lent())
    place.enter(8, 1, 0)
    assert not lost.__exit__(RuntimeError, RuntimeError("the host is gone"), None)
    assert place.read().case == 8
    place.remove()

"""The place in flight: what a worker says of where it is, and what the parent reads."""

from __future__ import annotations

from contextlib import ExitStack

from ci_autotest.run.progress_beacon import IN_FLOAT64, ProgressBeacon


def test_restored__another_says_where_it_is__and_the_place_is_as_before():
    place = ProgressBeacon.create()
    place.enter(3, 0, 2)
    before = place.read()
    with place.entering(1, [(8, 0)]).restored():
        place.enter(8, 1, 0)
        assert place.read().case == 8
    after = place.read()
    assert after._replace(moves=0) == before._replace(moves=0)
    assert after.moves > before.moves
    place.close()


def test_restored__lost_meanwhile__the_place_is_where_that_was():
    place = ProgressBeacon.create()
    place.enter(3, 0, 2)
    lost = ExitStack()
    lost.enter_context(place.entering(1, [(8, 0)]).restored())
    place.enter(8, 1, 0)
    assert not lost.__exit__(RuntimeError, RuntimeError("the host is gone"), None)
    assert place.read().case == 8
    place.close()


def test_in_float64__asked_in_a_step__the_place_is_that_step_again():
    place = ProgressBeacon.create()
    place.enter(3, 0, 2, 5)
    with place.in_float64():
        assert place.read()[:4] == (3, 0, IN_FLOAT64, 2)
    assert place.read()[:4] == (3, 0, 5, 2)
    place.close()

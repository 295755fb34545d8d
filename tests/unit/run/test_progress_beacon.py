"""The place in flight: what a worker says of where it is, and what the parent reads."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from ci_autotest.run.progress_beacon import _CALLS_AT, IN_FLOAT64, JOURNAL_CALLS, ProgressBeacon
from ci_autotest.run.worker_loss import silence_text
from ci_autotest.values.schedule import CandidateCall, Passes, RowName


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


def test_wait_for__ranks__are_read_and_are_no_move():
    place = ProgressBeacon.create()
    place.enter(3, 0, 2)
    before = place.read()

    place.wait_for([0, 3])

    assert (place.awaited(), place.read()) == ([0, 3], before)
    place.close()


def test_wait_for__nobody__is_a_move():
    place = ProgressBeacon.create()
    place.wait_for([1])
    before = place.read()

    place.wait_for(())

    assert (place.awaited(), place.read().moves) == ([], before.moves + 1)
    place.close()


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([], "made no progress for 6 s and was ended"),
        ([2], "made no progress for 6 s (rank 2 did not answer) and was ended"),
        ([0, 1, 3], "made no progress for 6 s (ranks 0, 1 and 3 did not answer) and was ended"),
    ],
    ids=str,
)
def test_silence_text__ranks_that_are_awaited__are_named(ranks, said):
    assert silence_text(6, ranks) == said


def test_calls__of_a_batch_and_a_repeat__are_read_in_their_order():
    place = ProgressBeacon.create()
    assert place.calls() == []
    place.journal.begin_message()
    cases = place.entering(0, [(3, 0), (4, 1)])
    cases.calls(0, Passes.FORWARD)
    cases.calls(1, Passes.FORWARD)
    cases.calls(0, Passes.BACKWARD)
    place.journal.begin_message()
    place.entering(1, [(4, 1)], RowName.REPEAT).calls(0, Passes.BOTH)
    assert place.calls() == [
        CandidateCall(0, 0, 3, 0, RowName.CASE, Passes.FORWARD),
        CandidateCall(0, 0, 4, 1, RowName.CASE, Passes.FORWARD),
        CandidateCall(0, 0, 3, 0, RowName.CASE, Passes.BACKWARD),
        CandidateCall(1, 1, 4, 1, RowName.REPEAT, Passes.BOTH),
    ]
    place.close()


def test_calls__more_than_the_journal_keeps__are_the_latest():
    place = ProgressBeacon.create()
    cases = place.entering(0, [(case, 0) for case in range(JOURNAL_CALLS + 5)])
    for case in range(JOURNAL_CALLS + 5):
        cases.calls(case, Passes.FORWARD)
    assert [call.case for call in place.calls()] == list(range(5, JOURNAL_CALLS + 5))
    place.close()


def test_calls__that_a_kernel_has_overwritten__are_left_out():
    place = ProgressBeacon.create()
    cases = place.entering(0, [(3, 0), (4, 0)])
    cases.calls(0, Passes.FORWARD)
    cases.calls(1, Passes.FORWARD)
    place.entering(0, [(5, 0)], RowName.RECALL).calls(0, Passes.BOTH)
    os.pwrite(place.fd, b"\xff" * 24, _CALLS_AT)
    assert [call.case for call in place.calls()] == [4, 5]
    place.close()


def test_clear__process_that_replays_again__has_the_calls_since_then_alone():
    place = ProgressBeacon.create()
    for case in (3, 4):
        place.journal.clear()
        place.journal.begin_message()
        place.entering(0, [(case, 0)]).calls(0, Passes.FORWARD)
    assert place.calls() == [CandidateCall(0, 0, 4, 0, RowName.CASE, Passes.FORWARD)]
    place.close()

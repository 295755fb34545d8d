"""The schedule: which case asks for which calls, and what they add to a run."""

from __future__ import annotations

import pytest

from ci_autotest.values.schedule import SCHEDULE, Ability, RowName, asks, has_probe, probe_row

#: Extra passes of a window of ten cases at most, for each pass of a case.
FORWARD_AT_MOST, BACKWARD_AT_MOST = 4.5, 2.5


def test_schedule__names_of_rows__have_a_row_each():
    assert SCHEDULE.keys() == {*RowName}


@pytest.mark.parametrize(
    ("case", "abilities", "row"),
    [
        (0, {"steps", "again", "body"}, None),
        (1, {"steps", "again"}, RowName.SEQUENCE),
        (9, {"steps"}, RowName.SEQUENCE),
        (10, {"steps"}, RowName.SERIES),
        (19, {"steps", "again"}, RowName.SERIES),
        (20, {"steps"}, RowName.SEQUENCE),
        (1, {"body"}, RowName.RECALL),
        (15, {"body"}, RowName.RECALL),
        (1, set(), None),
    ],
)
def test_probe_row__case__has_the_row_that_the_candidate_can_do(
    case: int, abilities: set[Ability], row: RowName | None
):
    assert probe_row(case, abilities) is row
    assert has_probe(case) is (case > 0)


def test_asks__twenty_cases__are_guarded_or_checked_apart_from_each_other():
    asked = {row: [case for case in range(20) if asks(row, case)] for row in (RowName.GUARD, RowName.OPERATORS)}
    assert asked == {RowName.GUARD: [2, 10, 18], RowName.OPERATORS: [0, 6, 12]}


def test_schedule__windows__keep_to_a_share_of_the_cases():
    for window in (range(1, 10), range(10, 20)):
        asked = [
            row
            for row in SCHEDULE.values()
            if row.is_of_window and any(map(row.asks, window)) and row.needs != ("body",)
        ]
        assert sum(row.forward for row in asked) <= FORWARD_AT_MOST * len(window)
        assert sum(row.backward for row in asked) <= BACKWARD_AT_MOST * len(window)

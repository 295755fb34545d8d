"""Grids: cases are all combinations of the values of ``every``, and a grid that cannot be counted is refused."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ci_autotest import assume, every, nothing, random, random_tensor, torch
from ci_autotest.errors import AuthorError
from ci_autotest.record.grids import grid_points
from tests.engine import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = every(range(1, 4))


def numbers() -> Iterator[int]:
    yield from (1, 2)


def three_axes() -> Any:
    x = random_tensor(2, SIZES, every([2, 5]))
    return torch.sum(x, dim=every(0, 1))


def with_a_refused_point() -> Any:
    return torch.sum(torch.ones(2, every(2, 3)), dim=every(5, 0))


def with_an_assumption() -> Any:
    a, b = every(numbers()), every(1, 2)
    assume(a.value() >= b.value())  # type: ignore[attr-defined]
    return torch.ones(2) * a * b


def in_a_branch() -> Any:
    return torch.ones(2) * every(1, 2, 3) if every(False, True).value() else torch.ones(2).sum()  # type: ignore[attr-defined]


def counted(body: Callable[[], object]) -> int:
    return grid_points(lambda case: record(body, case))


def test_every__cases__have_all_combinations_and_then_begin_again():
    calls = [record(three_axes, case, grid=12) for case in range(13)]
    seen = [(attempt.trace.values[0].shape, dict(attempt.program.body[1].kwargs)["dim"]) for attempt in calls]
    assert len(set(seen[:12])) == 12
    assert seen[12] == seen[0]
    assert {tuple(shape) for shape, _ in seen} == {(a, b) for a in (1, 2, 3) for b in (2, 5)}


def test_every__grid__has_no_profiles_unless_asked():
    shown = [
        {record(three_axes, case, grid=12, **asked).profile for case in range(12)}
        for asked in ({}, {"profiles": ("non_contiguous",)})
    ]
    assert shown == [{"ordinary"}, {"ordinary", "non_contiguous"}]


def test_every__examples__come_before_the_grid():
    cases = [record(three_axes, case, grid=12, examples=({"1": 2},)) for case in range(3)]
    assert [attempt.trace.values[0].shape[0] for attempt in cases] == [3, 1, 2]


def test_every__edited_draw__has_that_value():
    assert record(three_axes, 0, grid=12, edits={"1": 1}).trace.values[0].shape[0] == 2


COUNTS = {
    "three axes": (three_axes, 12),
    "a point is refused": (with_a_refused_point, 4),
    "an assumption": (with_an_assumption, 4),
    "none": (lambda: torch.ones(2) + random(1, 3).to(int), 0),
    "one value": (lambda: torch.ones(2) + every(3), 0),
    "huge": (lambda: torch.ones(2) + every(range(10**9)) + every(range(10**9)), 10**18),
}


@pytest.mark.parametrize(("body", "points"), COUNTS.values(), ids=COUNTS)
def test_grid_points__cases_of_a_body__are_counted(body: Callable[[], object], points: int):
    assert counted(body) == points


REFUSED = {
    "no value": (lambda: torch.ones(2) + every(), None, "every() has no value"),
    "too many points": (three_axes, 1_000_001, "its grid has 1,000,001 points, and 1,000,000 are allowed"),
    "not counted": (three_axes, 0, "outside of the test's file"),
    "in a branch": (in_a_branch, 2, "6 combinations in this case and 2 in the case by which they were counted"),
    "left out": (lambda: torch.sum(torch.ones(2), dim=every(0, 1) | nothing()), 1, "in this case"),
}


@pytest.mark.parametrize(("body", "grid", "said"), REFUSED.values(), ids=REFUSED)
def test_every__grid_that_cannot_be_counted__says_what_to_write(
    body: Callable[[], object], grid: int | None, said: str
):
    def run() -> None:
        for case in range(4):
            record(partial(body), case, grid=grid)

    with pytest.raises(AuthorError, match=re.escape(said)):
        run()

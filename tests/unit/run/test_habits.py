"""What a candidate changes in every process, and when that ends one no longer."""

from __future__ import annotations

from ci_autotest.run.habits import ENDED_AT_MOST, Habits
from ci_autotest.run.messages import Change, Left


def left(*changes: tuple[str, bool], candidate: str = "here") -> list[Left]:
    told = [Change(what=what, is_habit=is_habit) for what, is_habit in changes]
    return [Left(candidate=candidate, operators=["torch.exp"], changes=told)]


def test_is_spoiled__a_habit__ends_some_processes_and_then_none_of_that_candidate():
    habits = Habits()
    assert [habits.is_spoiled(left(("threads", True))) for _ in range(ENDED_AT_MOST + 5)] == [
        *[True] * ENDED_AT_MOST, *[False] * 5
    ]  # fmt: skip
    assert habits.is_spoiled(left(("threads", True), candidate="there"))
    assert habits.is_spoiled(left(("threads", True), ("environment: A", True)))


def test_is_spoiled__what_no_library_has_cause_to_change__ends_every_process():
    habits = Habits()
    assert all(habits.is_spoiled(left(("default dtype", False))) for _ in range(3 * ENDED_AT_MOST))


def test_is_spoiled__nothing_is_left__ends_none():
    assert not Habits().is_spoiled([])

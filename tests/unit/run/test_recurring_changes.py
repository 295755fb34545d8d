"""What a candidate changes in every process, and when that ends one no longer."""

from __future__ import annotations

from ci_autotest.run.messages import Change, Left
from ci_autotest.run.recurring_changes import ENDED_AT_MOST, RecurringChanges


def left(*changes: tuple[str, bool], candidate: str = "here") -> list[Left]:
    told = [Change(what=what, is_recurring=is_recurring) for what, is_recurring in changes]
    return [Left(candidate=candidate, operators=["torch.exp"], changes=told)]


def test_is_spoiled__a_habit__ends_some_processes_and_then_none_of_that_candidate():
    recurring_changes = RecurringChanges()
    assert [recurring_changes.is_spoiled(left(("threads", True))) for _ in range(ENDED_AT_MOST + 5)] == [
        *[True] * ENDED_AT_MOST, *[False] * 5
    ]  # fmt: skip
    assert recurring_changes.is_spoiled(left(("threads", True), candidate="there"))
    assert recurring_changes.is_spoiled(left(("threads", True), ("environment: A", True)))


def test_is_spoiled__what_no_library_has_cause_to_change__ends_every_process():
    recurring_changes = RecurringChanges()
    assert all(recurring_changes.is_spoiled(left(("default dtype", False))) for _ in range(3 * ENDED_AT_MOST))


def test_is_spoiled__nothing_is_left__ends_none():
    assert not RecurringChanges().is_spoiled([])

"""Choice among the discovered tests: ``-k`` by words of their ids, ``--lf`` by the outcome of their last run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.commands.request import NothingFoundError
from ci_autotest.discovery import select
from ci_autotest.values.amounts import plural
from ci_autotest.values.judgement import FAILED, causes
from ci_autotest.values.speed import is_wrong_at_size
from ci_autotest.values.verdict import FAILED_OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ci_autotest.commands.request import Request
    from ci_autotest.discovery import Selection
    from ci_autotest.run.messages import TestInfo
    from ci_autotest.values.result import RunResult

_NAMED: Final = 3
_AGAIN: Final = FAILED_OUTCOMES | {"flaky"}


class Chosen(NamedTuple):
    """The tests that run, and what is to be said about the choice."""

    tests: list[TestInfo]
    note: str = ""


def chosen_tests(tests: list[TestInfo], request: Request, failed: Collection[str]) -> Chosen:
    """Return the tests that ``-k`` and ``--lf`` leave.

    Args:
        tests: All discovered tests.
        request: Has the expression, and whether only tests that failed last run.
        failed: Ids of the tests, and files, that failed when they last ran.

    Raises:
        NothingFoundError: None is left.
    """
    found, notes = tests, []
    if request.keywords is not None:
        found = [test for test in found if request.keywords.match(test.id)]
        if tests and not found:
            raise NothingFoundError(_no_match(request.keywords.text, tests))
        notes.append(f"{len(found):,} of {plural(len(tests), 'test')} match -k {request.keywords.text!r}")
    if request.is_last_failed:
        # A file that could not be imported failed as a whole, so all its tests run again.
        again = [test for test in found if test.id in failed or test.location.file in failed]
        if again:
            notes.append(f"{len(again):,} of {plural(len(found), 'test')} failed when they last ran (--lf)")
        else:
            notes.append(f"no test failed when it last ran, so --lf runs {'it' if len(found) == 1 else 'all of them'}")
        found = again or found
    return Chosen(found, "; ".join(notes))


def _no_match(text: str, tests: Sequence[TestInfo]) -> str:
    more = f" and {len(tests) - _NAMED:,} more" if len(tests) > _NAMED else ""
    known = ", ".join(test.id for test in tests[:_NAMED])
    return f"no test matches -k {text!r}: there are {known}{more}. `ci-autotest list` prints them."


def is_part(selection: Selection, request: Request) -> bool:
    """Return whether a selection is less than what a run without arguments has.

    Whoever runs one file does not expect it to use every replacement of the configuration.
    """
    if selection.wanted:
        return True
    if not request.paths:
        return False
    whole = set(select(request.config.paths, request.root, request.root).files)
    return set(selection.files) < whole


def failed_after(result: RunResult, before: Collection[str], *, has_all_candidates: bool) -> list[str]:
    """Return the tests and files whose last run failed: those of this run, and earlier ones that did not run again.

    Args:
        result: Of the run.
        before: What failed before it.
        has_all_candidates: Whether every candidate of the configuration ran; else a test may still fail on another.
    """
    now = {item.test for item in result.results if item.outcome in _AGAIN}
    now |= {test for cause in causes(result) if cause.status == FAILED for test in cause.tests}
    now |= {item.test for item in result.speed if is_wrong_at_size(item)}
    if not has_all_candidates:
        return sorted({*before, *now})
    # A test that was cut short may still fail, so it stays in the list.
    cut = {item.test for item in result.results if item.cases.not_run}
    ran = [item for item in result.results if item.cases.compared and item.test not in cut]
    again = {item.test for item in ran} | {item.location.file for item in ran if item.location is not None}
    return sorted((set(before) - again) | now)

"""Grids: every combination of the values of a test's ``every`` is a case, counted before the run.

The rule of this module: a case's point of the grid depends only on its number and on the axes that it draws, so that a
case can be drawn without the others. Hence each case must draw the same axes; otherwise the test is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ci_autotest.errors import AuthorError
from ci_autotest.record.draw.generators import Generator, settle
from ci_autotest.values.case import GRID_AT_MOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.backends.trace import Attempt
    from ci_autotest.record.declaration import Declaration
    from ci_autotest.record.draw.draws import Drawer

T = TypeVar("T")

#: Cases that are drawn to count a grid, until the reference accepts one: some points may be refused.
_CASES: Final = 20
_CALL: Final = re.compile(r"\bevery\(")


class GridValues(Generator):
    """An axis of the grid: the cases of a test have each value, in every combination with those of other axes."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[object]) -> None:
        self.values = values
        if not values:
            message = "every() has no value. Write every(1, 2, 3) or every(range(3))."
            raise AuthorError(message)

    def __repr__(self) -> str:
        return f"every({', '.join(map(repr, islice(self.values, 3)))}{', …' if len(self.values) > 3 else ''})"  # noqa: PLR2004 - three show what it is

    def draw(self, drawer: Drawer, wanted: object, site: str) -> object:
        """Return the case's value."""
        value = settle(drawer, self.values[drawer.grid_choice(site, len(self.values))], wanted)
        drawer.point.append(value)
        return value


def every(*values: T | Iterable[T]) -> T:
    """Return a generator for a grid: the cases of a test are all combinations of the values.

    ``ci-autotest list`` shows how many. All of them run, whatever ``--cases`` is, without profiles unless
    ``@autotest(profiles=…)`` asks for some. Other draws are random in each case. A test with more than a million
    combinations is refused before it runs.

    Args:
        values: The values; or one range, list or other iterable of them.

    Raises:
        AuthorError: There is no value.
    """
    if len(values) != 1 or isinstance(values[0], str) or not isinstance(values[0], Iterable):
        return cast("T", GridValues(values))
    found: Any = values[0]
    if not isinstance(found, Sequence):
        # One more than is allowed: an endless iterable ends, and `refuse_too_many` still sees that it is too long.
        found = tuple(islice(found, GRID_AT_MOST + 1))
    return cast("T", GridValues(found))


def may_have_grid(file: str) -> bool:
    """Return true if a test file calls ``every``, so that its tests must be drawn once to count their points."""
    try:
        return _CALL.search(Path(file).read_text("utf-8", "replace")) is not None
    except OSError:
        return False


def grid_points(draw: Callable[[int], Attempt]) -> int:
    """Return the number of points of a test's grid, or 0 without one. The run of a broken test reports the problem."""
    found = 1
    for case in range(_CASES):
        try:
            attempt = draw(case)
        except AuthorError:
            break
        found = max(found, attempt.grid)
        # The points after a refused step are unknown.
        if attempt.refused is None:
            break
    return found if found > 1 else 0


def refuse_too_many(declaration: Declaration) -> None:
    """Refuse a test whose grid has too many points.

    Raises:
        AuthorError: It has more than a million.
    """
    if (declaration.grid or 0) > GRID_AT_MOST:
        message = (
            f"its grid has {declaration.grid:,} points, and {GRID_AT_MOST:,} are allowed. Give every() fewer "
            "values, or draw some of them with oneof() or random()."
        )
        raise AuthorError(message)


def check_grid(declaration: Declaration, points: int) -> None:
    """Refuse a case that draws other axes than the case by which the grid was counted: points would be left out.

    Raises:
        AuthorError: The numbers of points differ.
    """
    counted = max(declaration.grid or 0, 1)
    if declaration.grid is None or points == counted:
        return
    if declaration.grid == 0:
        message = "every() is called outside of the test's file, where it was not counted. Call it in the test's file."
    else:
        message = (
            f"every() has {points:,} combinations in this case and {counted:,} in the case by which they were counted. "
            "Draw each every() in all cases: write .value() before any branch."
        )
    raise AuthorError(message)

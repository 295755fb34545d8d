"""Simpler draws: sizes move toward 1, integers toward the simplest value, and optional arguments are dropped.

The body runs again from the edited log, so that two tensors that share a size continue to share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ci_autotest.values.case import Draw, DrawnValue

#: The order of draws. Those that simplify most come first: fewer dimensions, dropped arguments, then sizes and numbers.
_ORDER: Final = {"ndim": 0, "choice": 1, "bool": 2, "dim": 3, "int": 4, "float": 5}


@dataclass(slots=True)
class DrawEdits:
    """Edits that are proposed together. The caller sets ``kept`` if the finding still shows with them."""

    edits: dict[str, DrawnValue]
    kept: bool = False


def simpler_draws(log: Callable[[], tuple[Draw, ...]]) -> Iterator[DrawEdits]:
    """Yield changes to the current log: all draws at once, then each alone, integers by bisection.

    Args:
        log: Returns the log of the best trial so far; it is called again after each change.
    """
    everything = {draw.site: draw.simplest for draw in log() if draw.value != draw.simplest}
    # One trial instead of many if no draw matters.
    if len(everything) > 1:
        yield DrawEdits(everything)
    for site in [draw.site for draw in sorted(log(), key=lambda draw: _ORDER.get(draw.kind, 9))]:
        draw = _at(log(), site)
        if draw is not None and draw.value != draw.simplest:
            yield from _moved(draw, log)


def _moved(draw: Draw, log: Callable[[], tuple[Draw, ...]]) -> Iterator[DrawEdits]:
    simplest = DrawEdits({draw.site: draw.simplest})
    yield simplest
    if simplest.kept or draw.kind not in {"ndim", "dim", "int"}:
        return
    # Bisection for the least value that still fails: `low` is known to pass, `high` to fail.
    low, high = int(draw.simplest or 0), int(draw.value or 0)
    while abs(high - low) > 1:
        middle = (low + high) // 2
        change = DrawEdits({draw.site: middle})
        yield change
        now = _at(log(), draw.site)
        # With another draw edited the body may not reach this one, for example the size of a dimension that is gone.
        if now is None:
            return
        low, high = (low, middle) if change.kept else (middle, high)


def _at(log: tuple[Draw, ...], site: str) -> Draw | None:
    return next((draw for draw in log if draw.site == site), None)

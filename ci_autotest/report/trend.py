"""Trends over runs: a number of each run, with the words and the small plot that show how it went."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ci_autotest.report.document import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.values.past_run import PastRun

_BARS: Final = "▁▂▃▄▅▆▇█"
_MISSING: Final = " "
_OUTCOMES: Final = (
    "aligned",
    "misaligned",
    "reference_off",
    "known",
    "crashed",
    "timed_out",
    "flaky",
    "unsupported",
    "not_run",
    "skipped",
    "broken",
)
#: Findings whose errors are shown: those of the latest runs first.
_ERRORS_SHOWN: Final = 40
#: A greatest error spans many orders of magnitude, so its plot is logarithmic from this ratio on.
_LOGARITHMIC: Final = 100.0


@dataclass(frozen=True, slots=True)
class Trend:
    """A number of each run, oldest first; ``None`` where a run has none.

    Attributes:
        group: What the number is about: outcomes, speed or greatest errors.
        name: What is counted or measured.
        values: One for each run.
        form: Format of a value.
    """

    group: str
    name: str
    values: tuple[float | None, ...]
    form: str

    @property
    def last(self) -> str:
        """The latest value in words."""
        value = self.values[-1] if self.values else None
        return "none" if value is None else format(value, self.form)

    @property
    def heights(self) -> tuple[float | None, ...]:
        """The values from 0 to 1, on a logarithmic scale if they span orders of magnitude."""
        seen = [value for value in self.values if value is not None]
        most, positive = max(seen, default=0.0), [value for value in seen if value > 0]
        if most <= 0:
            return tuple(None if value is None else 0.0 for value in self.values)
        least = min(positive)
        if most / least >= _LOGARITHMIC and self.form != ",d":
            span = math.log(most / least)
            # A value above 0 has at least a tenth of the height, so that the least one does not look like 0.
            return tuple(
                None if value is None else 0.0 if value <= 0 else 0.1 + 0.9 * math.log(value / least) / span
                for value in self.values
            )
        return tuple(None if value is None else max(0.0, value / most) for value in self.values)

    @property
    def bars(self) -> str:
        """The values as a line of bars for a terminal."""
        top = len(_BARS) - 1
        return "".join(_MISSING if each is None else _BARS[min(top, round(each * top))] for each in self.heights)


def trends(runs: Sequence[PastRun]) -> list[Trend]:
    """Return the trends of runs, oldest first: outcomes that ever occurred, speed, and greatest errors by finding."""
    found = []
    for outcome in _OUTCOMES:
        values = tuple(getattr(run.summary, outcome) for run in runs)
        if any(values):
            found.append(Trend("outcomes", outcome.replace("_", " "), values, ",d"))
    found.append(Trend("speed", "seconds", tuple(run.duration_s for run in runs), ",.1f"))
    speeds = tuple(run.summary.cases / run.duration_s if run.duration_s else None for run in runs)
    found.append(Trend("speed", "cases a second", speeds, ",.1f"))
    names = dict.fromkeys(name for run in reversed(runs) for name in run.errors)
    for name in list(names)[:_ERRORS_SHOWN]:
        found.append(Trend("greatest errors", one_line(name, 160), tuple(run.errors.get(name) for run in runs), ".3g"))
    return found

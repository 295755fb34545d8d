"""A run as the history keeps it: its outcomes, its greatest errors and its speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from ci_autotest.values.result import Summary
from ci_autotest.values.verdict import Struct

if TYPE_CHECKING:
    from ci_autotest.values.result import RunResult

#: Findings whose greatest error a run keeps.
ERRORS_AT_MOST: Final = 200
#: Runs that are kept; the oldest are dropped first.
RUNS_AT_MOST: Final = 200
_NAME_CHARS: Final = 500

_Text = Annotated[str, msgspec.Meta(max_length=_NAME_CHARS)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class PastRun(Struct, frozen=True, kw_only=True):
    """A run of the past.

    Attributes:
        name: What the run is called in a list: its commit, or the folder of its report.
        seed: Root seed.
        time_s: Seconds since 1970 at its end; 0 if unknown.
        summary: Number of (test, candidate) pairs by outcome.
        duration_s: Seconds from start to end.
        errors: Greatest absolute difference by ``candidate operator kind``; null if it is not finite or has no number.
    """

    name: _Text
    seed: int
    time_s: _Seconds = 0.0
    summary: Summary
    duration_s: _Seconds
    errors: dict[_Text, float | None] = msgspec.field(default_factory=dict)


class History(Struct, frozen=True, kw_only=True):
    """The content of ``history.json``, oldest run first."""

    schema: Literal["ci-autotest/history/1"] = "ci-autotest/history/1"
    runs: tuple[PastRun, ...] = ()


def past_run(result: RunResult, name: str = "", time_s: float = 0.0) -> PastRun:
    """Return what the history keeps of a run.

    Args:
        result: The run.
        name: What it is called if its report has no commit.
        time_s: Seconds since 1970 at its end.
    """
    errors = {
        " ".join(finding.identity)[:_NAME_CHARS]: finding.greatest_absolute_difference
        for finding in result.findings[:ERRORS_AT_MOST]
    }
    return PastRun(
        name=(result.environment.commit[:8] or name)[:_NAME_CHARS], seed=result.seed, time_s=time_s,
        summary=result.summary, duration_s=max(0.0, result.duration_s), errors=errors,
    )  # fmt: skip

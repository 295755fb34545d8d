"""The words for probes that were not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.values.probes import ProbeCounts
from ci_autotest.values.result import unprobed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.values.probes import NoProbe
    from ci_autotest.values.result import RunResult

WORDS: Final[Mapping[NoProbe, str]] = {
    "outside_scope": "the candidate's row excludes a call of the probe",
    "same_values": "the inputs cannot have other values",
    "not_repeatable": (
        "the body registers hooks, runs a backward pass, draws random numbers or has a step that raises, so it cannot "
        "be called twice"
    ),
    "too_large": "the values have more than 32,768 elements",
    "empty": "no tensor has an element",
    "accepted": "`known` accepts a difference of its cases that a probe could not tell from one of its own",
    "not_aligned": "no case was aligned",
    "ranks": "groups of ranks are not probed",
    "no_steps": "what is made of a body is for one run only",
}


def probe_notes(result: RunResult) -> list[str]:
    """Return a note for each candidate with operators that a whole run called and never probed."""
    return [_never_probed(name, operators, _probes_of(result, name)) for name, operators in unprobed(result).items()]


def _never_probed(candidate: str, operators: Sequence[str], counts: ProbeCounts) -> str:
    reasons = sorted(counts.left_out.items(), key=lambda item: -item[1])
    why = "; ".join(f"{WORDS[reason]} ({count} of {counts.planned} probes)" for reason, count in reasons)
    return (
        f"{', '.join(operators)} on {candidate} was called, but never several times in a row: a kernel that replays "
        f"earlier answers would not be found. {why or 'A test needs at least two cases for that'}"
    )


def _probes_of(result: RunResult, name: str) -> ProbeCounts:
    return sum((item.probes for item in result.results if item.candidate == name), ProbeCounts())

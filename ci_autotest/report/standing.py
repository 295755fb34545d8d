"""What a finding says of its operator, in the words and colours of every surface: who is off, and what is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ci_autotest.values.finding import is_found_leniency

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.values.finding import Finding

#: What became of an operator on a candidate.
State: TypeAlias = Literal[
    "crashed", "timed_out", "misaligned", "flaky", "reference_off", "rounding", "known", "leniency", "aligned",
    "involved", "not_compared",
]  # fmt: skip
#: The states, worst first, each with what it is called.
STATES: Final[Mapping[State, str]] = {
    "crashed": "crashed", "timed_out": "timed out", "misaligned": "misaligned", "flaky": "flaky",
    "reference_off": "reference off", "rounding": "rounding of both sides", "known": "accepted",
    "leniency": "accepts what the reference rejects", "involved": "only in misaligned cases", "aligned": "aligned",
    "not_compared": "not compared",
}  # fmt: skip


def state_of(finding: Finding) -> State:
    """Return what a finding says of its operator."""
    if finding.known is not None:
        return "known"
    if is_found_leniency(finding):
        return "leniency"
    if finding.blame in _EXCUSED and finding.outcome == "misaligned":
        return _EXCUSED[finding.blame]
    match finding.outcome:
        case "crashed" | "timed_out" | "flaky":
            return finding.outcome
        case _:
            return "misaligned"


_EXCUSED: Final[Mapping[str, State]] = {"reference": "reference_off", "ill_conditioned": "rounding"}


def word_of(finding: Finding) -> str:
    """Return the word that a finding's line begins with: ``misaligned``, ``reference off``, ``crashed``."""
    state = state_of(finding)
    return "misaligned" if state == "leniency" else "rounding" if state == "rounding" else STATES[state]

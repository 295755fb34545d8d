"""The words for probes that were not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ci_autotest.values.probes import NoProbe, ProbeCounts

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
    "no_steps": "compiled bodies are not probed",
}


def never_probed(candidate: str, operators: Collection[str], counts: ProbeCounts) -> str:
    """Return the sentence about operators that a run called and never probed.

    Args:
        candidate: Name of the candidate.
        operators: Canonical operators that it replaces.
        counts: The probes of all tests on the candidate.
    """
    reasons = sorted(counts.left_out.items(), key=lambda item: -item[1])
    why = "; ".join(f"{WORDS[reason]} ({count} of {counts.planned} probes)" for reason, count in reasons)
    named = ", ".join(sorted(operators))
    return (
        f"{named} on {candidate} was called, but never several times in a row: a kernel that replays earlier answers "
        f"would not be found. {why or 'A test needs at least two cases for that'}"
    )

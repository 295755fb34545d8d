"""The grid of operators: what became of each operator on each candidate, by family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.report.coverage import is_run
from ci_autotest.report.document import one_line
from ci_autotest.report.standing import STATES, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.report.standing import State
    from ci_autotest.values.coverage_values import OperatorCoverage
    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import RunResult

#: The letter that the page's data has for each state.
LETTERS: Final[Mapping[State, str]] = {
    "crashed": "c", "timed_out": "t", "misaligned": "m", "flaky": "f", "reference_off": "e", "rounding": "r",
    "known": "k", "leniency": "l", "involved": "i", "aligned": "a", "not_compared": "-",
}  # fmt: skip
_WORST_FIRST: Final = tuple(STATES)
_OTHER: Final = "other"


def grid(result: RunResult, findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the families, each with its operators and a string for each candidate with a letter for each of them.

    Args:
        result: The run.
        findings: Its findings, or those that are shown.
    """
    worst: dict[tuple[str, str], State] = {}
    for finding in findings:
        key, state = (finding.operator, finding.candidate), state_of(finding)
        worst[key] = min(worst.get(key, state), state, key=_WORST_FIRST.index)
    families: dict[str, dict[str, OperatorCoverage | None]] = {}
    for item in result.operators:
        families.setdefault(item.family or _OTHER, {})[item.operator] = item
    listed = {item.operator for item in result.operators}
    for finding in findings:
        # If no step is to blame, a finding has the test's name as its operator, which no coverage lists.
        if finding.operator not in listed:
            families.setdefault(_OTHER, {})[finding.operator] = None
    names = [info.name for info in result.candidates]
    return [
        {
            "family": one_line(family.replace("_", " "), 60),
            "operators": [one_line(name, 120) for name in own],
            "states": ["".join(_letter(name, own[name], each, worst) for name in own) for each in names],
        }
        for family, own in sorted(families.items(), key=lambda item: (item[0] == _OTHER, item[0]))
    ]


def _letter(
    operator: str, coverage: OperatorCoverage | None, candidate: str, worst: Mapping[tuple[str, str], State]
) -> str:
    if (state := worst.get((operator, candidate))) is not None:
        return LETTERS[state]
    found = coverage.candidates.get(candidate) if coverage is not None else None
    if found is None or not found.cases or not is_run(found):
        return LETTERS["not_compared"]
    return LETTERS["aligned" if found.aligned else "involved"]

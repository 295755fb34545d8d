"""What every finding must say, whatever its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.report.finding_program import missing_program

if TYPE_CHECKING:
    from ci_autotest.values.finding import Finding


def missing_words(finding: Finding) -> list[str]:
    """Return what a finding does not say: its title, why it was not shrunk, its program or why there is none."""
    subject, _, sentence = finding.headline.partition(": ")
    is_titled = bool(sentence.strip()) or finding.outcome == "flaky"
    says = {
        "a title": finding.operator in subject and finding.candidate in subject and is_titled and "  " not in sentence,
        "a message": bool(finding.message),
        "why it was not shrunk": finding.shrunk != bool(finding.not_shrunk),
        "a program, or why there is none": bool(finding.program)
        if not finding.no_program
        else bool(missing_program(finding)),
        "that its lines are for reading": not (finding.program and finding.no_program)
        or finding.program.startswith("# no program to paste: "),
    }
    return [what for what, is_said in says.items() if not is_said]

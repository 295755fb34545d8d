"""``ci-autotest issue``: print a finding as the text of a bug report to whoever makes the candidate."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ci_autotest.commands.output_writer import REPORT
from ci_autotest.errors import UsageError
from ci_autotest.report import report_json
from ci_autotest.report.finding_folders import FINDINGS
from ci_autotest.report.finding_text import issue_text

if TYPE_CHECKING:
    from typing import TextIO

_EXAMPLE: Final = f"autotest-report/{FINDINGS}/exp-123456"


def issue(finding: str, output: Path, stream: TextIO) -> int:
    """Print the text.

    Args:
        finding: The folder of a finding, or its id.
        output: The output folder, for an id.
        stream: Receives the text.

    Raises:
        UsageError: There is no report, or it has no such finding.
    """
    given = Path(finding)
    folder = given if given.parent.name == FINDINGS else given.resolve()  # as in `issue .` and `issue exp-123456`
    if folder.parent.name == FINDINGS:
        output = folder.parent.parent
    if not (output / REPORT).is_file() and (folder / "README.md").is_file():  # pytest writes no report
        message = f"'{output}' holds no {REPORT}. '{folder / 'README.md'}' has the form of a bug report."
        raise UsageError(message)
    if not (output / REPORT).is_file():
        own = "" if folder.parent.name == FINDINGS else f"'{given}' is no folder of a finding, and "
        message = f"{own}'{output}' holds no {REPORT}. Give the folder of a finding, as {_EXAMPLE}."
        raise UsageError(message)
    report = report_json.read(output / REPORT)
    findings = {item.id: item for item in report.findings}
    found = findings.get(folder.name)
    if found is None:
        nearest = get_close_matches(folder.name, findings, 1)
        hint = f"Did you mean {nearest[0]!r}?" if nearest else f"It has {', '.join(findings) or 'none'}."
        message = f"the report in '{output}' has no finding {folder.name!r}. {hint}"
        raise UsageError(message)
    stream.write(issue_text(found, report.candidates))
    return 0

"""GitHub's workflow commands that put findings beside the lines of the pull request.

Lines of ``::error …::message``, made of nothing that a test wrote without escaping it: a name
cannot end the command or begin another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.report.markdown_text import line, plain, plural
from ci_autotest.report.standing import headline, in_reading_order
from ci_autotest.result import counts_against

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.result import Finding, RunResult

#: Annotations of one kind that a step may have. Source: GitHub's limits of workflow commands.
GREATEST_COUNT: Final = 10
#: Characters of one message. Source: as above.
_MESSAGE_LIMIT: Final = 4_096
_TITLE_LIMIT: Final = 255

# Source: actions/toolkit, packages/core/src/command.ts, `escapeData` and `escapeProperty`.
_DATA: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def annotate(result: RunResult, prefix: str = "") -> tuple[str, ...]:
    """Return the commands for the findings that count against the run, without line ends.

    Args:
        result: The run.
        prefix: The configuration's folder in the repository, for files are named from the
            repository's top.
    """
    counting = [finding for finding in in_reading_order(result) if counts_against(finding)]
    lines = [_error(finding, prefix) for finding in counting[:GREATEST_COUNT]]
    rest = counting[GREATEST_COUNT:]
    return (*lines, *([_notice(rest)] if rest else []))


def _error(finding: Finding, prefix: str) -> str:
    properties = {"title": line(headline(finding), _TITLE_LIMIT)}
    if finding.location is not None:
        file = "/".join(part for part in (prefix.strip("/"), finding.location.file) if part not in {"", "."})
        properties = {"file": file, "line": str(finding.location.line), **properties}
    told = ",".join(f"{name}={plain(value).translate(_PROPERTY)}" for name, value in properties.items())
    replay = f"\nreplay: {finding.replay}" if finding.replay else ""
    return f"::error {told}::{_data((finding.message or headline(finding)) + replay)}"


def _notice(findings: Sequence[Finding]) -> str:
    names = ", ".join(f"{finding.operator or finding.test} on {finding.candidate}" for finding in findings)
    told = f"{plural(len(findings), 'more finding')}: {names}"
    return f"::notice title=ci-autotest::{_data(told)}"


def _data(message: str) -> str:
    return plain(message)[:_MESSAGE_LIMIT].translate(_DATA)

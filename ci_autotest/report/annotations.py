"""GitHub's workflow commands (``::error …::message``) that show findings beside the lines of the pull request.

A finding stands at its kernel's line if that is known, because a pull request changes kernels, else at its test's.
Everything that a test wrote is escaped, so a name can neither end a command nor begin another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.report.cause_text import in_order, name_of, sentence_of
from ci_autotest.report.document import one_line, plain
from ci_autotest.report.links import repository_path
from ci_autotest.report.verdict_line import headline
from ci_autotest.values.amounts import plural
from ci_autotest.values.finding import Finding
from ci_autotest.values.judgement import FAILED
from ci_autotest.values.result import BrokenTest, kernel_of

if TYPE_CHECKING:
    from ci_autotest.values.finding import Location
    from ci_autotest.values.judgement import Cause
    from ci_autotest.values.result import RunResult

#: Annotations of one kind that a step may have. Source: GitHub's limits of workflow commands.
MOST: Final = 10
#: Characters of one message. Source: GitHub's limits of workflow commands.
_MESSAGE_CHARS: Final = 4_096
_TITLE_CHARS: Final = 255
_NAME_CHARS: Final = 120

# Source: actions/toolkit, packages/core/src/command.ts, `escapeData` and `escapeProperty`.
_DATA: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def annotate(result: RunResult, prefix: str = "") -> tuple[str, ...]:
    """Return the commands for what fails the run: at most ten, and one line that names the rest.

    Args:
        result: The run.
        prefix: The configuration's folder in the repository.
    """
    of_tests = [cause for cause in in_order(result) if cause.status == FAILED and cause.test]
    tests = {item.test: item.location for item in result.results}
    errors = [_error(cause, result, tests.get(cause.test), prefix) for cause in of_tests[:MOST]]
    rest = [name_of(cause) for cause in of_tests[MOST:]]
    return (*errors, *([_notice(rest)] if rest else []))


def _error(cause: Cause, result: RunResult, test: Location | None, prefix: str) -> str:
    subject = cause.subject
    title, message = _title_and_message(cause)
    properties = {"title": one_line(title, _TITLE_CHARS)}
    location = subject.location if isinstance(subject, Finding | BrokenTest) else test
    file = "" if location is None else repository_path(prefix, location.file)
    if isinstance(subject, Finding) and (kernel := kernel_of(result, subject)):
        file, location, message = kernel.file, kernel, f"{message}\ntest: {subject.test}"
    if location is not None:
        properties = {"file": one_line(file), "line": str(location.line), **properties}
    fields = ",".join(f"{name}={value.translate(_PROPERTY)}" for name, value in properties.items())
    return f"::error {fields}::{_data(message)}"


def _title_and_message(cause: Cause) -> tuple[str, str]:
    match cause.subject:
        case Finding() as finding:
            replay = f"\nreplay: {finding.replay}" if finding.replay else ""
            return headline(finding), (finding.message or headline(finding)) + replay
        case BrokenTest() as broken:
            return f"{broken.test} is broken", f"{broken.message}\n{broken.traceback}"
        case _:
            return f"{name_of(cause)}: {cause.kind.value}", sentence_of(cause)


def _notice(names: list[str]) -> str:
    """Return one line that names as many as fit, and counts the others."""
    head, named = f"{plural(len(names), 'more finding')}: ", ""
    for index, name in enumerate(names):
        longer = f"{named}{', ' if index else ''}{one_line(name, _NAME_CHARS)}"
        if len(head) + len(longer) > _MESSAGE_CHARS - len(", and 1,000,000 more"):
            return _notice_of(f"{head}{named}, and {len(names) - index:,} more")
        named = longer
    return _notice_of(head + named)


def _notice_of(text: str) -> str:
    return f"::notice title=ci-autotest::{_data(text)}"


def _data(message: str) -> str:
    return plain(message)[:_MESSAGE_CHARS].rstrip().translate(_DATA)

"""The end of a result: its exit status, and the notes on what was asked for and did not happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.doc_links import Page, more
from ci_autotest.errors import OutputError
from ci_autotest.report.probe_text import probe_notes
from ci_autotest.values.expected_failures import passed_sentence, unexpected_passes
from ci_autotest.values.judgement import causes, status_of
from ci_autotest.values.result import RunError, not_called, one_error, uncalled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.values.result import FailOn, RunResult

#: Operators that a note names.
_NAMED: Final = 5


def settled(result: RunResult, fail_on: FailOn) -> RunResult:
    """Return a result with its exit status, and notes for replacements that were never called or never probed."""
    sentences = tuple(
        f"candidate '{name}': the replacement of {', '.join(missing)} was never called. "
        f"Operators that were called: {', '.join(sorted(result.calls.get(name, {}))) or 'none'}. "
        f"Correct the spelling, or add a test that uses it.{more(Page.NEVER_CALLED)}"
        for name, missing in uncalled(result).items()
    )
    passed = [
        f"{item.test} {passed_sentence(item.xfail)}" for item in unexpected_passes(result) if item.xfail is not None
    ]
    notes = dict.fromkeys((*result.notes, *probe_notes(result), *sentences, *_not_called_in_part(result), *passed))
    judged = msgspec.structs.replace(result, notes=tuple(notes), fail_on=fail_on)
    return msgspec.structs.replace(judged, exit_code=status_of(causes(judged)))


def _not_called_in_part(result: RunResult) -> list[str]:
    """Return a note for each candidate of which a part of the tests does not call some replacements."""
    missing = not_called(result) if result.is_partial else {}
    return [
        f"candidate '{name}': {', '.join(operators[:_NAMED])}{' and others' if len(operators) > _NAMED else ''} not "
        "called, because a part of the tests ran"
        for name, operators in missing.items()
    ]


def not_written(result: RunResult, failures: Sequence[str]) -> RunResult:
    """Return a result with the error and its note for files that could not be written, if there are any."""
    if not failures:
        return result
    others = f" {len(failures) - 1} more could not be written either." if len(failures) > 1 else ""
    return ended_by(result, RunError(f"{failures[0]}{others}", OutputError.exit_code, is_of_report=True))


def ended_by(result: RunResult, error: RunError) -> RunResult:
    """Return a result whose status and first note are those of an error; an interrupted run keeps its status."""
    status = result.exit_code if result.interrupted else error.status
    both = one_error([error, *([result.error] if result.error is not None else ())])
    return msgspec.structs.replace(result, error=both, exit_code=status, notes=(error.message, *result.notes))

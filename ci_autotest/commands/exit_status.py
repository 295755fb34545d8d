"""The end of a result: its exit status, and the notes on what was asked for and did not happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.doc_links import Page, more
from ci_autotest.errors import OutputError
from ci_autotest.values.expected_failures import passed_sentence, unexpected_passes
from ci_autotest.values.judgement import causes, status_of
from ci_autotest.values.probes import ProbeCounts
from ci_autotest.values.result import RunError, not_called, one_error, uncalled, unprobed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.values.probes import NoProbe
    from ci_autotest.values.result import FailOn, RunResult

#: Operators that a note names.
_NAMED: Final = 5
_WORDS: Final[Mapping[NoProbe, str]] = {
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
    notes = dict.fromkeys((*result.notes, *_probe_notes(result), *sentences, *_not_called_in_part(result), *passed))
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


def _probe_notes(result: RunResult) -> list[str]:
    """Return a note for each candidate with operators that a whole run called and never probed."""
    return [_never_probed(name, operators, _probes_of(result, name)) for name, operators in unprobed(result).items()]


def _never_probed(candidate: str, operators: Sequence[str], counts: ProbeCounts) -> str:
    reasons = sorted(counts.left_out.items(), key=lambda item: -item[1])
    why = "; ".join(f"{_WORDS[reason]} ({count} of {counts.planned} probes)" for reason, count in reasons)
    return (
        f"{', '.join(operators)} on {candidate} was called, but never several times in a row: a kernel that replays "
        f"earlier answers would not be found. {why or 'A test needs at least two cases for that'}"
    )


def _probes_of(result: RunResult, name: str) -> ProbeCounts:
    return sum((item.probes for item in result.results if item.candidate == name), ProbeCounts())

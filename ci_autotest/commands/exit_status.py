"""The exit status of a run: ``exit_code`` is the table of the README, row by row from the top."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.doc_links import Page, more
from ci_autotest.errors import OutputError, UnsupportedReason
from ci_autotest.report.probe_text import probe_notes
from ci_autotest.values.expected_failures import passed_sentence, unexpected_passes
from ci_autotest.values.finding import Finding, counts_against, is_found_leniency
from ci_autotest.values.result import CaseCounts, RunResult, TestResult, is_all_skipped, not_called, uncalled
from ci_autotest.values.speed import is_too_slow, is_wrong_at_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.values.speed import SpeedResult

#: Reasons that lie in the candidate, not in the test: a test that is unsupported for these alone does not fail the run.
_EXCUSED: Final = frozenset({
    UnsupportedReason.NO_COUNTERPART, UnsupportedReason.NO_KERNEL, UnsupportedReason.NOT_REPLACED,
    UnsupportedReason.CONSTANT, UnsupportedReason.OUT_OF_SCOPE, UnsupportedReason.RANKS, UnsupportedReason.OTHER_API,
    UnsupportedReason.NO_SHARDING_RULE, UnsupportedReason.PLACEMENT_REFUSED, UnsupportedReason.NOT_SIMULATED,
    UnsupportedReason.NO_PARAMETERS, UnsupportedReason.BATCH,
})  # fmt: skip
#: Those of them by which a candidate lacks what a test calls.
_LACKING: Final = frozenset({UnsupportedReason.NO_COUNTERPART, UnsupportedReason.NO_KERNEL})
#: Beginning of the names of tests that no file of the user's has.
_BUILTIN: Final = "builtin:"
INTERRUPTED, NOTHING, FAILED, FINE = 130, 3, 1, 0
#: Operators that a note names.
_NAMED: Final = 5


def settled(result: RunResult, fail_on: str) -> RunResult:
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
    noted = msgspec.structs.replace(result, notes=tuple(notes))
    return msgspec.structs.replace(noted, exit_code=exit_code(result, fail_on))


def _not_called_in_part(result: RunResult) -> list[str]:
    """Return a note for each candidate of which a part of the tests does not call some replacements."""
    missing = not_called(result) if result.is_partial else {}
    return [
        f"candidate '{name}': {', '.join(operators[:_NAMED])}{' and others' if len(operators) > _NAMED else ''} not "
        "called, because a part of the tests ran"
        for name, operators in missing.items()
    ]


def not_written(result: RunResult, failures: Sequence[str]) -> RunResult:
    """Return a result with a note and the exit status for files that could not be written, if there are any."""
    if not failures:
        return result
    others = f" {len(failures) - 1} more could not be written either." if len(failures) > 1 else ""
    status = result.exit_code if result.interrupted else OutputError.exit_code
    return msgspec.structs.replace(result, exit_code=status, notes=(*result.notes, f"{failures[0]}{others}"))


def exit_code(result: RunResult, fail_on: str) -> int:
    """Return the exit status: the first row of the table that holds, from the top."""
    if result.interrupted:
        return INTERRUPTED
    if _fails(result.findings, fail_on, result.new) or result.broken or _unexplained(result.results, result.findings):
        return FAILED
    if any(item.xfail.is_strict for item in unexpected_passes(result) if item.xfail is not None):
        return FAILED
    if _is_failed_by_speed(result.speed, fail_on) or (result.power is not None and result.power.is_too_low):
        return FAILED
    if (
        not result.results
        or is_all_skipped(result)
        or uncalled(result)
        or any(_is_untested(item, result) for item in result.results)
        or _has_little(result)
        or (result.power is not None and result.power.unmeasured)
    ):
        return NOTHING
    return FINE


def _unexplained(results: tuple[TestResult, ...], findings: tuple[Finding, ...]) -> bool:
    """Return whether a (test, candidate) failed and no finding reports it: such a run must not be green."""
    reported = {(item.candidate, test) for item in findings for test in item.tests or (item.test,)}
    bad = {"misaligned", "crashed", "timed_out"}
    return any(item.outcome in bad and (item.candidate, item.test) not in reported for item in results)


def _fails(findings: tuple[Finding, ...], fail_on: str, new: tuple[str, ...] | None) -> bool:
    if fail_on == "never":
        return False
    counted = [item for item in findings if counts_against(item)]
    if fail_on == "flaky":
        counted += [item for item in findings if item.outcome == "flaky" and item.known is None]
    if fail_on == "leniency":
        counted += [item for item in findings if is_found_leniency(item) and item.known is None]
    # Without a baseline every finding is new.
    if fail_on == "new" and new is not None:
        return any(item.id in new for item in counted)
    return bool(counted)


def _is_failed_by_speed(results: Sequence[SpeedResult], fail_on: str) -> bool:
    """Return whether a call at larger sizes was wrong, or slower where that is asked for."""
    wrong = [item for item in results if is_wrong_at_size(item)]
    if fail_on == "new":
        wrong = [item for item in wrong if item.new is not False]
    return bool(wrong and fail_on != "never") or (fail_on == "slower" and any(map(is_too_slow, results)))


def _has_little(result: RunResult) -> bool:
    """Return whether a candidate lacks what most of the tests in files call: such a run has hardly tested it.

    The built-in sources test all of torch, which no framework has, so that they do not count.
    """
    own = [item for item in result.results if not item.test.startswith(_BUILTIN)]
    shares = Counter(item.candidate for item in own)
    lacking = Counter(item.candidate for item in own if _lacks_all(item))
    return not result.is_partial and any(2 * count > shares[name] for name, count in lacking.items())


def _lacks_all(item: TestResult) -> bool:
    return item.outcome == "unsupported" and any(each.reason in _LACKING for each in item.unsupported)


def _is_untested(item: TestResult, result: RunResult) -> bool:
    """Return whether a (test, candidate) has no compared case and that fails the run.

    A candidate may lack the operators of a test: a substitute replaces others, a framework has no counterpart, a device
    has no kernel, or the candidate's row rules the calls out. Such a test does not count for that candidate if another
    test was compared on it. Replacements that were never called are checked separately, and the report lists the
    operators that are missing.
    """
    if item.cases.compared or item.outcome == "skipped":
        return False
    if item.cases == CaseCounts() and not item.attempts.rejected:
        return False  # All its cases are in other shards.
    elsewhere = any(other.candidate == item.candidate and other.cases.compared for other in result.results)
    is_lacking = bool(item.unsupported) and all(each.reason in _EXCUSED for each in item.unsupported)
    # Whoever runs a part of the tests does not expect each of them to concern each candidate.
    elsewhere |= result.is_partial and not result.interrupted and any(other.cases.compared for other in result.results)
    return not (item.outcome == "unsupported" and is_lacking and elsewhere)

"""The exit status, and what ends a run with it. Pure.

The exit table of the README is ``exit_code``, row by row from the top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.errors import OutputError, UnsupportedReason
from ci_autotest.values.finding import Finding, counts_against, is_found_leniency
from ci_autotest.values.result import CaseCounts, RunResult, TestResult, uncalled

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What a candidate lacks and no test can give it: a test that shows nothing else does not by itself fail the run.
_EXCUSED: Final = frozenset({
    UnsupportedReason.NO_COUNTERPART, UnsupportedReason.NO_KERNEL, UnsupportedReason.NOT_REPLACED,
    UnsupportedReason.CONSTANT,
})  # fmt: skip
INTERRUPTED, NOTHING, FAILED, FINE = 130, 3, 1, 0


def settled(result: RunResult, fail_on: str) -> RunResult:
    """Return a result with its exit status, and with what a whole run says of replacements that were never called."""
    sentences = tuple(
        f"candidate '{name}': the replacement of {', '.join(missing)} was never called. "
        f"Operators that were called: {', '.join(sorted(result.calls.get(name, {}))) or 'none'}. "
        "Correct the spelling, or add a test that uses it."
        for name, missing in uncalled(result).items()
    )
    noted = msgspec.structs.replace(result, notes=(*result.notes, *sentences))
    return msgspec.structs.replace(noted, exit_code=exit_code(result, fail_on))


def not_written(result: RunResult, told: Sequence[str]) -> RunResult:
    """Return a result with a note of what could not be written, where something could not; its status says so too."""
    if not told:
        return result
    more = f" {len(told) - 1} more could not be written either." if len(told) > 1 else ""
    status = result.exit_code if result.interrupted else OutputError.exit_code
    return msgspec.structs.replace(result, exit_code=status, notes=(*result.notes, f"{told[0]}{more}"))


def exit_code(result: RunResult, fail_on: str) -> int:
    """Return the exit status: the first row of the table that holds, from the top."""
    if result.interrupted:
        return INTERRUPTED
    if _fails(result.findings, fail_on, result.new) or result.broken or _unexplained(result.results, result.findings):
        return FAILED
    if not result.results or uncalled(result) or any(_is_untested(item, result) for item in result.results):
        return NOTHING
    return FINE


def _unexplained(results: tuple[TestResult, ...], findings: tuple[Finding, ...]) -> bool:
    """Whether a (test, candidate) went wrong and no finding tells of it: that is never green."""
    told = {(item.candidate, test) for item in findings for test in item.tests or (item.test,)}
    bad = {"misaligned", "crashed", "timed_out"}
    return any(item.outcome in bad and (item.candidate, item.test) not in told for item in results)


def _fails(findings: tuple[Finding, ...], fail_on: str, new: tuple[str, ...] | None) -> bool:
    if fail_on == "never":
        return False
    counted = [item for item in findings if counts_against(item)]
    if fail_on == "flaky":
        counted += [item for item in findings if item.outcome == "flaky" and item.known is None]
    if fail_on == "leniency":
        counted += [item for item in findings if is_found_leniency(item) and item.known is None]
    if fail_on == "new" and new is not None:
        return any(item.id in new for item in counted)
    return bool(counted)


def _is_untested(item: TestResult, result: RunResult) -> bool:
    """Whether a (test, candidate) has no compared case.

    A test of operators that a substitute does not replace is no test of that substitute, and one of operators that a
    framework has no counterpart of, or a device no kernel, none of that one, as long as some other test is: that every
    replacement was called is checked by itself, and the report names what is missing.
    """
    if item.cases.compared or (item.cases == CaseCounts() and not item.attempts.rejected):
        return False  # compared, or no case of it belongs to this shard
    elsewhere = any(other.candidate == item.candidate and other.cases.compared for other in result.results)
    is_lacking = bool(item.unsupported) and all(each.reason in _EXCUSED for each in item.unsupported)
    return not (item.outcome == "unsupported" and is_lacking and elsewhere)

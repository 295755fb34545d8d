"""What fails a run: the causes of its exit status. The status, and every surface that says why, ask here.

The rows are those of ``docs/reference/exit-status.md``, from the top. An error has a status of its own, 2 or 4.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.errors import UnsupportedReason
from ci_autotest.values.expected_failures import unexpected_passes
from ci_autotest.values.finding import Finding, counts_against, is_found_leniency
from ci_autotest.values.result import CaseCounts, RunError, is_all_skipped, uncalled
from ci_autotest.values.speed import is_too_slow, is_wrong_at_size
from ci_autotest.values.verdict import FAILED_OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.values.result import BrokenTest, FailOn, RunResult, TestResult
    from ci_autotest.values.speed import SpeedResult

INTERRUPTED, NOTHING, FAILED, FINE = 130, 3, 1, 0
#: Reasons that lie in the candidate, not in the test: a test that is unsupported for these alone does not fail the run.
_EXCUSED: Final = frozenset({
    UnsupportedReason.NO_COUNTERPART, UnsupportedReason.NO_KERNEL, UnsupportedReason.NOT_REPLACED,
    UnsupportedReason.CONSTANT, UnsupportedReason.OUT_OF_SCOPE, UnsupportedReason.RANKS, UnsupportedReason.OTHER_API,
    UnsupportedReason.NO_SHARDING_RULE, UnsupportedReason.PLACEMENT_REFUSED, UnsupportedReason.NOT_SIMULATED,
    UnsupportedReason.NO_PARAMETERS, UnsupportedReason.BATCH, UnsupportedReason.NOT_DELEGATED,
})  # fmt: skip
#: Those of them by which a candidate lacks what a test calls.
_LACKING: Final = frozenset({
    UnsupportedReason.NO_COUNTERPART, UnsupportedReason.NO_KERNEL, UnsupportedReason.NOT_DELEGATED,
})  # fmt: skip
#: Beginning of the names of tests that no file of the user's has.
_BUILTIN: Final = "builtin:"


class CauseKind(Enum):
    """A kind of cause."""

    INTERRUPTION = "interruption"
    ERROR = "error"
    FINDING = "finding"
    ORPHAN = "orphan"
    BROKEN = "broken"
    UNEXPECTED_PASS = "unexpected pass"  # noqa: S105 - no password
    WRONG_AT_SIZE = "wrong at size"
    SLOWER = "slower"
    LOW_POWER = "low power"
    UNCALLED = "uncalled"
    UNTESTED = "untested"
    LACKING = "lacking"
    UNMEASURED = "unmeasured"


_NOTHING: Final = frozenset({CauseKind.UNCALLED, CauseKind.UNTESTED, CauseKind.LACKING, CauseKind.UNMEASURED})


class Cause(NamedTuple):
    """One cause.

    Attributes:
        kind: What it is.
        test: The test; empty if it is none of one test.
        candidate: The candidate; empty if it is none of one candidate.
        subject: The finding, result, broken test, timed call or error; ``None`` if it is none of one.
    """

    kind: CauseKind
    test: str = ""
    candidate: str = ""
    subject: Finding | TestResult | BrokenTest | SpeedResult | RunError | None = None

    @property
    def status(self) -> int:
        """The exit status that it gives."""
        if isinstance(self.subject, RunError):
            return self.subject.status
        if self.kind is CauseKind.INTERRUPTION:
            return INTERRUPTED
        return NOTHING if self.kind in _NOTHING else FAILED

    @property
    def tests(self) -> tuple[str, ...]:
        """Every test that it fails: those that show a finding, or the one; empty if it is none of a test."""
        shown = self.subject.tests if isinstance(self.subject, Finding) else ()
        return shown or ((self.test,) if self.test else ())


def causes(result: RunResult) -> tuple[Cause, ...]:
    """Return what fails a run under its ``fail_on``, in the order of the table."""
    return (*_of_interruption(result), *_of_failures(result), *_of_silence(result))


def status_of(found: tuple[Cause, ...]) -> int:
    """Return the exit status for the causes of a run."""
    return found[0].status if found else FINE


def failing(result: RunResult) -> list[Finding]:
    """Return the findings that fail a run under its ``fail_on``."""
    counted = [item for item in result.findings if _counts(item, fail_on_of(result))]
    # Without a baseline every finding is new.
    if fail_on_of(result) == "new" and result.new is not None:
        return [item for item in counted if item.id in result.new]
    return counted


def spared(result: RunResult) -> list[Finding]:
    """Return the findings against a candidate that do not fail the run, because of its ``fail_on``."""
    ids = {item.id for item in failing(result)}
    return [item for item in result.findings if counts_against(item) and item.id not in ids]


def fail_on_of(result: RunResult) -> FailOn:
    """Return what ends a run with 1; of a report that does not say, what its status and its baseline suggest."""
    if result.fail_on is not None:
        return result.fail_on
    return "new" if result.new is not None and result.exit_code == FINE else "misaligned"


def _counts(item: Finding, fail_on: str) -> bool:
    if fail_on == "never" or item.known is not None:
        return False
    is_asked_for = (fail_on == "flaky" and item.outcome == "flaky") or (
        fail_on == "leniency" and is_found_leniency(item)
    )
    return is_asked_for or counts_against(item)


def _of_interruption(result: RunResult) -> Iterator[Cause]:
    if result.interrupted:
        yield Cause(CauseKind.INTERRUPTION)
    if result.error is not None:
        yield Cause(CauseKind.ERROR, subject=result.error)


def _of_failures(result: RunResult) -> Iterator[Cause]:
    fail_on = fail_on_of(result)
    for finding in failing(result):
        yield Cause(CauseKind.FINDING, finding.test, finding.candidate, finding)
    for item in orphans(result):
        yield Cause(CauseKind.ORPHAN, item.test, item.candidate, item)
    for broken in result.broken:
        yield Cause(CauseKind.BROKEN, broken.test, "", broken)
    for item in unexpected_passes(result):
        if item.xfail is not None and item.xfail.is_strict:
            yield Cause(CauseKind.UNEXPECTED_PASS, item.test, "", item)
    for call in result.speed:
        is_counted = fail_on != "never" and (fail_on != "new" or call.new is not False)
        if is_wrong_at_size(call) and is_counted:
            yield Cause(CauseKind.WRONG_AT_SIZE, call.test, call.candidate, call)
        elif fail_on == "slower" and is_too_slow(call):
            yield Cause(CauseKind.SLOWER, call.test, call.candidate, call)
    if result.power is not None and result.power.is_too_low:
        yield Cause(CauseKind.LOW_POWER)


def orphans(result: RunResult) -> list[TestResult]:
    """Return the results that failed although no finding reports them: such a run must not be green."""
    reported = {(item.candidate, test) for item in result.findings for test in item.tests or (item.test,)}
    return [
        item
        for item in result.results
        if item.outcome in FAILED_OUTCOMES and (item.candidate, item.test) not in reported
    ]


def _of_silence(result: RunResult) -> Iterator[Cause]:
    for name in uncalled(result):
        yield Cause(CauseKind.UNCALLED, "", name)
    for item in result.results:
        if _is_untested(item, result):
            yield Cause(CauseKind.UNTESTED, item.test, item.candidate, item)
    if not result.results or is_all_skipped(result):
        yield Cause(CauseKind.UNTESTED)
    for name in _lacking(result):
        yield Cause(CauseKind.LACKING, "", name)
    if result.power is not None:
        for test in result.power.unmeasured:
            yield Cause(CauseKind.UNMEASURED, test.test)


def _lacking(result: RunResult) -> list[str]:
    """Return the candidates that lack what most of the tests in files call: such a run has hardly tested them.

    The built-in sources test all of torch, which no framework has, so that they do not count.
    """
    own = [item for item in result.results if not item.test.startswith(_BUILTIN)]
    shares = Counter(item.candidate for item in own)
    lacking = Counter(item.candidate for item in own if _lacks_all(item))
    return [] if result.is_partial else [name for name, count in lacking.items() if 2 * count > shares[name]]


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

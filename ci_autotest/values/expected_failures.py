"""Tests that are expected to fail (``xfail``): their findings are accepted, and a pass is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from ci_autotest.values.speed import is_wrong_at_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import RunResult, TestResult, XFail


#: Kinds that no mark expects.
_LOST: Final = frozenset({"crash", "timeout"})


class MarkedTest(Protocol):
    """A test with its mark, if it has one."""

    @property
    def id(self) -> str:
        """``path::name``."""

    @property
    def xfail(self) -> XFail | None:
        """The mark."""


def accept_expected(findings: Sequence[Finding], tests: Sequence[MarkedTest]) -> tuple[Finding, ...]:
    """Return the findings; those that only tests with a mark show are accepted, with the reason of the first."""
    marks = {test.id: test.xfail for test in tests if test.xfail is not None}
    return tuple(_accepted(finding, marks) for finding in findings)


def _accepted(finding: Finding, marks: Mapping[str, XFail]) -> Finding:
    tests = finding.tests or (finding.test,)
    if finding.kind in _LOST:
        return finding  # pytest too ends with the process that a test ends, whatever its mark.
    # A test without a mark does not expect the difference, so the finding counts as soon as one shows it.
    if finding.known is not None or not all(test in marks for test in tests):
        return finding
    return msgspec.structs.replace(finding, known=marks[tests[0]].sentence)


def unexpected_passes(result: RunResult) -> list[TestResult]:
    """Return a result of each test that is expected to fail, was run to its end and passed on all candidates.

    A shard does not know the cases of the others, so it has none.
    """
    if result.shard != (1, 1) or result.interrupted:
        return []
    tests: dict[str, list[TestResult]] = {}
    wrong = {item.test for item in result.speed if is_wrong_at_size(item)}
    for item in result.results:
        if item.xfail is not None and item.test not in wrong:
            tests.setdefault(item.test, []).append(item)
    return [group[0] for group in tests.values() if _has_passed(group)]


def _has_passed(group: Sequence[TestResult]) -> bool:
    # Cases that the reference rejects are among those not run, and no longer run would compare them.
    is_whole = all(item.cases.not_run <= item.rejected_cases for item in group)
    has_failed = any(item.findings or item.outcome not in {"aligned", "unsupported", "skipped"} for item in group)
    return is_whole and not has_failed and any(item.cases.compared for item in group)


def passed_sentence(mark: XFail) -> str:
    """Return what is said of a test that passed; it follows the name of the test."""
    strict = " that is strict" if mark.is_strict else ""
    return f"passed, although it is marked as an expected failure ({mark.reason}){strict}. Remove the mark."

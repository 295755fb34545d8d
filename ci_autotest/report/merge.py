"""Merge the shards of one run into that run, and count its results.

The rule: merging makes nothing better. A test that was not aligned in one shard for a reason that its counts do not
show stays so; a finding that counts against the run is preferred to one that does not; a missing shard is refused.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ci_autotest.errors import UsageError
from ci_autotest.report.coverage import counted, covered
from ci_autotest.report.finding_merge import merged_finding
from ci_autotest.report.report_json import ordered
from ci_autotest.values.power import merged_power
from ci_autotest.values.result import (
    LOADER_CANDIDATE,
    AttemptCounts,
    BrokenTest,
    CandidateInfo,
    CaseCounts,
    RunResult,
    Summary,
    TestResult,
    one_error,
    worst,
)
from ci_autotest.values.tally import PairTally, TestTally, UsageTally, add, result_fields, tallies_of, usage_of
from ci_autotest.values.verdict import WORST_FIRST, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from ci_autotest.values.finding import Finding

Item = TypeVar("Item")


def merge(results: Sequence[RunResult]) -> RunResult:
    """Return the run whose shards are ``results``, in any order.

    ``exit_code`` is 0, because only the caller knows ``--fail-on``. ``duration_s`` is that of the longest shard.

    Raises:
        UsageError: The shards are not of one run, one is given twice, or one is missing.
    """
    _check_shards(results)
    parts = sorted(results, key=lambda part: part.shard)
    groups = _groups(parts, _results_of, lambda item: (item.test, item.candidate))
    run = {(group[0].test, group[0].candidate): sum(item.run for item in group) for group in groups}
    findings = tuple(
        merged_finding(group, {test: cases for (test, name), cases in run.items() if name == group[0].candidate})
        for group in _groups(parts, _findings_of, lambda item: item.identity)
    )
    tests = tuple(_merged_result(group, findings) for group in groups)
    broken = tuple(
        group[0] for group in _groups(parts, lambda part: part.broken, lambda item: (item.test, item.message))
    )
    candidates = _merged_candidates(parts)
    usage: dict[str, UsageTally] = {}
    for part in parts:
        add(usage, usage_of(part))
    operators = covered(usage)
    return ordered(
        RunResult(
            seed=parts[0].seed,
            shapes=parts[0].shapes,
            environment=parts[0].environment,
            candidates=candidates,
            results=tests,
            findings=findings,
            summary=summarize(tests, findings, broken),
            broken=broken,
            interrupted=any(part.interrupted for part in parts),
            # A file of a shard's report that could not be written is none of the merged one.
            error=one_error([part.error for part in parts if part.error and not part.error.is_of_report]),
            notes=_merged_notes(parts),
            fixed=_merged_fixed(parts, findings),
            new=_merged_new(parts, findings),
            duration_s=max(part.duration_s for part in parts),
            calls={name: dict(sorted(used.calls.items())) for name, used in usage.items() if used.calls},
            probed={name: [*used.probed] for name, used in sorted(usage.items()) if used.probed},
            is_partial=any(part.is_partial for part in parts),
            operators=operators,
            speed=tuple(item for part in parts for item in part.speed),
            power=merged_power([part.power for part in parts if part.power is not None]),
            coverage=counted(
                operators,
                findings,
                [info.name for info in candidates if info.available and info.name != LOADER_CANDIDATE],
            ),
        )
    )


def summarize(results: Iterable[TestResult], findings: Sequence[Finding], broken: Sequence[BrokenTest]) -> Summary:
    """Count (test, candidate) pairs by outcome; ``cases`` counts those that were compared."""
    results = tuple(results)
    outcomes: Counter[str] = Counter(item.outcome for item in results)
    cases = sum(item.cases.compared for item in results)
    return Summary(**outcomes, broken=len(broken), findings=len(findings), cases=cases)


def _check_shards(results: Sequence[RunResult]) -> None:
    if not results:
        message = "there is no report to merge. Name the folders that the shards wrote."
        raise UsageError(message)
    for words, values in (
        ("seeds", {part.seed for part in results}),
        ("numbers of shapes", {part.shapes for part in results}),
        ("numbers of shards", {part.shard[1] for part in results}),
        ("commits", {part.environment.commit for part in results if part.environment.commit}),
        ("plans", {part.plan for part in results if part.plan}),
    ):
        if len(values) > 1:
            given = ", ".join(map(str, sorted(values)))
            hint = (
                " Shards have the same plan if they have the same tests and the same .autotest/."
                if words == "plans"
                else ""
            )
            message = (
                f"the reports have different {words} ({given}): they are not shards of one run. "
                f"Name the folders of one run only.{hint}"
            )
            raise UsageError(message)
    _check_complete([part.shard[0] for part in results], results[0].shard[1])


def _check_complete(indices: list[int], count: int) -> None:
    if twice := sorted(index for index, times in Counter(indices).items() if times > 1):
        message = f"{_shards(twice)} of {count} is given more than once. Name each shard's folder once."
        raise UsageError(message)
    if strange := sorted(index for index in indices if not 1 <= index <= count):
        message = f"{_shards(strange)} of {count} does not exist: the index runs from 1 to the count."
        raise UsageError(message)
    # Not ``range(1, count + 1)``: the count comes from a file, and a range of a hostile number would fill the memory.
    if count > len(indices):
        given = set(indices)
        missing = [index for index in range(1, min(count, len(indices) + 20) + 1) if index not in given]
        message = f"{_shards(missing)} of {count} is missing, so its tests would not count. Name its folder too."
        raise UsageError(message)


def _shards(indices: Sequence[int]) -> str:
    return f"shard {', '.join(map(str, indices))}"


def _results_of(part: RunResult) -> tuple[TestResult, ...]:
    return part.results


def _findings_of(part: RunResult) -> tuple[Finding, ...]:
    return part.findings


def _groups(
    parts: Sequence[RunResult],
    items: Callable[[RunResult], Iterable[Item]],
    key: Callable[[Item], Hashable],
) -> list[list[Item]]:
    """Return the items of all shards grouped by key, in order of first appearance."""
    groups: dict[Hashable, list[Item]] = {}
    for item in chain.from_iterable(map(items, parts)):
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def leaves_alone(counts: CaseCounts) -> bool:
    """Whether cases ended their worker, and others were therefore not run."""
    return counts.not_run > 0 and counts.crashed + counts.timed_out > 0


def left_alone(counts: CaseCounts) -> str:
    """Return why cases were not run after others of their window had ended their worker."""
    ended = counts.crashed + counts.timed_out
    return f"{ended} cases ended their worker; the other {counts.not_run} were skipped"


def skipped_because(reason: str) -> str:
    """Return why nothing was compared if the body skipped its cases."""
    return f"skipped: {reason}"


def all_rejected(attempts: AttemptCounts, refusal: str) -> str:
    """Return why nothing was compared if the reference rejected every attempt."""
    return f"the reference rejected all {attempts.rejected} attempts, for example: {refusal}"


def _merged_result(parts: Sequence[TestResult], findings: Iterable[Finding]) -> TestResult:
    tests, pairs = zip(*map(tallies_of, parts), strict=True)
    test, cases = sum(tests, TestTally()), sum((part.cases for part in parts), CaseCounts())
    outcome = _merged_outcome(parts, cases)
    return msgspec.structs.replace(
        parts[0],
        outcome=outcome,
        cases=cases,
        findings=tuple(
            sorted(item.id for item in findings if item.candidate == parts[0].candidate and parts[0].test in item.tests)
        ),
        reason=_merged_reason(parts, cases, test, outcome),
        # Reports of earlier versions do not say of how many ordinary attempts.
        weak=test.is_weak or any(part.weak and part.ordinary == AttemptCounts() for part in parts),
        left_alone=any(part.left_alone for part in parts),
        **result_fields(test, sum(pairs, PairTally())),
    )


def _merged_reason(parts: Sequence[TestResult], cases: CaseCounts, test: TestTally, outcome: Outcome) -> str:
    """Return why a test is not aligned, in the words of an unsharded run if the added counts allow it."""
    if outcome == "aligned":
        return ""
    if any(part.left_alone for part in parts) and leaves_alone(cases):
        return left_alone(cases)
    if outcome == "skipped" and test.skip_reason:
        return skipped_because(test.skip_reason)
    if test.refusal and not test.accepted and not cases.compared + cases.unsupported:
        return all_rejected(AttemptCounts(rejected=test.rejected), test.refusal)
    own = [part for part in parts if part.cases != CaseCounts()]  # the others had none of its cases
    relevant = [part for part in own if part.cases.compared or outcome != worst(cases)] if cases.compared else own
    return " ".join(dict.fromkeys(part.reason for part in relevant or parts if part.reason))


def _merged_outcome(parts: Sequence[TestResult], cases: CaseCounts) -> Outcome:
    """Return the worst of the added counts' outcome and of outcomes that a shard's own counts do not explain."""
    unexplained = {part.outcome for part in parts if part.outcome != worst(part.cases)}
    return min({worst(cases), *unexplained}, key=WORST_FIRST.index)


def _merged_candidates(parts: Sequence[RunResult]) -> tuple[CandidateInfo, ...]:
    """Return each candidate once, from a shard in which it was not available if there is one."""
    groups = _groups(parts, lambda part: part.candidates, lambda item: item.name)
    # `False` is less than `True`. Merging must not hide that a candidate was missing in one shard.
    return tuple(min(group, key=lambda item: item.available) for group in groups)


def _merged_notes(parts: Sequence[RunResult]) -> tuple[str, ...]:
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    for name in ("ci_autotest", "python", "platform", "torch"):
        versions = sorted({getattr(part.environment, name) for part in parts})
        if len(versions) > 1:
            notes[f"The shards ran with different {name}: {', '.join(versions)}."] = None
    return tuple(notes)


def _merged_fixed(parts: Sequence[RunResult], findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return what the shards call fixed, except findings that another shard still has."""
    seen = {" ".join(finding.identity) for finding in findings}
    return tuple({name for part in parts for name in part.fixed} - seen)


def _merged_new(parts: Sequence[RunResult], findings: Sequence[Finding]) -> tuple[str, ...] | None:
    if all(part.new is None for part in parts):
        return None
    known = {finding.id for finding in findings}
    return tuple({name for part in parts for name in part.new or ()} & known)

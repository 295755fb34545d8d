"""Merging the shards of one run into the run that they are, and counting what a run showed.

The rule: nothing gets better by merging. A test that was not aligned in one shard for a reason that
its counts do not show stays so; a finding that counts against the run is kept before one that does
not; a missing shard is refused.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ci_autotest.errors import UsageError
from ci_autotest.judgement import WORST_FIRST, Outcome
from ci_autotest.report.coverage import counted, merged
from ci_autotest.report.report_json import ordered
from ci_autotest.result import (
    HITS_TOLD,
    AttemptCounts,
    BrokenTest,
    CandidateInfo,
    CaseCounts,
    Finding,
    Hit,
    RunResult,
    Summary,
    TestResult,
    counts_against,
    joined_unsupported,
    worst,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

Item = TypeVar("Item")
Counts = TypeVar("Counts", CaseCounts, AttemptCounts)


def merge(results: Sequence[RunResult]) -> RunResult:
    """Return the run of which ``results`` are all the shards, in any order.

    ``exit_code`` is 0: the caller knows what ``--fail-on`` says. ``duration_s`` is the longest
    shard's.

    Raises:
        UsageError: The shards are not of one run, one is given twice, or one is missing.
    """
    _check_shards(results)
    parts = sorted(results, key=lambda part: part.shard)
    tests = tuple(
        _merged_result(group) for group in _groups(parts, _results_of, lambda item: (item.test, item.candidate))
    )
    findings = tuple(_merged_finding(group) for group in _groups(parts, _findings_of, lambda item: item.identity))
    broken = tuple(
        group[0] for group in _groups(parts, lambda part: part.broken, lambda item: (item.test, item.message))
    )
    candidates = _merged_candidates(parts)
    operators = merged(parts)
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
            notes=_merged_notes(parts),
            fixed=_merged_fixed(parts, findings),
            new=_merged_new(parts, findings),
            duration_s=max(part.duration_s for part in parts),
            calls=_merged_calls(parts),
            is_partial=any(part.is_partial for part in parts),
            operators=operators,
            coverage=counted(operators, findings, [info.name for info in candidates if info.available]),
        )
    )


def _merged_calls(parts: Sequence[RunResult]) -> dict[str, dict[str, int]]:
    """Return the calls of all shards, by candidate and operator."""
    merged: dict[str, Counter[str]] = {}
    for part in parts:
        for name, counts in part.calls.items():
            counted = merged.setdefault(name, Counter())
            for operator, count in counts.items():
                counted[operator] += count
    return {name: dict(sorted(counted.items())) for name, counted in merged.items()}


def summarize(results: Iterable[TestResult], findings: Sequence[Finding], broken: Sequence[BrokenTest]) -> Summary:
    """Count (test, candidate) pairs by outcome; ``cases`` are those that were compared."""
    results = tuple(results)
    outcomes: Counter[str] = Counter(item.outcome for item in results)
    cases = sum(item.cases.compared for item in results)
    return Summary(**outcomes, broken=len(broken), findings=len(findings), cases=cases)


def _check_shards(results: Sequence[RunResult]) -> None:
    if not results:
        message = "there is no report to merge. Name the folders that the shards have written."
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
                " Shards plan alike when they have the same tests and the same .autotest/." if words == "plans" else ""
            )
            message = (
                f"the reports have different {words} ({given}): they are not shards of one run. "
                f"Name one run's only.{hint}"
            )
            raise UsageError(message)
    _check_complete([part.shard[0] for part in results], results[0].shard[1])


def _check_complete(indices: list[int], count: int) -> None:
    if twice := sorted(index for index, times in Counter(indices).items() if times > 1):
        message = f"{_shards(twice)} of {count} is given more than once. Name each shard's folder once."
        raise UsageError(message)
    if strange := sorted(index for index in indices if not 1 <= index <= count):
        message = f"{_shards(strange)} of {count} cannot be: the index runs from 1 to the count."
        raise UsageError(message)
    # Not ``range(1, count + 1)``: the count comes from a file, and may be a number that no memory
    # holds.
    if count > len(indices):
        given = set(indices)
        missing = [index for index in range(1, min(count, len(indices) + 20) + 1) if index not in given]
        message = f"{_shards(missing)} of {count} is missing: its tests would count for nothing. Name its folder too."
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
    """Return the items of all shards, those of one key together, in order of first appearance."""
    groups: dict[Hashable, list[Item]] = {}
    for item in chain.from_iterable(map(items, parts)):
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _added(counts: Sequence[Counts]) -> Counts:
    kind = type(counts[0])
    return kind(**{name: sum(getattr(count, name) for count in counts) for name in kind.__struct_fields__})


def _merged_result(parts: Sequence[TestResult]) -> TestResult:
    cases = _added([part.cases for part in parts])
    outcome = _merged_outcome(parts, cases)
    profiles: Counter[str] = Counter()
    for part in parts:
        profiles.update(part.profiles)
    return msgspec.structs.replace(
        parts[0],
        outcome=outcome,
        cases=cases,
        attempts=_added([part.attempts for part in parts]),
        profiles=dict(sorted(profiles.items())),
        duration_s=sum(part.duration_s for part in parts),
        findings=tuple(sorted({name for part in parts for name in part.findings})),
        reason="" if outcome == "aligned" else " ".join(dict.fromkeys(part.reason for part in parts if part.reason)),
        weak=any(part.weak for part in parts),
        refusal=next((part.refusal for part in parts if part.refusal), ""),
        unsupported=joined_unsupported(each for part in parts for each in part.unsupported),
        undefined_gradients=sum(part.undefined_gradients for part in parts),
    )


def _merged_outcome(parts: Sequence[TestResult], cases: CaseCounts) -> Outcome:
    """Return the worst of what the added counts say and of what a shard said against its own counts."""
    told = {part.outcome for part in parts if part.outcome != worst(part.cases)}
    return min({worst(cases), *told}, key=WORST_FIRST.index)


def _merged_finding(parts: Sequence[Finding]) -> Finding:
    """Keep the lowest (test, case) of those that count against the run, if any does; a case of this run comes first."""
    kept = min(parts, key=lambda part: (not counts_against(part), part.earlier, part.test, part.case))
    return msgspec.structs.replace(
        kept,
        cases=sum(part.cases for part in parts),
        of_cases=sum(part.of_cases for part in parts),
        tests=tuple(sorted({test for part in parts for test in part.tests})),
        hits=tuple(_merged_hit(group) for group in _groups_of(parts)),
    )


def _groups_of(parts: Sequence[Finding]) -> list[list[Hit]]:
    """Return the hits of all parts, those of one test together, in the order of the tests' names."""
    groups: dict[str, list[Hit]] = {}
    for hit in chain.from_iterable(part.hits for part in parts):
        groups.setdefault(hit.test, []).append(hit)
    return [group for _, group in sorted(groups.items())]


def _merged_hit(parts: Sequence[Hit]) -> Hit:
    cases = sorted(case for part in parts for case in part.cases)
    return Hit(
        test=parts[0].test,
        cases=tuple(cases[:HITS_TOLD]),
        count=sum(part.count for part in parts),
        of_cases=sum(part.of_cases for part in parts),
    )


def _merged_candidates(parts: Sequence[RunResult]) -> tuple[CandidateInfo, ...]:
    """Keep of each candidate the shard in which it was missing, if it was anywhere."""
    groups = _groups(parts, lambda part: part.candidates, lambda item: item.name)
    return tuple(min(group, key=lambda item: item.available) for group in groups)


def _merged_notes(parts: Sequence[RunResult]) -> tuple[str, ...]:
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    for name in ("ci_autotest", "python", "platform", "torch"):
        versions = sorted({getattr(part.environment, name) for part in parts})
        if len(versions) > 1:
            notes[f"The shards ran with different {name}: {', '.join(versions)}."] = None
    return tuple(notes)


def _merged_fixed(parts: Sequence[RunResult], findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return what every shard that speaks of it calls fixed: what one shard did not see, another may have."""
    seen = {" ".join(finding.identity) for finding in findings}
    return tuple({name for part in parts for name in part.fixed} - seen)


def _merged_new(parts: Sequence[RunResult], findings: Sequence[Finding]) -> tuple[str, ...] | None:
    if all(part.new is None for part in parts):
        return None
    known = {finding.id for finding in findings}
    return tuple({name for part in parts for name in part.new or ()} & known)

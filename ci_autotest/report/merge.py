"""Merge the shards of one run into that run, their findings of one identity into one, and count its results.

The result does not depend on the number or order of shards, and merging makes nothing better. A test that was not
aligned in one shard for a reason that its counts do not show stays so; a finding that counts against the run is
preferred to one that does not; a missing shard is refused.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ci_autotest.errors import UsageError
from ci_autotest.report.coverage import counted, covered
from ci_autotest.report.document import plain_line
from ci_autotest.report.finding_facts import PATTERN, facts
from ci_autotest.report.report_json import ordered
from ci_autotest.values.finding import HITS_LISTED, VARIANTS_AT_MOST, Finding, Hit, Variant, representative
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
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

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


def merged_finding(parts: Sequence[Finding], run: Mapping[str, int]) -> Finding:
    """Return one finding for several of one identity: counts are added, and one of them represents all.

    Args:
        parts: Findings of one identity.
        run: Number of cases that were run, by test.
    """
    kept = representative(parts)
    groups: dict[str, list[Hit]] = {}
    for hit in chain.from_iterable(part.hits for part in parts):
        groups.setdefault(hit.test, []).append(hit)
    hits = tuple(_merged_hit(group, run.get(test, 0)) for test, group in sorted(groups.items()))
    cases = sum(part.cases for part in parts)
    of_cases = sum(hit.of_cases for hit in hits) if hits else sum(part.of_cases for part in parts)
    tests = (hit.test for hit in hits) if hits else sorted({test for part in parts for test in part.tests})
    return msgspec.structs.replace(
        _with_pattern(kept, parts), cases=cases, of_cases=max(cases, of_cases), tests=tuple(tests), hits=hits,
        variants=_variants(kept, parts, {hit.test: hit.cases[0] for hit in hits if hit.cases}),
    )  # fmt: skip


def _with_pattern(kept: Finding, parts: Sequence[Finding]) -> Finding:
    """Return a finding with the pattern of the case of its test that tells most of the same tensor."""
    patterns = [
        msgspec.structs.replace(part.pattern, case=part.case if part.pattern.case is None else part.pattern.case)
        for part in parts
        if part.pattern is not None and (part.test, part.where, part.earlier) == (kept.test, kept.where, kept.earlier)
    ]
    if kept.pattern is None or not patterns:
        return kept
    found = max(patterns, key=lambda pattern: (*pattern.weight, -(pattern.case or 0)))
    if found.case == kept.case:
        found = msgspec.structs.replace(found, case=None)
    merged = msgspec.structs.replace(kept, pattern=found)
    return msgspec.structs.replace(merged, message=_message(merged))


def _message(finding: Finding) -> str:
    """Return the message of a finding with the line of the pattern that it has now."""
    lines = [line for line in finding.message.split("\n") if not line.startswith(f"  {PATTERN}: ")]
    told = facts(finding)
    if PATTERN in told:
        names = [*told]
        after = tuple(f"  {name}: " for name in names[names.index(PATTERN) + 1 :])
        at = next((at for at, line in enumerate(lines) if line.startswith(after)), len(lines))
        lines.insert(at, f"  {PATTERN}: {plain_line(told[PATTERN])}")
    return "\n".join(lines)


def _variants(kept: Finding, parts: Sequence[Finding], first: Mapping[str, int]) -> tuple[Variant, ...]:
    """Return the other smallest programs of one identity, as an unsharded run would have found them.

    An unsharded run shrinks the first failing case of a few other tests, so only those count here.

    Args:
        kept: The finding that represents all.
        parts: Findings with the other programs, as their own or as variants.
        first: Lowest case that hit the identity, by test.
    """
    if len(parts) == 1 or not (kept.shrunk and kept.outcome == "misaligned" and kept.kind != "stateful"):
        return kept.variants
    programs = {(item.test, item.case): item for part in parts for item in _programs_of(part)}
    # A program of the same calls would show nothing that the representative does not show.
    seen, found = {kept.calls}, []
    for test in sorted(set(first) - {kept.test})[:VARIANTS_AT_MOST]:
        other = programs.get((test, first[test]))
        if other is not None and other.calls not in seen:
            seen.add(other.calls)
            found.append(other)
    return tuple(found)


def _programs_of(part: Finding) -> tuple[Variant, ...]:
    """Return the smallest programs of a part, its own first."""
    if not (part.confirmed and part.shrunk) or part.earlier:
        return part.variants
    own = Variant(test=part.test, case=part.case, headline=part.headline, program=part.program, calls=part.calls)
    return (own, *part.variants)


def _merged_hit(parts: Sequence[Hit], of_cases: int) -> Hit:
    cases = sorted(case for part in parts for case in part.cases)
    return Hit(
        test=parts[0].test,
        # The lowest numbers are listed, whichever shard found them.
        cases=tuple(cases[:HITS_LISTED]),
        count=sum(part.count for part in parts),
        of_cases=of_cases,
    )

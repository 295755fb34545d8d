"""Merge the findings of one identity; the result does not depend on the number or order of shards."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from ci_autotest.report.document import plain_line
from ci_autotest.report.finding_facts import PATTERN, facts
from ci_autotest.values.finding import HITS_LISTED, VARIANTS_AT_MOST, Finding, Hit, Variant, representative

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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

"""Result of a run: combines the ledger and the findings into one ``RunResult`` with its exit status."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.commands.exit_status import settled
from ci_autotest.report.coverage import counted, covered
from ci_autotest.report.merge import all_rejected, leaves_alone, left_alone, skipped_because, summarize
from ci_autotest.report.report_json import ordered
from ci_autotest.values.result import (
    LOADER_CANDIDATE,
    REFERENCE_CANDIDATE,
    AttemptCounts,
    BrokenTest,
    CandidateInfo,
    CaseCounts,
    Environment,
    RunResult,
    TestResult,
    worst,
)
from ci_autotest.values.speed import against_baseline
from ci_autotest.values.tally import PairTally, result_fields

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from ci_autotest.commands.case_counts import PairEntry, TestEntry
    from ci_autotest.commands.run_statistics import Ledger
    from ci_autotest.findings.own_tests import Unrepeated
    from ci_autotest.run.events import LostCase
    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import FailOn
    from ci_autotest.values.speed import SpeedResult

_ELSEWHERE: Final = "its cases are in other shards"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a result needs besides the ledger and the findings.

    Args:
        seed: Root seed.
        environment: Versions and platform.
        candidates: Candidates as the workers found them.
        shard: ``(K, N)``.
        shapes: Sets of sizes and choices that cases share.
        interrupted: Whether the run was stopped.
        notes: Sentences that every reader must see.
        broken: Files that cannot be imported.
        baseline: An earlier report; ``None`` without one.
        fail_on: Which findings fail the run.
        is_partial: Whether tests were selected by name, or cases are left over.
        duration_s: Duration of the run in seconds.
        plan: Digest of the plan.
        fixed: Identities of earlier runs' findings that no longer fail.
        unrepeated: Failures that do not repeat when their tests run alone.
        speed: Times of candidates.
    """

    seed: int
    environment: Environment
    candidates: tuple[CandidateInfo, ...]
    shard: tuple[int, int]
    shapes: int
    interrupted: bool
    notes: tuple[str, ...]
    broken: tuple[BrokenTest, ...]
    baseline: RunResult | None
    fail_on: FailOn
    is_partial: bool
    duration_s: float
    plan: str = ""
    fixed: tuple[str, ...] = ()
    unrepeated: frozenset[Unrepeated] = frozenset()
    speed: tuple[SpeedResult, ...] = ()


def make_result(ledger: Ledger, findings: tuple[Finding, ...], details: Circumstances) -> RunResult:
    """Return the result of a run."""
    broken = (
        details.broken
        + tuple(
            BrokenTest(
                test=entry.info.id,
                message=entry.broken,
                traceback=entry.broken_traceback,
                location=entry.info.location,
            )
            for entry in ledger.tests.values()
            if entry.broken
        )
        + tuple(map(partial(_ended_after, ledger), ledger.ended_after))
    )
    results = tuple(
        _result(ledger, entry, name, findings, details)
        for entry in ledger.tests.values()
        for name in ((entry.info.candidate,) if entry.info.candidate else _names(details, ledger, entry.info.id))
    )
    baseline = details.baseline
    new, fixed = _against(findings, None if baseline is None else baseline.findings)
    used = {name: usage for name, usage in ledger.usage.items() if name in {"", *ledger.operator_candidates}}
    operators = covered(used)
    made = RunResult(
        seed=details.seed, environment=details.environment, candidates=details.candidates, results=results,
        findings=findings, summary=summarize(results, findings, broken), broken=broken, shard=details.shard,
        shapes=details.shapes, interrupted=details.interrupted,
        notes=details.notes, fixed=tuple(sorted({*fixed, *details.fixed})), new=new, plan=details.plan,
        duration_s=round(details.duration_s, 3),
        calls={name: dict(sorted(usage.calls.items())) for name, usage in ledger.usage.items() if usage.calls},
        probed={name: [*usage.probed] for name, usage in ledger.usage.items() if usage.probed},
        is_partial=details.is_partial,
        operators=operators, coverage=counted(operators, findings, ledger.operator_candidates),
        speed=_timed_against(details.speed, baseline),
    )  # fmt: skip
    return ordered(settled(made, details.fail_on))


def _ended_after(ledger: Ledger, lost: LostCase) -> BrokenTest:
    """Return a broken test: after it, the reference ends its process in another test, which does not end it alone."""
    first, *more = lost.after
    others = f", or one of {len(more)} other tests that ran there," if more else ""
    return BrokenTest(
        test=first,
        message=f"it{others} breaks its process: the process {lost.error.reason} when the reference later ran case "
        f"{lost.case} of {lost.task.test.id}, which runs without a fault alone",
        traceback=lost.error.output,
        location=ledger.tests[first].info.location,
    )


def _names(details: Circumstances, ledger: Ledger, test: str) -> tuple[str, ...]:
    """Return the candidates of a test. Only some tests are of data loaders or hold PyTorch against an expectation."""
    names = (candidate.name for candidate in details.candidates if candidate.name != LOADER_CANDIDATE)
    return tuple(name for name in names if name != REFERENCE_CANDIDATE or (test, name) in ledger.pairs)


def _result(
    ledger: Ledger, entry: TestEntry, name: str, findings: tuple[Finding, ...], details: Circumstances
) -> TestResult:
    pair = ledger.pairs.get((entry.info.id, name))
    own = [item for item in findings if item.candidate == name and entry.info.id in item.tests]
    unrepeated = {item[2:] for item in details.unrepeated if item[:2] == (entry.info.id, name)}
    counts = _counts(pair, name, entry, own, unrepeated) if pair is not None else CaseCounts(not_run=len(entry.cases))
    info = next(candidate for candidate in details.candidates if candidate.name == name)
    # Without cases in this shard, the test was not cut short: another shard runs it.
    is_here = bool(entry.cases) or details.shard == (1, 1)
    reason = _reason(entry, pair, counts, info) if is_here else _ELSEWHERE
    return TestResult(
        test=entry.info.id, candidate=name, outcome=worst(counts), cases=counts,
        findings=tuple(sorted(item.id for item in own)), reason=reason, weak=entry.tally.is_weak,
        xfail=entry.info.xfail, left_alone=pair is not None and pair.is_left_alone,
        location=entry.info.location,
        **result_fields(entry.tally, pair.tally if pair is not None else PairTally()),
    )  # fmt: skip


def _counts(
    pair: PairEntry, name: str, entry: TestEntry, findings: list[Finding], unrepeated: AbstractSet[tuple[str, str]]
) -> CaseCounts:
    """Count cases by outcome; cases of an ``unrepeated`` failure, an (operator, kind), count as flaky."""
    flaky = {item.identity[1:] for item in findings if item.outcome == "flaky"} | unrepeated
    accepted = {item.identity[1:] for item in findings if item.known is not None} - flaky
    misaligned = off = flakies = known = 0
    for group, hits in pair.misaligned.items():
        identity = group.operator, group.kind
        if identity in flaky:
            flakies += hits.count
        elif identity in accepted:
            known += hits.count
        elif group.is_tolerated and group.kind != "leniency":
            # Each case by its own verdict: shards may blame another side for the smallest program of theirs.
            off += hits.count
        else:
            misaligned += hits.count
    lost = {False: 0, True: 0}
    is_confirmed = any(item.outcome == "timed_out" for item in findings)
    for item in pair.lost:
        if item.error.timed_out and item.repeats == "unknown" and not is_confirmed:
            continue  # The timeout was seen once and not confirmed, so the outcome of the case is unknown.
        is_known = _is_known_loss(item, findings)
        lost[item.error.timed_out] += item.repeats != "never" and not is_known
        known += item.repeats != "never" and is_known
        flakies += item.repeats == "never"
    run = pair.added.aligned + misaligned + off + known + flakies + pair.added.not_compared + lost[False] + lost[True]
    # The case of a failing probe was counted as aligned: it is misaligned as soon as the finding is confirmed.
    probed = min(pair.added.aligned, sum(_of_probes(pair, item) for item in findings if item.known is None))
    probed_known = min(
        pair.added.aligned - probed, sum(_of_probes(pair, item) for item in findings if item.known is not None)
    )
    return CaseCounts(
        aligned=pair.added.aligned - probed - probed_known, misaligned=misaligned + probed, reference_off=off,
        known=known + probed_known,
        unsupported=pair.added.not_compared, crashed=lost[False], timed_out=lost[True], flaky=flakies,
        not_run=max(0, len(entry.cases) - run - entry.tally.skipped) if name != REFERENCE_CANDIDATE else 0,
        skipped=entry.tally.skipped,
    )  # fmt: skip


def _is_known_loss(lost: LostCase, findings: list[Finding]) -> bool:
    """Whether a row accepts the crash or the timeout of a case: each finding of that kind with the case is accepted."""
    kind = "timeout" if lost.error.timed_out else "crash"
    own = [
        item
        for item in findings
        if item.kind == kind and any(hit.test == lost.task.test.id and lost.case in hit.cases for hit in item.hits)
    ]
    return bool(own) and all(item.known is not None for item in own)


def _of_probes(pair: PairEntry, finding: Finding) -> int:
    """Return the number of cases in which only a probe showed the confirmed finding."""
    if finding.kind != "stateful" or finding.outcome != "misaligned":
        return 0
    return sum(
        hits.count
        for group, hits in pair.failures.items()
        if (group.operator, group.kind) == (finding.operator, finding.kind)
    )


def _reason(entry: TestEntry, pair: PairEntry | None, counts: CaseCounts, info: CandidateInfo) -> str:
    """Return why no case was compared; empty if one was."""
    if not info.available:
        return info.reason
    if entry.broken:
        return entry.broken
    if pair is not None and pair.is_left_alone and leaves_alone(counts):
        return left_alone(counts)
    if counts.compared:
        return ""
    if worst(counts) == "skipped":
        return skipped_because(entry.tally.skip_reason)
    if pair is not None and pair.added.unsupported:
        return "; ".join(pair.added.unsupported[0].details[:1])
    if entry.tally.rejected and not entry.tally.accepted:
        return all_rejected(AttemptCounts(rejected=entry.tally.rejected), entry.tally.refusal)
    return "not run: the budget was spent or the run was stopped"


def _against(
    findings: Iterable[Finding], baseline: tuple[Finding, ...] | None
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the ids of new findings, and the identities of findings of the baseline that are gone."""
    if baseline is None:
        return None, ()
    before = {item.identity for item in baseline if item.outcome != "flaky"}
    now = {item.identity for item in findings}
    new = tuple(sorted(item.id for item in findings if item.identity not in before))
    return new, tuple(sorted(" ".join(identity) for identity in before - now))


def held_against(result: RunResult, baseline: RunResult) -> RunResult:
    """Return a result with its new and fixed findings, and what became slower or faster.

    A finding is fixed only if the run is complete and compared its test on its candidate.
    """
    compared = {(item.test, item.candidate) for item in result.results if item.cases.compared}
    is_whole = not (result.is_partial or result.interrupted) and result.shard == (1, 1)
    again = tuple(item for item in baseline.findings if is_whole and (item.test, item.candidate) in compared)
    new, _ = _against(result.findings, baseline.findings)
    _, fixed = _against(result.findings, again)
    return msgspec.structs.replace(result, new=new, fixed=fixed, speed=_timed_against(result.speed, baseline))


def _timed_against(results: tuple[SpeedResult, ...], baseline: RunResult | None) -> tuple[SpeedResult, ...]:
    """Return calls at larger sizes with what the baseline says of their times, and of those that are wrong."""
    if baseline is None:
        return results
    before = {item.identity for item in baseline.findings if item.outcome != "flaky"}
    before |= {item.identity for item in baseline.speed if item.kind is not None}
    return tuple(
        msgspec.structs.replace(item, new=None if item.kind is None else item.identity not in before)
        for item in against_baseline(results, baseline.speed)
    )

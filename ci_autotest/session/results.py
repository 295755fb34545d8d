"""Results: the ledger and the findings as one ``RunResult`` with its exit status. Pure.

The exit table of the README is ``exit_code``, row by row from the top.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.errors import OutputError, UnsupportedReason
from ci_autotest.report.coverage import counted, covered
from ci_autotest.report.merge import all_rejected, leaves_alone, left_alone, summarize
from ci_autotest.report.report_json import ordered
from ci_autotest.result import (
    AttemptCounts,
    BrokenTest,
    CandidateInfo,
    CaseCounts,
    Environment,
    Finding,
    RunResult,
    TestResult,
    counts_against,
    is_found_leniency,
    uncalled,
    worst,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from ci_autotest.run.inquiry import Lost
    from ci_autotest.session.entries import PairEntry, TestEntry
    from ci_autotest.session.ledger import Ledger
    from ci_autotest.session.own_tests import Unrepeated

_ELSEWHERE: Final = "its cases are in other shards"
#: What a candidate lacks and no test can give it: a test that shows nothing else does not by itself fail the run.
_EXCUSED: Final = frozenset({
    UnsupportedReason.NO_COUNTERPART, UnsupportedReason.NO_KERNEL, UnsupportedReason.NOT_REPLACED,
    UnsupportedReason.CONSTANT,
})  # fmt: skip
#: Share of ordinary attempts that must be accepted; below it a test is weak.
WEAK_BELOW: Final = 0.1
INTERRUPTED, NOTHING, FAILED, FINE = 130, 3, 1, 0


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Say what else a result is made of.

    Args:
        seed: Root seed.
        environment: What ran.
        candidates: As the workers found them.
        shard: ``(K, N)``.
        shapes: Sets of sizes and choices that cases shared.
        interrupted: The run was stopped.
        notes: Sentences a reader must see.
        broken: Files that do not import.
        baseline: Findings of an earlier report; ``None`` without one.
        fail_on: Which findings fail the run.
        is_partial: Tests were selected by name, or cases were left out.
        duration_s: Seconds of the run.
        plan: What tells the plan from others.
        fixed: Identities of findings of earlier runs that no longer show.
        unrepeated: Failures that their tests do not show alone.
    """

    seed: int
    environment: Environment
    candidates: tuple[CandidateInfo, ...]
    shard: tuple[int, int]
    shapes: int
    interrupted: bool
    notes: tuple[str, ...]
    broken: tuple[BrokenTest, ...]
    baseline: tuple[Finding, ...] | None
    fail_on: str
    is_partial: bool
    duration_s: float
    plan: str = ""
    fixed: tuple[str, ...] = ()
    unrepeated: frozenset[Unrepeated] = frozenset()


def make_result(ledger: Ledger, findings: tuple[Finding, ...], told: Circumstances) -> RunResult:
    """Return the whole run."""
    broken = (
        told.broken
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
        _result(ledger, entry, name, findings, told) for entry in ledger.tests.values() for name in _names(told)
    )
    new, fixed = _against(findings, told.baseline)
    operators = covered(ledger.covered[""], {name: ledger.covered[name] for name in ledger.candidates})
    made = RunResult(
        seed=told.seed, environment=told.environment, candidates=told.candidates, results=results, findings=findings,
        summary=summarize(results, findings, broken), broken=broken, shard=told.shard,
        shapes=told.shapes, interrupted=told.interrupted,
        notes=told.notes, fixed=tuple(sorted({*fixed, *told.fixed})), new=new, plan=told.plan,
        duration_s=round(told.duration_s, 3),
        calls={name: dict(sorted(counts.items())) for name, counts in ledger.seen.items() if counts},
        is_partial=told.is_partial,
        operators=operators, coverage=counted(operators, findings, ledger.candidates),
    )  # fmt: skip
    return ordered(settled(made, told.fail_on))


def _ended_after(ledger: Ledger, lost: Lost) -> BrokenTest:
    """Return the test after which the reference ends its process, in a test that does not end it alone."""
    first, *more = lost.after
    others = f", or one of {len(more)} other tests that ran there," if more else ""
    return BrokenTest(
        test=first,
        message=f"it{others} spoils its process: that {lost.error.reason} when the reference ran case {lost.case} of "
        f"{lost.task.test.id} later, which alone it does not",
        traceback=lost.error.output,
        location=ledger.tests[first].info.location,
    )


def _names(told: Circumstances) -> tuple[str, ...]:
    return tuple(candidate.name for candidate in told.candidates)


def _result(
    ledger: Ledger, entry: TestEntry, name: str, findings: tuple[Finding, ...], told: Circumstances
) -> TestResult:
    pair = ledger.pairs.get((entry.info.id, name))
    own = [item for item in findings if item.candidate == name and entry.info.id in item.tests]
    unrepeated = {item[2:] for item in told.unrepeated if item[:2] == (entry.info.id, name)}
    counts = _counts(pair, entry, own, unrepeated) if pair is not None else CaseCounts(not_run=len(entry.cases))
    info = next(candidate for candidate in told.candidates if candidate.name == name)
    weak = _is_weak(entry)
    is_here = bool(entry.cases) or told.shard == (1, 1)
    reason = _reason(entry, pair, counts, info) if is_here else _ELSEWHERE
    return TestResult(
        test=entry.info.id, candidate=name, outcome=worst(counts), cases=counts,
        attempts=AttemptCounts(accepted=entry.accepted, rejected=entry.rejected),
        profiles=dict(sorted(entry.profiles.items())), duration_s=round(entry.duration_s, 3),
        findings=tuple(sorted(item.id for item in own)), reason=reason,
        unsupported=pair.unsupported if pair is not None else (),
        weak=weak, refusal=entry.refusal if weak else "", undefined_gradients=entry.undefined,
        rejected_cases=entry.empty, left_alone=pair is not None and pair.is_left_alone,
        location=entry.info.location,
    )  # fmt: skip


def _counts(
    pair: PairEntry, entry: TestEntry, findings: list[Finding], unrepeated: AbstractSet[tuple[str, str]]
) -> CaseCounts:
    """Count cases; those of a failure that is ``unrepeated``, by operator and kind, are flaky."""
    flaky = {item.identity[1:] for item in findings if item.outcome == "flaky"} | unrepeated
    misaligned = flakies = 0
    for alike, hits in pair.misaligned.items():
        is_flaky = (alike.operator, alike.kind) in flaky
        flakies += hits.count * is_flaky
        misaligned += hits.count * (not is_flaky)
    lost = {False: 0, True: 0}
    is_confirmed = any(item.outcome == "timed_out" for item in findings)
    for item in pair.lost:
        if item.error.timed_out and item.repeats == "unknown" and not is_confirmed:
            continue  # A timeout that was seen once: what its case comes to, nobody knows.
        lost[item.error.timed_out] += item.repeats != "never"
        flakies += item.repeats == "never"
    run = pair.aligned + misaligned + flakies + pair.not_compared + lost[False] + lost[True]
    # What a probe showed is counted with its case, whose own outcome was aligned, once it is confirmed.
    probed = min(pair.aligned, sum(_of_probes(pair, item) for item in findings))
    misaligned += probed
    return CaseCounts(
        aligned=pair.aligned - probed, misaligned=misaligned, unsupported=pair.not_compared, crashed=lost[False],
        timed_out=lost[True], flaky=flakies, not_run=max(0, len(entry.cases) - run),
    )  # fmt: skip


def _of_probes(pair: PairEntry, finding: Finding) -> int:
    """Return how many cases of a test showed a confirmed finding in a probe alone."""
    if finding.kind != "stateful" or finding.outcome != "misaligned":
        return 0
    return sum(
        hits.count
        for alike, hits in pair.failures.items()
        if (alike.operator, alike.kind) == (finding.operator, finding.kind)
    )


def _is_weak(entry: TestEntry) -> bool:
    attempts = entry.ordinary_accepted + entry.ordinary_rejected
    return attempts > 0 and entry.ordinary_accepted < WEAK_BELOW * attempts


def _reason(entry: TestEntry, pair: PairEntry | None, counts: CaseCounts, info: CandidateInfo) -> str:
    """Return why nothing was compared, where nothing was."""
    if not info.available:
        return info.reason
    if entry.broken:
        return entry.broken
    if pair is not None and pair.is_left_alone and leaves_alone(counts):
        return left_alone(counts)
    if counts.compared:
        return ""
    if pair is not None and pair.unsupported:
        return "; ".join(pair.unsupported[0].details[:1])
    if entry.rejected and not entry.accepted:
        return all_rejected(AttemptCounts(rejected=entry.rejected), entry.refusal)
    return "not run: the budget was spent or the run was stopped"


def _against(
    findings: Iterable[Finding], baseline: tuple[Finding, ...] | None
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the ids of new findings, and the identities of those that are gone."""
    if baseline is None:
        return None, ()
    before = {item.identity for item in baseline if item.outcome != "flaky"}
    now = {item.identity for item in findings}
    new = tuple(sorted(item.id for item in findings if item.identity not in before))
    return new, tuple(sorted(" ".join(identity) for identity in before - now))


def held_against(result: RunResult, baseline: tuple[Finding, ...]) -> RunResult:
    """Return a result with what is new and what is fixed: only where it compared something can a run have fixed it."""
    compared = {(item.test, item.candidate) for item in result.results if item.cases.compared}
    is_whole = not (result.is_partial or result.interrupted) and result.shard == (1, 1)
    again = tuple(item for item in baseline if is_whole and (item.test, item.candidate) in compared)
    new, _ = _against(result.findings, baseline)
    _, fixed = _against(result.findings, again)
    return msgspec.structs.replace(result, new=new, fixed=fixed)


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
    replacement was called is checked by itself, and what is lacking is told by name.
    """
    if item.cases.compared or (item.cases == CaseCounts() and not item.attempts.rejected):
        return False  # compared, or no case of it belongs to this shard
    elsewhere = any(other.candidate == item.candidate and other.cases.compared for other in result.results)
    is_lacking = bool(item.unsupported) and all(each.reason in _EXCUSED for each in item.unsupported)
    return not (item.outcome == "unsupported" and is_lacking and elsewhere)

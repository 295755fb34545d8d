"""The verdict of a run in one sentence, and the order of findings.

The rule: a run gets ``✓`` only if everything that was asked for was compared and nothing counts
against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.errors import UnsupportedReason
from ci_autotest.report.document import Strong, Words, one_line
from ci_autotest.report.power_text import power_sentence, score_text
from ci_autotest.values.amounts import plural
from ci_autotest.values.finding import TOLERATED_BLAMES, Finding, counts_against, is_found_leniency
from ci_autotest.values.judgement import FAILED, CauseKind, causes, fail_on_of, failing, spared
from ci_autotest.values.result import RunResult, TestResult, uncalled
from ci_autotest.values.speed import is_wrong_at_size
from ci_autotest.values.verdict import FAILED_OUTCOMES, WORST_FIRST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.report.document import Line
    from ci_autotest.values.power import PowerResult

#: What findings fail a run as, worst first.
_FAULTS = ("crashed", "timed_out", "misaligned", "lenient", "flaky")
_REASONS = {
    UnsupportedReason.NO_COUNTERPART: "no counterpart",
    UnsupportedReason.NO_KERNEL: "no kernel on the device",
    UnsupportedReason.NOT_REPLACED: "calls no replaced operator",
    UnsupportedReason.CONSTANT: "exported as a constant",
    UnsupportedReason.NOT_IMPLEMENTED: "not implemented",
    UnsupportedReason.NOT_COMPILED: "not compiled",
    UnsupportedReason.NOT_TRAINED: "refuses to be trained",
    UnsupportedReason.NOT_DELEGATED: "not delegated",
    UnsupportedReason.STEP_BY_STEP: "ran step by step instead of as a graph",
    UnsupportedReason.UNCHANGED: "unchanged by the pass",
    UnsupportedReason.NO_GRAPH: "cannot be one graph",
    UnsupportedReason.OUTSIDE: "computed outside the recorded steps",
    UnsupportedReason.COPIED: "writes to a tensor that is a copy on the device",
    UnsupportedReason.NO_SAMPLES: "gives no sample",
    UnsupportedReason.OUT_OF_SCOPE: "outside the declared scope",
    UnsupportedReason.RANKS: "needs several ranks",
    UnsupportedReason.OTHER_API: "calls what torch does not have",
    UnsupportedReason.NO_SHARDING_RULE: "no sharding rule",
    UnsupportedReason.PLACEMENT_REFUSED: "placement refused",
    UnsupportedReason.NOT_SIMULATED: "ranks cannot run it",
    UnsupportedReason.NO_PARAMETERS: "no parameters to train",
    UnsupportedReason.BATCH: "its batch cannot be split",
    UnsupportedReason.SLICE: "raises on a part of its batch",
}
_NO_BACKWARD = "the candidate has no backward pass there"
_REST = "PyTorch ran the other calls in the compiler's place"
_UNSEEN = "unknown delegation: what the compiler ran itself could not be seen"
_NAMES_SHOWN = 3
#: Characters of the error that ended a run.
_WHY_CHARS = 300
#: Why a call that is wrong at larger sizes does not fail a run that fails for such calls otherwise.
_SPARED = {"new": "none new", "never": "not counted"}


def in_reading_order(result: RunResult) -> list[Finding]:
    """Return the findings, most urgent first: those that fail the run, then new ones, then the worst outcome."""
    new, failed = set(result.new or ()), {finding.id for finding in failing(result)}

    def rank(item: Finding) -> tuple[bool, bool, bool, bool, int]:
        is_spared, is_old = item.id not in failed, item.id not in new
        return item.known is not None, is_spared, not counts_against(item), is_old, WORST_FIRST.index(item.outcome)

    return sorted(result.findings, key=lambda item: (*rank(item), *item.identity))


def headline(finding: Finding) -> str:
    """Return the finding's headline, or one made of its facts if it has none; not yet escaped for Markdown."""
    what = f"{finding.outcome.replace('_', ' ')} ({finding.where or finding.kind})"
    return finding.headline or f"{finding.operator or finding.test} on {finding.candidate}: {what}"


def not_shrunk(finding: Finding) -> str:
    """Return that a program is not the smallest, and why; not yet escaped for Markdown."""
    return f"not shrunk: {finding.not_shrunk}" if finding.not_shrunk else "not shrunk"


def marks(finding: Finding, is_new: bool | None = None) -> list[Line]:  # noqa: FBT001 - three states, not a switch
    """Return what a reader must know before trusting a finding.

    Args:
        finding: Any.
        is_new: Whether the baseline lacks it; ``None`` without a baseline.
    """
    conditions: dict[Line, bool] = {
        Strong("new"): is_new is True,
        "also in the baseline": is_new is False,
        ("accepted: ", Words(finding.known or "")): finding.known is not None,
        "flaky: seen once, but not in a second run": finding.outcome == "flaky",
        "not confirmed: not repeated in a fresh process": not finding.confirmed and finding.outcome != "flaky",
        "the candidate accepts what the reference rejects": is_found_leniency(finding),
        "not the candidate's fault": finding.blame in TOLERATED_BLAMES,
        "accumulated error: each step is aligned when it gets the reference's inputs": finding.accumulated,
        Words(not_shrunk(finding), 200): not finding.shrunk,
        "repro not verified": finding.repro is not None and not finding.repro_verified,
    }
    return [words for words, holds in conditions.items() if holds]


def unsupported_sentence(item: TestResult) -> str:
    """Return how many cases of a test are unsupported and why, with examples; not yet escaped for Markdown."""
    count = sum(each.cases for each in item.unsupported)
    reasons = "; ".join(
        f"{each.cases:,} {_REASONS[each.reason]} ({' | '.join(each.details)})" for each in item.unsupported
    )
    return f"{count:,} of {plural(item.cases.compared + count, 'case')} unsupported: {reasons}"


def partial_sentences(item: TestResult) -> list[str]:
    """Return what of a test was not compared and why, a sentence each; not yet escaped for Markdown."""
    found = [unsupported_sentence(item)] if item.unsupported else []
    if item.cases.skipped and item.cases.compared:
        cases = plural(item.cases.compared + item.cases.skipped, "case")
        found.append(f"{item.cases.skipped:,} of {cases} skipped: {item.skip_reason}")
    if item.values_only:
        found.append(f"{item.values_only:,} of {plural(item.cases.compared, 'case')} without gradients: {_NO_BACKWARD}")
    if item.delegation.in_part:
        found.append(f"{item.delegation.in_part:,} of {plural(item.cases.compared, 'case')} delegated in part: {_REST}")
    if item.delegation.unknown:
        found.append(f"{item.delegation.unknown:,} of {plural(item.cases.compared, 'case')} with {_UNSEEN}")
    return found


def partly_compared(result: RunResult) -> list[TestResult]:
    """Return the tests of which something was compared, and something was not."""
    return [item for item in result.results if item.cases.compared and partial_sentences(item)]


def is_wholly_aligned(result: RunResult) -> bool:
    """Whether everything that was asked for was compared, and nothing counts against the run."""
    return not _faults(result) and not _caveats(result)


def verdict(result: RunResult) -> str:
    """Return the run in one sentence with its sign, not yet escaped for Markdown."""
    if result.power is not None and not result.results:
        return _of_power(result, result.power)
    faults, caveats = _faults(result), _caveats(result)
    if faults:
        return f"✗ {'; '.join(faults)}{'' if _is_failed_by_power(result) else _power_tail(result)}"
    accepted = sum(finding.known is not None for finding in result.findings)
    accepted += sum(item.known is not None for item in result.speed)
    tail = f"; {plural(accepted, 'known difference')}" if accepted else ""
    if outside := _out_of_scope(result):
        tail += f"; {plural(outside, 'case')} outside the declared scope"
    if skipped := sum(item.outcome == "skipped" for item in result.results):
        tail += f"; {plural(skipped, 'pair')} of test and candidate skipped"
    if in_part := sum(item.delegation.in_part for item in result.results):
        tail += f"; {plural(in_part, 'case')} delegated in part"
    tail += _power_tail(result)
    if result.shard[1] > 1 and not any(item.cases.compared for item in result.results):
        return f"⚠ nothing was compared in shard {result.shard[0]} of {result.shard[1]}{tail}"
    if caveats:
        standing = "still misaligned" if spared(result) else "aligned where compared"
        return f"⚠ {standing}: {_scope(result)}; {'; '.join(caveats)}{tail}"
    return f"✓ aligned: {_scope(result)}{tail}"


def _of_power(result: RunResult, power: PowerResult) -> str:
    """Return the verdict on a report that has nothing but the power of tests."""
    faults = [f"{plural(len(result.broken), 'test')} broken: {_listed([item.test for item in result.broken])}"]
    words = [
        *(faults if result.broken else ()),
        power_sentence(power),
        *(["interrupted"] if result.interrupted else ()),
    ]
    hollow = any(test.powerless for test in power.tests)
    sign = "✗" if result.exit_code else "⚠" if hollow else "✓"
    return f"{sign} {'; '.join(words)}"


def _is_failed_by_power(result: RunResult) -> bool:
    """Whether the power is all that a run failed for."""
    found = {cause.kind for cause in causes(result)}
    return bool(found) and found <= {CauseKind.LOW_POWER, CauseKind.UNMEASURED}


def _power_tail(result: RunResult) -> str:
    """Return the score that a report has beside its verdict."""
    if result.power is None:
        return ""
    below = f", below {result.power.fail_under:g}" if result.power.is_too_low else ""
    unmeasured = f", {plural(len(result.power.unmeasured), 'test')} not measured" if result.power.unmeasured else ""
    return f"; power: {score_text(result.power.score)}{below}{unmeasured}"


def _scope(result: RunResult) -> str:
    compared = [item for item in result.results if item.cases.compared]
    tests = len({item.test for item in compared})
    candidates = len({item.candidate for item in compared})
    cases = sum(item.cases.compared for item in compared)
    shard = "" if result.shard[1] == 1 else f" (shard {result.shard[0]} of {result.shard[1]} only)"
    return f"{plural(tests, 'test')} on {plural(candidates, 'candidate')}, {plural(cases, 'case')}{shard}"


def _faults(result: RunResult) -> list[str]:
    """Return why the run is not aligned, worst first."""
    tests: dict[CauseKind, list[str]] = {}
    for cause in causes(result):
        tests.setdefault(cause.kind, []).append(cause.test)
    counts = {what: len(names) for what, names in tests.items()}
    faults = _named_faults(failing(result))
    if orphans := counts.get(CauseKind.ORPHAN):
        faults.append(f"{plural(orphans, 'test')} failed without a finding")
    if broken := tests.get(CauseKind.BROKEN):
        faults.append(f"{plural(len(broken), 'test')} broken: {_listed(broken)}")
    if passed := tests.get(CauseKind.UNEXPECTED_PASS):
        were = "was" if len(passed) == 1 else "were"
        faults.append(f"{plural(len(passed), 'test')} passed, but {were} expected to fail: {_listed(passed)}")
    if wrong := counts.get(CauseKind.WRONG_AT_SIZE):
        faults.append(f"{plural(wrong, 'call')} wrong at larger sizes")
    if slower := counts.get(CauseKind.SLOWER):
        faults.append(f"{plural(slower, 'timed call')} slower")
    if result.error is not None:
        faults.append(one_line(result.error.message, _WHY_CHARS))
    if CauseKind.INTERRUPTION in counts:
        faults.append(f"interrupted after {plural(sum(item.cases.compared for item in result.results), 'case')}")
    # A fault that has a name explains the exit status better than the number does.
    return faults or _exit_faults(result)


def _exit_faults(result: RunResult) -> list[str]:
    """Return why a run without a finding ended with a status other than 0."""
    is_shard = result.shard[1] > 1 and not result.exit_code
    if not is_shard and not any(item.cases.compared for item in result.results):
        return ["nothing was compared"]
    for name, missing in uncalled(result).items():
        return [one_line(f"candidate '{name}': the replacement of {', '.join(missing)} was never called")]
    if _is_failed_by_power(result):
        return [f"{_power_tail(result).removeprefix('; ')} (what was compared is aligned: {_scope(result)})"]
    if causes(result):
        return [_silence(result)]
    if result.exit_code == FAILED and (against := _named_faults(spared(result))):
        return against  # It failed for what a baseline that was found later has.
    return [f"the command ended with status {result.exit_code}"] if result.exit_code else []


def _named_faults(findings: Sequence[Finding]) -> list[str]:
    by_fault: dict[str, list[Finding]] = {}
    for item in findings:
        by_fault.setdefault("lenient" if is_found_leniency(item) else item.outcome, []).append(item)
    return [
        f"{plural(len({item.operator or item.test for item in found}), 'operator')} {fault.replace('_', ' ')}: "
        f"{_by_candidate(found)}"
        for fault in _FAULTS
        if (found := by_fault.get(fault))
    ]


def _by_candidate(findings: Sequence[Finding]) -> str:
    """Return ``a, b on x; c on y``, the first few of each."""
    groups: dict[str, list[str]] = {}
    for item in sorted(findings, key=lambda item: item.identity):
        groups.setdefault(item.candidate, []).append(item.operator or item.test)
    parts = [f"{_listed(list(dict.fromkeys(names)))} on {one_line(name, 60)}" for name, names in groups.items()]
    rest = len(parts) - _NAMES_SHOWN
    more = [f"and on {plural(rest, 'more candidate')}"] if rest > 0 else []
    return ", ".join([*parts[:_NAMES_SHOWN], *more])


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    shown = ", ".join(one_line(name, 100) for name in names[:_NAMES_SHOWN])
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def _caveats(result: RunResult) -> list[str]:
    """Return why a run without faults is not wholly aligned."""
    silence = [_silence(result)] if _silent(result) else []
    # A test of which nothing was compared is already counted by `_silence`.
    compared = [item for item in result.results if item.cases.compared]
    rejected = sum(min(item.cases.not_run, item.rejected_cases) for item in compared)
    if rejected:
        silence.append(f"the inputs of {plural(rejected, 'case')} rejected")
    if left := sum(item.cases.not_run for item in compared) - rejected:
        silence.append(f"{plural(left, 'case')} not run")
    if lacking := _unsupported(result) - _out_of_scope(result):
        silence.append(f"{plural(lacking, 'case')} unsupported")
    fail_on = fail_on_of(result)
    counted = {
        "test{} with differences that are not the candidate's fault": _excused(result),
        "test{} of which only refusals were compared": len(
            {item.test for item in compared if item.attempts.rejected and not item.attempts.accepted}
        ),
        "case{} with unknown delegation": sum(item.delegation.unknown for item in compared),
        "test{} flaky": sum(item.outcome == "flaky" for item in result.results),
        "candidate{} not available": sum(not item.available for item in result.candidates),
        "finding{} not confirmed": sum(not item.confirmed and item.outcome != "flaky" for item in result.findings),
        "finding{} also in the baseline, none new": len(spared(result)) if fail_on == "new" else 0,
        f"call{{}} wrong at larger sizes, {_SPARED.get(fail_on, '')}": sum(map(is_wrong_at_size, result.speed)),
    }
    named = [f"{words}, not counted" for words in _named_faults(spared(result))] if fail_on == "never" else []
    return [*named, *silence] + [
        f"{count:,} {words.format('' if count == 1 else 's')}" for words, count in counted.items() if count
    ]


def _unsupported(result: RunResult) -> int:
    """Count the unsupported cases of tests of which something was compared."""
    return sum(each.cases for item in result.results if item.cases.compared for each in item.unsupported)


def _out_of_scope(result: RunResult) -> int:
    """Count those of these cases that nobody asked for: the configuration rules them out."""
    asked_not = UnsupportedReason.OUT_OF_SCOPE
    compared = [item for item in result.results if item.cases.compared]
    return sum(each.cases for item in compared for each in item.unsupported if each.reason is asked_not)


def _excused(result: RunResult) -> int:
    """Count the (test, candidate) pairs that differ although nothing counts against the candidate."""
    explained = [item for item in result.findings if item.known is not None or counts_against(item)]
    tolerated = [item for item in result.findings if item.known is None and item.blame in TOLERATED_BLAMES]
    differing = {(item.candidate, test) for item in tolerated for test in item.tests or (item.test,)}
    differing |= {
        (item.candidate, item.test)
        for item in result.results
        if item.outcome in FAILED_OUTCOMES or item.outcome == "reference_off"
    }
    return len(differing - {(item.candidate, test) for item in explained for test in item.tests or (item.test,)})


def _silent(result: RunResult) -> int:
    return sum(not item.cases.compared and item.outcome != "skipped" for item in result.results)


def _silence(result: RunResult) -> str:
    return (
        f"nothing was compared for {_silent(result):,} of {plural(len(result.results), 'pair')} of test and candidate"
    )

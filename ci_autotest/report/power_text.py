"""The words for what a power measurement found, and its part of the comment and of the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.report.coverage import WHY_NOT_REACHED
from ci_autotest.report.document import Code, Strong, Words
from ci_autotest.report.markdown_text import head, markdown, row
from ci_autotest.report.size_budget import Block, Region, fixed
from ci_autotest.values.amounts import plural
from ci_autotest.values.power import MutantKind, SurvivalReason, UnscoredReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.values.power import MutantResult, PowerResult, TestPower
    from ci_autotest.values.result import RunResult

_MISTAKES: Final = {
    MutantKind.ZEROS: "returns zeros",
    MutantKind.UNRELATED: "returns unrelated elements of the same mean and spread",
    MutantKind.COPY_OF_INPUT: "returns a copy of its input",
    MutantKind.LAST_ELEMENT: "leaves the last element out",
    MutantKind.DIVISOR: "divides by N - 1",
    MutantKind.AXIS: "takes another axis for `{}`",
    MutantKind.SWAPPED: "swaps its inputs",
    MutantKind.CONSTANT: "has `{}` a tenth off",
    MutantKind.IGNORED: "ignores `{}`",
    MutantKind.STUCK: "has the switch `{}` always the other way",
    MutantKind.WRITTEN_INPUT: "writes to its input",
    MutantKind.DETACHED: "has no gradient",
    MutantKind.DROPPED_TERM: "leaves out the gradient of {}",
    MutantKind.GRADIENT_TAIL: "leaves out the last element of a gradient",
    MutantKind.BEYOND_TOLERANCE: "is off by 1.5 times the allowed error",
    MutantKind.BFLOAT16: "computes in bfloat16",
    MutantKind.HALF_SUM: "keeps its sum in float16",
    MutantKind.STALE: "returns the earlier result of the same shape",
    MutantKind.INT32: "returns int32 indices",
    MutantKind.NO_BROADCAST: "does not broadcast",
    MutantKind.SOURCE: "has a change in its source: {}",
}
_SURVIVALS: Final = {
    SurvivalReason.MEASURED: "it is within what `strictness: measured` allows",
    SurvivalReason.OPEN: "its operator leaves the result open, and it breaks no promise that is checked",
    SurvivalReason.VALUES_UNCHECKED: "no element is compared (check_allclose=False)",
    SurvivalReason.DTYPE_UNCHECKED: "the dtype is not compared (check_dtype=False): it is {}",
    SurvivalReason.NO_GRADIENT: "no gradient is asked for",
    SurvivalReason.COTANGENT: "no gradient of the test's outputs shows it",
    SurvivalReason.ARGUMENT: "no case draws `{}`",
    SurvivalReason.SHAPE: "no case has {}",
    SurvivalReason.VALUES: "no case draws what shows it: {}",
    SurvivalReason.DTYPE: "no case is in {}",
    SurvivalReason.UNKNOWN: "no case notices it, and a call that would tell why ended its process",
    SurvivalReason.REPEAT: "no two calls have the same shapes and other values",
}
_UNSCORED: Final = {
    UnscoredReason.NOTHING_COMPARED: "none of its cases compares anything",
    UnscoredReason.REFUSAL: "its body expects an error",
    UnscoredReason.NO_OPERATOR: "it calls no operator that can be mutated",
    UnscoredReason.NOT_REPLACED: "it calls no operator that the candidate replaces",
    UnscoredReason.ALL_EQUIVALENT: "no mutant of it can be told from the reference",
    UnscoredReason.LOADER: "it tests a data loader, which computes nothing",
    UnscoredReason.BROKEN: "it cannot be run",
    UnscoredReason.LOST: "its process was lost, and not to a mutant",
    UnscoredReason.NOT_RUN: "the time was up",
}
#: Digits of a score.
_DIGITS: Final = 2
#: Unscored tests that are listed for each reason.
_NAMED: Final = 3


def score_text(score: float | None) -> str:
    """Return a score with two digits, rounded down, so that only a whole score reads 1.00."""
    return "none" if score is None else f"{int(score * 10**_DIGITS + 1e-9) / 10**_DIGITS:.{_DIGITS}f}"


def mistake(mutant: MutantResult) -> str:
    """Return an operator with its mistake: ``torch.sum ignores `keepdim```."""
    return f"{mutant.operator} {_MISTAKES[mutant.kind].format(mutant.detail)}"


def survival(mutant: MutantResult) -> str:
    """Return why a mutant survived, or why it does not count."""
    if mutant.reason is None:
        return f"{mutant.evidence or 'no call tells it from the reference'}, so that it does not count"
    if mutant.reason is SurvivalReason.TOLERANCE:
        error = "" if mutant.error is None else f": greatest error {mutant.error:.2g}"
        allowed = "" if mutant.allowed is None else f", {mutant.allowed:.2g} allowed there"
        return f"the tolerance ({mutant.evidence}) hides it{error}{allowed}"
    return _SURVIVALS[mutant.reason].format(mutant.evidence)


def unscored(test: TestPower) -> str:
    """Return why a test has no score."""
    reason = _UNSCORED[test.unscored] if test.unscored is not None else ""
    return f"{reason}: {test.why}" if test.why else reason


def powerless(mutant: MutantResult) -> str:
    """Return why a test that lets a mutant pass is powerless."""
    related = "" if mutant.correlation is None else f" (correlation {mutant.correlation:.3f} with the right elements)"
    return f"it passes where {mistake(mutant)}{related}: {survival(mutant)}"


def size_limits(test: TestPower) -> Iterator[str]:
    """Yield for each reason which dimensions of a test have no case beyond 256, with their greatest size."""
    by_reason: dict[str, list[str]] = {}
    for limit in test.limits:
        by_reason.setdefault(WHY_NOT_REACHED[limit.why], []).append(f"{limit.dimension} ({limit.most:,} at most)")
    for why, names in by_reason.items():
        yield f"no size beyond 256 of {', '.join(names)}: {why}"


def power_sentence(power: PowerResult) -> str:
    """Return the score with what it is made of: ``power: 0.94 (47 of 50 mutants noticed, 3 equivalent)``."""
    noticed = f"{power.killed:,} of {plural(power.killed + power.survived, 'mutant')} noticed"
    equivalent = f", {power.equivalent:,} equivalent" if power.equivalent else ""
    hollow = sum(bool(test.powerless) for test in power.tests)
    tail = f"; {plural(hollow, 'test')} powerless" if hollow else ""
    low = f"; below {power.fail_under:g}" if power.is_too_low else ""
    unmeasured = f"; {plural(len(power.unmeasured), 'test')} not measured" if power.unmeasured else ""
    return f"power: {score_text(power.score)} ({noticed}{equivalent}){tail}{low}{unmeasured}"


def power_lines(power: PowerResult, *, has_all: bool = False) -> Iterator[str]:
    """Yield the lines of the terminal: powerless tests, survivors by test, tests without a score.

    Args:
        power: What was measured.
        has_all: Whether tests without a survivor and equivalent mutants are listed too.
    """
    for test in power.tests:
        for mutant in test.powerless:
            yield f"powerless: {test.test}: {powerless(mutant)}"
    for test in power.tests:
        if test.score is not None and (has_all or test.survived or test.limits):
            total = test.killed + test.survived
            yield f"{score_text(test.score)}  {test.test}: {test.killed:,} of {plural(total, 'mutant')} noticed"
        for mutant in test.mutants:
            if mutant.outcome == "survived" or (has_all and mutant.outcome == "equivalent"):
                yield f"      {mistake(mutant)}: {survival(mutant)}"
        yield from (f"      {line}" for line in size_limits(test))
    for reason in UnscoredReason:
        own = [test for test in power.tests if test.unscored is reason]
        for test in own if has_all else own[:_NAMED]:
            yield f"no score: {test.test}: {unscored(test)}"
        if not has_all and len(own) > _NAMED:
            yield f"no score: {len(own) - _NAMED:,} more: {_UNSCORED[reason]}"


def power_part(result: RunResult, most: int, rank: int) -> tuple[Region, list[Block]]:
    """Return the score with a table of the powerless tests, the survivors and the tests without a score."""
    if result.power is None:
        return Region(name="power"), []
    rows = list(_power_rows(result.power))
    columns = head("test", "score", "mutant", "why it was not noticed", numbers=("score",)) if rows else ""
    sentence = markdown(Strong(Words(power_sentence(result.power))))
    region = Region(
        name="power", lead=f"{sentence}\n\n{columns}", tail="\n",
        more="\n{count} more mutants that no test noticed are in report.json.\n\n", beyond=max(0, len(rows) - most),
    )  # fmt: skip
    return region, [fixed("power", each, rank) for each in rows[:most]] or [fixed("power", "", rank)]


def survivors(power: PowerResult) -> Iterator[tuple[str, float | None, MutantResult]]:
    """Yield the mutants that no case shows, with their test and its score; the weakest test first."""
    for test in sorted(power.tests, key=lambda item: (1.0 if item.score is None else item.score, item.test)):
        yield from ((test.test, test.score, each) for each in test.mutants if each.outcome == "survived")


def _power_rows(power: PowerResult) -> Iterator[str]:
    hollow = {id(each): test.test for test in power.tests for each in test.powerless}
    for test in power.tests:
        for each in test.powerless:
            why = (Strong("powerless"), ": ", Words(powerless(each)))
            yield row(Code(test.test, 150), score_text(test.score), Words(mistake(each), 150), why)
    for name, score, each in survivors(power):
        if id(each) not in hollow:
            yield row(Code(name, 150), score_text(score), Words(mistake(each), 150), Words(survival(each)))
    for test in power.tests:
        if test.unscored is not None:
            yield row(Code(test.test, 150), "none", "", Words(unscored(test)))

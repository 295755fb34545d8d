"""The part of the comment and of the summary about the power of the tests: the score, powerless tests, survivors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ci_autotest.report.document import Code, Strong, Words
from ci_autotest.report.markdown_text import head, markdown, row
from ci_autotest.report.power_text import mistake, power_sentence, powerless, score_text, survival, unscored
from ci_autotest.report.size_budget import Block, Region, fixed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ci_autotest.values.power import MutantResult, PowerResult
    from ci_autotest.values.result import RunResult


def power_part(result: RunResult, most: int, rank: int) -> tuple[Region, list[Block]]:
    """Return the score with a table of the powerless tests, the survivors and the tests without a score."""
    if result.power is None:
        return Region(name="power"), []
    rows = list(_rows(result.power))
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


def _rows(power: PowerResult) -> Iterator[str]:
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

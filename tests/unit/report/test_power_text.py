"""The words of a power measurement, and the verdict, comment and merge of reports that have one."""

from __future__ import annotations

import msgspec
import pytest

from ci_autotest.power.command import exit_code as power_exit_code
from ci_autotest.report.comment_text import render_comment
from ci_autotest.report.power_text import mistake, power_lines, power_sentence, score_text, survival, unscored
from ci_autotest.report.verdict_line import verdict
from ci_autotest.values.judgement import FAILED, FINE, NOTHING, causes, status_of
from ci_autotest.values.power import (
    MutantKind,
    MutantResult,
    SurvivalReason,
    UnscoredReason,
    merged_power,
    power_of_test,
    power_of_tests,
)
from tests.report_samples import run


def mutant(kind=MutantKind.IGNORED, detail="keepdim", outcome="survived", **fields):
    return MutantResult(operator="torch.sum", kind=kind, detail=detail, outcome=outcome, **fields)


KILLED = mutant(MutantKind.ZEROS, "", "killed", case=0, by="value")
MISSED = mutant(reason=SurvivalReason.ARGUMENT, evidence="keepdim=True")
HIDDEN = mutant(
    MutantKind.ZEROS, "", reason=SurvivalReason.TOLERANCE, evidence="rtol 0, atol 0.01", error=4e-6, allowed=1e-2
)
SAME = mutant(MutantKind.SWAPPED, "", "equivalent")
POWER = power_of_tests(
    [power_of_test("a.py::strong", 20, [KILLED, KILLED, SAME]), power_of_test("a.py::weak", 20, [HIDDEN, MISSED])], 0
)


def unmeasured(reason):
    return msgspec.structs.replace(power_of_test("a.py::other", 0, []), unscored=reason)


def test_power_of_test__equivalent_mutants__do_not_count():
    found = power_of_test("t", 3, [KILLED, KILLED, MISSED, SAME])

    assert (found.killed, found.survived, found.equivalent, found.score) == (2, 1, 1, 2 / 3)


def test_power_of_test__only_equivalent_mutants__has_no_score():
    assert power_of_test("t", 3, [SAME]).unscored is UnscoredReason.ALL_EQUIVALENT


def test_power_of_tests__each_mutant_counts_once():
    assert (POWER.killed, POWER.survived, POWER.score) == (2, 2, 0.5)


@pytest.mark.parametrize(("fail_under", "is_low"), [(None, False), (0.5, False), (0.51, True)])
def test_is_too_low__score_of_a_half(fail_under, is_low):
    assert msgspec.structs.replace(POWER, fail_under=fail_under).is_too_low is is_low


@pytest.mark.parametrize(("score", "shown"), [(None, "none"), (1.0, "1.00"), (0.9999, "0.99"), (0.5, "0.50")])
def test_score_text__is_rounded_down(score, shown):
    assert score_text(score) == shown


@pytest.mark.parametrize("kind", MutantKind)
def test_mistake__every_kind__has_words(kind):
    assert mistake(mutant(kind, "keepdim")).startswith("torch.sum ")


@pytest.mark.parametrize("reason", [*SurvivalReason, None])
def test_survival__every_reason__has_words(reason):
    words = survival(mutant(reason=reason, evidence="x"))

    assert words
    assert "{" not in words


@pytest.mark.parametrize("reason", UnscoredReason)
def test_unscored__every_reason__has_words(reason):
    assert unscored(msgspec.structs.replace(POWER.tests[0], unscored=reason, why="because")).endswith(": because")


def test_survival__argument_and_tolerance__say_what_the_author_can_do():
    assert survival(MISSED) == "no case draws `keepdim=True`"
    assert survival(HIDDEN) == "the tolerance (rtol 0, atol 0.01) hides it: greatest error 4e-06, 0.01 allowed there"


def test_power_lines__powerless_test__comes_first():
    assert list(power_lines(POWER)) == [
        "powerless: a.py::weak: it passes where torch.sum returns zeros: the tolerance (rtol 0, atol 0.01) hides it: "
        "greatest error 4e-06, 0.01 allowed there",
        "0.00  a.py::weak: 0 of 2 mutants noticed",
        "      torch.sum returns zeros: the tolerance (rtol 0, atol 0.01) hides it: greatest error 4e-06, 0.01 allowed "
        "there",
        "      torch.sum ignores `keepdim`: no case draws `keepdim=True`",
    ]


def test_power_sentence__all_parts():
    asked = msgspec.structs.replace(POWER, fail_under=0.9)

    assert power_sentence(asked) == "power: 0.50 (2 of 4 mutants noticed, 1 equivalent); 1 test powerless; below 0.9"


def test_merged_power__parts_of_shards__are_one():
    parts = [power_of_tests([test], 0, 0.9) for test in POWER.tests]

    assert merged_power(parts) == msgspec.structs.replace(POWER, fail_under=0.9)
    assert merged_power([]) is None


def test_verdict__run_with_power__has_the_score_behind():
    assert verdict(run(power=POWER)) == f"{verdict(run())}; power: 0.50"


def test_verdict__run_whose_power_is_too_low__is_a_fault():
    low = msgspec.structs.replace(POWER, fail_under=0.9)

    assert verdict(run(power=low, exit_code=1)).startswith("✗ power: 0.50, below 0.9 (what was compared is aligned: ")


def test_verdict__power_alone__is_its_sentence():
    alone = run(power=POWER, results=(), findings=())

    assert verdict(alone) == f"⚠ {power_sentence(POWER)}"
    strong = power_of_tests([POWER.tests[0]], 0)
    assert verdict(msgspec.structs.replace(alone, power=strong)) == f"✓ {power_sentence(strong)}"


@pytest.mark.parametrize(
    ("reason", "fail_under", "status"),
    [
        (UnscoredReason.NOT_RUN, 0.4, NOTHING),
        (UnscoredReason.NOTHING_COMPARED, 0.4, NOTHING),
        (UnscoredReason.NOT_RUN, None, FINE),
        (UnscoredReason.REFUSAL, 0.4, FINE),
        (UnscoredReason.NO_OPERATOR, 0.4, FINE),
        (UnscoredReason.NOT_RUN, 0.9, FAILED),
    ],
)
def test_exit_code__test_that_was_not_measured__is_no_success_where_a_score_is_asked_for(reason, fail_under, status):
    found = power_of_tests([*POWER.tests, unmeasured(reason)], 0, fail_under)

    assert power_exit_code(found, ()) == status_of(causes(run(power=found))) == status


def test_verdict__test_that_was_not_measured__is_named_as_the_fault():
    partial = power_of_tests([*POWER.tests, unmeasured(UnscoredReason.NOT_RUN)], 0, 0.4)

    assert power_sentence(partial).endswith("; 1 test powerless; 1 test not measured")
    assert verdict(run(power=partial, exit_code=NOTHING)).startswith(
        "✗ power: 0.50, 1 test not measured (what was compared is aligned: "
    )


def test_exit_code__merged_power_that_is_too_low__fails():
    low = msgspec.structs.replace(POWER, fail_under=0.9)

    assert status_of(causes(run(power=low))) == FAILED


def test_render_comment__power__has_a_row_for_each_survivor():
    text = render_comment(run(power=POWER))

    assert "**power: 0.50 (2 of 4 mutants noticed, 1 equivalent); 1 test powerless**" in text
    rows = [row for row in text.splitlines() if row.startswith("| `a.py::")]
    assert len(rows) == 2
    assert "**powerless**: it passes where torch.sum returns zeros" in rows[0]
    assert rows[1].endswith("no case draws \\`keepdim=True\\` |")

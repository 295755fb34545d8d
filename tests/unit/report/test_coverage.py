"""Coverage is counted in torch's public operators: tested, supported, aligned and misaligned never run together."""

from __future__ import annotations

import msgspec
import pytest

from ci_autotest.report.coverage import catalogue, counted, covered, overloads, sentence, size_sentence
from ci_autotest.values.coverage_values import NAMES_LISTED, OPERATORS_LISTED, CoverageCounts, Exercised
from ci_autotest.values.tally import UsageTally
from tests import report_samples as samples

ADD, EXP, SUM = (Exercised(cases=4, aligned=4, arguments=(name,), dtypes=("float32",)) for name in ("a", "b", "c"))
RECORDED = {"torch.add": ADD, "torch.exp": EXP, "torch.sum": SUM, "mine.operator": ADD}
PART = Exercised(cases=2, aligned=0)
ALL = {
    "one": "reached",
    "near_32": "reached",
    "near_128": "reached",
    "beyond_256": "reached",
    "beyond_1024": "few_cases",
}
SMALL = {"one": "reached", "near_32": "range", "near_128": "range", "beyond_256": "range", "beyond_1024": "few_cases"}


def used(recorded, compared):
    return {"": UsageTally(exercised=recorded), "here": UsageTally(exercised=compared)}


def finding(operator, **changes):
    return samples.finding(operator=operator, candidate="here", **changes)


def counts_of(compared, *findings, recorded=RECORDED):
    (found,) = counted(covered(used(recorded, compared)), findings, ["here"])
    counts = found.counts
    assert counts.public == sum(map(len, catalogue().public.values()))
    return found, (counts.tested, counts.supported, counts.aligned, counts.misaligned)


def test_counted__operators_by_what_came_of_them():
    found, counts = counts_of({"torch.add": ADD, "torch.exp": ADD}, finding("torch.exp", kind="value"))
    assert counts == (3, 2, 1, 1)
    assert found.families["arithmetic"] == CoverageCounts(
        public=len(catalogue().public["arithmetic"]), tested=1, supported=1, aligned=1
    )
    assert set(found.families) == {"arithmetic", "pointwise", "reductions"}


def test_counted__every_case_was_unsupported__is_tested_and_not_supported():
    _, counts = counts_of({})
    assert counts == (3, 0, 0, 0)


def test_counted__compared_only_in_cases_that_another_operator_spoiled__is_supported_and_not_aligned():
    _, counts = counts_of({"torch.add": PART, "torch.exp": PART}, finding("torch.exp", kind="value"))
    assert counts == (3, 2, 0, 1)


def test_counted__every_case_crashed__is_supported_and_misaligned():
    _, counts = counts_of({}, finding("torch.sum", kind="crash", outcome="crashed"))
    assert counts == (3, 1, 0, 1)


def test_counted__leniency_flaky_and_other_candidates__say_nothing_against_it():
    other = samples.finding(operator="torch.sum", candidate="there", kind="value")
    findings = (finding("torch.add", kind="leniency"), finding("torch.exp", outcome="flaky"), other)
    _, counts = counts_of(RECORDED, *findings)
    assert counts == (3, 3, 3, 0)


def test_counted__operator_that_is_none_of_torchs__is_told_and_not_counted():
    operators = covered(used(RECORDED, RECORDED))
    assert (operators[0].operator, operators[0].family) == ("mine.operator", "")
    assert counted(operators, (), ["here"])[0].counts.tested == 3


def test_counted__nothing_was_exercised__says_nothing():
    assert counted(covered(used({}, {})), (), ["here"]) == ()


def test_counted__overloads_of_the_dispatcher__are_counted_beside_public_operators():
    first, second, third = (f"torch.ops.{name}" for name in overloads().tested[:3])
    compared = {first: ADD, second: EXP}
    wrong = finding("torch.ops.aten.any", target=second, kind="value")
    found, counts = counts_of(compared, wrong, recorded={first: ADD, second: EXP, third: SUM})

    assert counts == (0, 0, 0, 0)
    assert found.own == CoverageCounts()
    assert found.overloads == CoverageCounts(
        public=len(overloads().all), tested=3, supported=2, aligned=1, misaligned=1
    )
    assert sentence(found).endswith(
        f"; of {len(overloads().all):,} overloads of its dispatcher, 3 are tested, 2 supported, 1 aligned, 1 misaligned"
    )


@pytest.mark.heavy
def test_covered__what_a_worker_makes_up__is_bounded():
    many = Exercised(cases=1, arguments=tuple(map(str, range(1000))), dtypes=tuple(map(str, range(1000))))
    held = UsageTally()
    for start in (0, OPERATORS_LISTED):
        held += UsageTally(exercised={f"made.up_{number}": many for number in range(start, start + OPERATORS_LISTED)})
    operators = covered({"": held, "here": held})
    told = operators[0].candidates["here"]
    assert (len(operators), len(told.arguments), len(told.dtypes)) == (OPERATORS_LISTED, NAMES_LISTED, NAMES_LISTED)


def test_sentence__says_the_numbers():
    found, _ = counts_of({"torch.add": ADD})
    public = sum(map(len, catalogue().public.values()))
    assert sentence(found) == (
        "coverage of here: 1 of 3 tested operators are supported, 1 aligned, 0 misaligned; "
        f"torch has {public} public operators; of your own, 0 of 1 are supported, 0 aligned, 0 misaligned"
    )


@pytest.mark.parametrize(("pairs", "end"), [(1, "1 pair"), (1200, "1,200 pairs")])
def test_sentence__group_of_ranks__counts_pairs(pairs, end):
    found = msgspec.structs.replace(counts_of({"torch.add": ADD})[0], pairs=pairs)
    assert sentence(found).endswith(f"; compared: {end} of operator and placements")


def test_catalogue__families__share_no_operator():
    for families in (catalogue().public, catalogue().suite):
        operators = [operator for own in families.values() for operator in own]
        assert len(operators) == len(set(operators))


def test_size_sentence__tests_on_two_candidates__count_once_and_say_why_nothing_is_large():
    one = samples.outcome(sizes={"0.dim0": ALL, "1.dim0": SMALL})
    result = samples.run(results=(one, samples.outcome(candidate="compiled", sizes=one.sizes)))
    assert size_sentence(result) == (
        "sizes of 2 free dimensions: 1 in 2, near 32 in 1, near 128 in 1, "
        "beyond 256 in 1; none is beyond 1,024 (raise `--cases`)"
    )


def test_size_sentence__no_free_dimension__is_nothing():
    assert size_sentence(samples.run()) == ""

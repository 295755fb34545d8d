"""Shards become the run that they are, and nothing gets better by merging."""

from __future__ import annotations

import msgspec
import pytest

from ci_autotest.commands.exit_status import settled
from ci_autotest.errors import UnsupportedReason, UsageError
from ci_autotest.report.error_pattern_text import pattern_sentence
from ci_autotest.report.merge import merge, summarize
from ci_autotest.values.error_pattern import Box, ErrorMap, ErrorPattern, Everything, Span
from ci_autotest.values.finding import Hit
from ci_autotest.values.result import (
    AttemptCounts,
    CandidateInfo,
    CaseCounts,
    Environment,
    RunError,
    Summary,
    UnsupportedCases,
)
from tests import report_samples as samples

OTHER = "autotests/autotest_a.py::relu"


def shard(index, count=2, **changes):
    return samples.run(shard=(index, count), **changes)


def test_merge__two_shards_of_one_test__adds_its_counts():
    first = samples.outcome(cases=CaseCounts(aligned=9), attempts=AttemptCounts(accepted=9, rejected=1))
    second = samples.failed(cases=CaseCounts(aligned=8, misaligned=3), profiles={"ordinary": 5, "ties": 6})

    merged = merge([shard(2, results=(second,), findings=(samples.finding(),)), shard(1, results=(first,))])

    assert merged.results == (
        samples.failed(
            cases=CaseCounts(aligned=17, misaligned=3),
            attempts=AttemptCounts(accepted=29, rejected=3),
            profiles={"ordinary": 15, "ties": 6, "zero_dim": 10},
            duration_s=3.0,
        ),
    )
    assert merged.summary == Summary(misaligned=1, findings=1, cases=20)
    assert (merged.shard, merged.exit_code) == ((1, 1), 0)


def test_merge__sizes_of_two_shards__what_one_reached_is_reached():
    one = {"0.dim0": {"one": "reached", "near_32": "few_cases", "beyond_256": "rejected"}}
    other = {"0.dim0": {"one": "few_cases", "near_32": "few_cases", "beyond_256": "reached"}, "1": {"one": "range"}}
    shards = [shard(index, results=(samples.outcome(sizes=sizes),)) for index, sizes in ((1, one), (2, other))]

    both = {"0.dim0": {"one": "reached", "near_32": "few_cases", "beyond_256": "reached"}, "1": {"one": "range"}}
    assert [merge(order).results[0].sizes for order in (shards, shards[::-1])] == [both, both]


def test_merge__tests_of_two_shards__are_united_in_order():
    merged = merge([shard(1, results=(samples.outcome(),)), shard(2, results=(samples.outcome(test=OTHER),))])

    assert [item.test for item in merged.results] == [OTHER, samples.TEST]


def test_merge__one_identity_in_two_shards__lowest_case_stays_and_cases_are_added():
    low = samples.finding(test=OTHER, case=9, tests=(OTHER,), cases=2, of_cases=10)
    high = samples.finding(case=1)

    merged = merge([shard(1, findings=(high,)), shard(2, findings=(low,))])

    assert merged.findings == (msgspec.structs.replace(low, cases=5, of_cases=30, tests=(OTHER, samples.TEST)),)


def test_merge__one_shard_has_it_from_an_earlier_run_only__the_case_of_this_run_stays():
    earlier = samples.finding(case=1, cases=0, of_cases=0, earlier=True)
    merged = merge([shard(1, findings=(earlier,)), shard(2, findings=(samples.finding(case=9),))])
    assert [(item.case, item.cases, item.of_cases, item.earlier) for item in merged.findings] == [(9, 3, 20, False)]


def test_merge__case_of_another_shard_tells_more__its_pattern_is_the_findings():
    def found(case, pattern):
        lines = [
            "misaligned: exp",
            *([f"  pattern as found: {pattern_sentence(pattern)}"] if pattern else []),
            "  blame: candidate",
        ]
        return samples.finding(case=case, pattern=pattern, message="\n".join(lines))

    def off(wrong, region):
        no_map = ErrorMap(cells=(), block=(), levels=b"", counts=())
        return ErrorPattern(shape=(2, 88), mismatched=wrong, region=region, map=no_map)

    tail = Box(parts=(Span(axis=1, start=64, stop=88, size=88),))
    low, high = found(1, off(2, Everything())), found(6, off(48, tail))
    for parts in ((low, high), (high, low)):
        (merged,) = merge([shard(at, findings=(part,)) for at, part in enumerate(parts, 1)]).findings
        assert (merged.case, merged.pattern) == (1, msgspec.structs.replace(high.pattern, case=6))
        assert merged.message.splitlines() == [
            "misaligned: exp", f"  pattern as found: {pattern_sentence(merged.pattern)}", "  blame: candidate",
        ]  # fmt: skip
        assert "in case 6: only the last 24" in merged.message


def test_merge__weak_in_one_shard__what_the_reference_said_stays():
    weak = samples.outcome(weak=True, refusal="it says no")
    merged = merge([shard(1, results=(samples.outcome(),)), shard(2, results=(weak,))])
    assert [(item.weak, item.refusal) for item in merged.results] == [(True, "it says no")]


@pytest.mark.parametrize(
    ("attempts", "is_weak"), [(((0, 10), (30, 0)), False), (((0, 10), (1, 10)), True), (((1, 8), (1, 30)), True)]
)
def test_merge__ordinary_attempts_of_all_shards__say_whether_the_test_is_weak(attempts, is_weak):
    results = [
        samples.outcome(ordinary=AttemptCounts(accepted=yes, rejected=no), weak=yes < 0.1 * (yes + no))
        for yes, no in attempts
    ]
    merged = merge([shard(1, results=(results[0],)), shard(2, results=(results[1],))])
    assert [item.weak for item in merged.results] == [is_weak]


def test_merge__body_skipped_after_what_the_reference_rejected__says_why_it_skipped():
    skipped = samples.outcome(
        outcome="skipped", cases=CaseCounts(skipped=1), attempts=AttemptCounts(rejected=1), refusal="no",
        skip_reason="here", reason="skipped: here",
    )  # fmt: skip
    merged = merge([shard(1, results=(skipped,)), shard(2, results=(skipped,))])
    assert [(item.outcome, item.reason) for item in merged.results] == [("skipped", "skipped: here")]


def test_merge__lowest_case_is_not_confirmed__the_one_that_counts_stays():
    flaky = samples.finding(case=1, outcome="flaky")

    merged = merge([shard(1, findings=(flaky,)), shard(2, findings=(samples.finding(case=9),))])

    assert [(item.case, item.outcome) for item in merged.findings] == [(9, "misaligned")]


@pytest.mark.parametrize(
    "change", [{"candidate": "compiled"}, {"operator": "torch.softmax"}, {"kind": "gradient"}], ids=str
)
def test_merge__another_identity__stays_another_finding(change):
    merged = merge([shard(1, findings=(samples.finding(),)), shard(2, findings=(samples.finding(**change),))])

    assert len(merged.findings) == 2


def test_merge__broken_in_both_shards__is_told_once():
    merged = merge([shard(1, broken=(samples.broken(),)), shard(2, broken=(samples.broken(),))])

    assert (merged.broken, merged.summary.broken) == ((samples.broken(),), 1)


def test_merge__unsupported_against_its_counts__does_not_become_aligned():
    refused = samples.outcome(outcome="unsupported", reason="the replacement was never called")

    merged = merge([shard(1, results=(refused,)), shard(2, results=(samples.outcome(),))])

    assert [(item.outcome, item.reason) for item in merged.results] == [
        ("unsupported", "the replacement was never called")
    ]


def test_merge__not_run_in_one_shard_and_aligned_in_the_other__is_aligned():
    idle = samples.outcome(outcome="not_run", cases=CaseCounts(not_run=5), reason="the budget was used up")

    merged = merge([shard(1, results=(idle,)), shard(2, results=(samples.outcome(),))])

    assert [(item.outcome, item.reason) for item in merged.results] == [("aligned", "")]


def test_merge__candidate_missing_in_one_shard__is_told():
    missing = CandidateInfo(name="kernels", backend="substitute", available=False, reason="no GPU")

    merged = merge([shard(1), shard(2, candidates=(missing,))])

    assert merged.candidates == (missing, samples.COMPILED)


def test_merge__fixed_in_one_shard_and_seen_in_the_other__is_not_fixed():
    identity = " ".join(samples.finding().identity)

    merged = merge([shard(1, fixed=(identity, "a b c"), new=()), shard(2, findings=(samples.finding(),), new=())])

    assert (merged.fixed, merged.new) == (("a b c",), ())


def test_merge__new_in_one_shard__is_new():
    merged = merge([shard(1, new=()), shard(2, findings=(samples.finding(),), new=("layer_norm-3f2a",))])

    assert merged.new == ("layer_norm-3f2a",)


def test_merge__no_baseline__has_no_new():
    assert merge([shard(1), shard(2)]).new is None


def test_merge__notes_and_interruption__are_united():
    other = Environment(ci_autotest="0.1.0", python="3.11.9", platform="Linux x86_64", torch="2.12.0")

    merged = merge([shard(1, notes=("a", "b")), shard(2, notes=("b", "c"), environment=other, interrupted=True)])

    assert merged.notes == ("a", "b", "c", "The shards ran with different torch: 2.12.0, 2.13.0.")
    assert merged.interrupted


def test_merge__an_error_ended_one_shard__the_merged_run_ends_with_its_status():
    error = RunError("no node is left", 4)
    merged = settled(merge([shard(1), shard(2, is_partial=True, error=error)]), "misaligned")
    assert (merged.error, merged.exit_code) == (error, 4)


def test_merge__file_of_a_shard_could_not_be_written__is_none_of_the_merged_report():
    error = RunError("junit.xml cannot be written", 2, is_of_report=True)
    merged = settled(merge([shard(1), shard(2, error=error, exit_code=2)]), "misaligned")
    assert (merged.error, merged.exit_code) == (None, 0)


def test_merge__errors_ended_two_shards__both_are_said():
    first, second = (RunError(f"no node {i} is left.", 4) for i in (1, 2))
    merged = merge([shard(1, error=first), shard(2, error=second)])
    assert merged.error == RunError("no node 1 is left. no node 2 is left.", 4)


def test_merge__order_of_shards__does_not_matter():
    shards = [shard(index, 3, results=(samples.outcome(test=f"a.py::t{index}"),)) for index in (1, 2, 3)]

    assert merge(shards) == merge(shards[::-1])


def test_merge__whole_run__is_itself():
    result = merge([samples.everything()])

    assert merge([result]) == result


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        pytest.param([], "there is no report to merge", id="none"),
        pytest.param([(1, 2), (1, 2)], "shard 1 of 2 is given more than once", id="twice"),
        pytest.param([(1, 4), (3, 4)], "shard 2, 4 of 4 is missing", id="missing"),
        pytest.param([(1, 2), (3, 2)], "shard 3 of 2 does not exist", id="beyond the count"),
        pytest.param([(1, 2), (2, 3)], r"different numbers of shards \(2, 3\)", id="two runs"),
        pytest.param([(1, 10**18)], "of 1000000000000000000 is missing", id="a count that no memory holds"),
    ],
)
def test_merge__not_all_shards_of_one_run__is_refused(shards, message):
    with pytest.raises(UsageError, match=message):
        merge([shard(*item) for item in shards])


def test_merge__different_seeds__is_refused():
    with pytest.raises(UsageError, match=r"different seeds \(7, 1729\)"):
        merge([shard(1), shard(2, seed=7)])


def test_merge__different_plans__is_refused():
    with pytest.raises(UsageError, match=r"different plans \(a, b\).*same tests and the same .autotest/"):
        merge([shard(1, plan="a"), shard(2, plan="b")])


def test_merge__different_commits__is_refused():
    other = Environment(ci_autotest="0.1.0", python="3.11.9", platform="Linux x86_64", commit="b" * 40)

    with pytest.raises(UsageError, match="different commits"):
        merge([shard(1), shard(2, environment=other)])


def test_summarize__results_of_every_outcome__counts_pairs_and_compared_cases():
    result = samples.everything()

    counted = summarize(result.results, result.findings, result.broken)

    assert counted == Summary(
        aligned=1, misaligned=1, unsupported=1, crashed=1, not_run=1, broken=1, findings=3, cases=45
    )


def test_merge__unsupported_cases__are_counted_by_reason_in_any_order():
    def part(index, reason, cases, *details):
        found = UnsupportedCases(reason=reason, cases=cases, details=details)
        return shard(index, count=3, results=(samples.outcome(unsupported=(found,)),))

    parts = [
        part(1, UnsupportedReason.NO_KERNEL, 2, "b", "d"), part(2, UnsupportedReason.NO_KERNEL, 3, "a", "c"),
        part(3, UnsupportedReason.OUTSIDE, 9, "z"),
    ]  # fmt: skip
    expected = (
        UnsupportedCases(reason=UnsupportedReason.OUTSIDE, cases=9, details=("z",)),
        UnsupportedCases(reason=UnsupportedReason.NO_KERNEL, cases=5, details=("a", "b", "c")),
    )
    assert [merge(order).results[0].unsupported for order in (parts, parts[::-1])] == [expected, expected]


def hit(test=samples.TEST, cases=(3,), of_cases=10):
    return Hit(test=test, cases=cases, count=len(cases), of_cases=of_cases)


def test_merge__a_shard_without_a_hit__counts_among_the_cases_that_were_run():
    failed = samples.finding(cases=1, of_cases=10, hits=(hit(),))
    results = [samples.outcome(cases=CaseCounts(aligned=number), rejected_cases=1) for number in (10, 6)]
    merged = merge([shard(1, results=(results[0],), findings=(failed,)), shard(2, results=(results[1],))])
    assert [(item.of_cases, item.hits[0].of_cases) for item in merged.findings] == [(16, 16)]


def test_merge__cases_left_alone_in_two_shards__are_told_together():
    parts = [
        samples.outcome(cases=CaseCounts(crashed=crashed, not_run=5), outcome="crashed", reason="r", left_alone=True)
        for crashed in (1, 2)
    ]
    merged = merge([shard(number, results=(part,)) for number, part in enumerate(parts, 1)])
    assert [item.reason for item in merged.results] == ["3 cases ended their worker; the other 10 were skipped"]


def test_merge__smallest_program_of_another_test_stands_for_its_shard__is_a_variant_as_in_the_whole():
    low = samples.finding(test=OTHER, case=0, tests=(OTHER,), hits=(hit(OTHER, (0, 4)),), calls=("torch.exp()",))
    high = samples.finding(case=3, hits=(hit(),), calls=("torch.Tensor.exp()",))
    alike = samples.finding(case=3, hits=(hit(),), calls=("torch.exp()",))
    merged = [merge([shard(1, findings=(low,)), shard(2, findings=(other,))]) for other in (high, alike)]
    assert [[(item.test, item.case) for item in each.findings[0].variants] for each in merged] == [
        [(samples.TEST, 3)],
        [],
    ]

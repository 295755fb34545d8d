"""Windows, shards and the order of work: together the shards are the whole, once each, and take equal time."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest

from ci_autotest.errors import UsageError
from ci_autotest.plan import TASK_CASES, Share, costs, digest, order, shard_of, shares, windows
from ci_autotest.values.schedule import WINDOW, window_of

COUNTS = [20, 1, 0, 7, 130]


def pairs(found: list[Share]) -> list[tuple[int, int]]:
    return [(share.test, case) for share in found for case in share.cases]


@pytest.mark.parametrize("total", [0, 1, 2, 9, 10, 11, 20, 130])
def test_windows__of_a_test__are_its_cases_once_in_order(total):
    found = list(windows(total))
    assert list(chain(*found)) == list(range(total))
    assert [window_of(case) for case in chain(*found)] == [i for i, window in enumerate(found) for _ in window]
    assert all(len(window) <= WINDOW for window in found)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 50])
def test_shares__union_of_all_shards__is_the_whole_once(count):
    union = Counter(pair for index in range(1, count + 1) for pair in pairs(shares(COUNTS, (index, count))))
    assert union == Counter(pairs(shares(COUNTS, (1, 1))))
    assert sum(union.values()) == sum(COUNTS)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_shares__window__is_never_split(count):
    held = [{(test, window_of(case)) for test, case in pairs(shares(COUNTS, (i + 1, count)))} for i in range(count)]
    assert sum(map(len, held)) == len(set().union(*held))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_shares__nothing_is_known_of_durations__shards_have_equal_cases(count):
    sizes = [len(pairs(shares(COUNTS, (index, count)))) for index in range(1, count + 1)]
    assert max(sizes) - min(sizes) <= WINDOW


def test_shares__durations_are_known__shards_take_equal_time():
    case_s = [1.0, 30.0, 1.0, 4.0, 0.25]
    taken = [
        sum(len(share.cases) * case_s[share.test] for share in shares(COUNTS, (index, 3), case_s))
        for index in (1, 2, 3)
    ]
    # 30 seconds are one case: nothing can be more even than the longest window.
    assert max(taken) <= 1.2 * sum(taken) / 3


@pytest.mark.parametrize("count", [2, 5])
def test_shares__one_case_tests__are_spread_over_shards(count):
    sizes = [len(pairs(shares([1] * 20, (index, count)))) for index in range(1, count + 1)]
    assert sizes == [20 // count] * count


def test_shares__every_share__knows_the_total():
    assert [share.total for share in shares(COUNTS, (2, 3))] == COUNTS


def in_order(counts, case_s=lambda _: 0.0, shard=(1, 1)):
    return list(order(shares(counts, shard), case_s))


@pytest.mark.parametrize("case_s", [0.0, 0.001, 0.05, 10.0])
def test_order__of_any_speed__is_all_cases_once_in_whole_windows(case_s):
    found = in_order(COUNTS, lambda _: case_s)
    assert Counter((test, case) for test, cases in found for case in cases) == Counter(pairs(shares(COUNTS, (1, 1))))
    seen = [(test, window) for test, cases in found for window in {window_of(case) for case in cases}]
    assert len(seen) == len(set(seen))
    for test in range(len(COUNTS)):
        cases = [case for t, own in found if t == test for case in own]
        assert cases == sorted(cases)


def test_order__every_test__has_run_once_before_any_runs_ten_times():
    runs: Counter[int] = Counter()
    for test, cases in in_order([50, 50, 50, 3]):
        runs[test] += len(cases)
        assert max(runs.values()) < 10 or len(runs) == 4


def test_order__durations_are_known__longest_is_first_in_each_round():
    found = in_order([10, 10, 10], lambda test: [0.001, 0.03, 0.02][test])
    assert [test for test, _ in found] == [1, 2, 0, 1, 2, 0]


def test_order__slow_test__gets_tasks_of_one_window__fast_test_larger_ones():
    found = in_order([1000], lambda _: 1.0)
    assert max(len(cases) for _, cases in found) == WINDOW
    assert max(len(cases) for _, cases in in_order([2000], lambda _: 1e-5)) == TASK_CASES


def test_order__durations_are_learned_meanwhile__later_rounds_follow_them():
    known = {0: 0.0, 1: 0.0}
    found = []
    for test, cases in order(shares([20, 20], (1, 1)), lambda test: known[test]):
        found.append((test, cases[0]))
        known[1] = 1.0
    assert found == [(0, 0), (1, 0), (1, 1), (0, 1), (1, 10), (0, 10)]


def test_order__nothing__is_nothing():
    assert in_order([]) == in_order([0, 0]) == []


def test_costs__tests_that_are_not_known__take_the_median():
    assert costs(["a", "b", "c", "d"], {"a": 0.1, "b": 0.9, "d": 0.2}) == [0.125, 1.0, 0.25, 0.25]


def test_costs__noise__is_rounded_away():
    assert costs(["a"], {"a": 0.13}) == costs(["a"], {"a": 0.24})


@pytest.mark.parametrize(
    "changed", [([("a", 3), ("b", 2)], [1.0, 1.0]), ([("a", 2)], [1.0]), ([("a", 2), ("b", 2)], [1.0, 2.0])], ids=str
)
def test_digest__another_plan__is_another(changed):
    assert digest(*changed) != digest([("a", 2), ("b", 2)], [1.0, 1.0])


@pytest.mark.parametrize(("text", "shard"), [("1/1", (1, 1)), ("2/4", (2, 4)), (" 4/4 ", (4, 4))])
def test_shard_of__text__is_read(text, shard):
    assert shard_of(text) == shard


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5/4", "shard '5/4' names shard 5 of 4: the index runs from 1 to the count. Use 4/4 or lower."),
        ("0/4", "shard '0/4' names shard 0 of 4: the index runs from 1 to the count. Use 1/4 or higher."),
        ("1/0", "shard '1/0' is not K/N. Write 1/4 for the first of four."),
        ("1", "shard '1' is not K/N. Write 1/4 for the first of four."),
        ("-1/4", "shard '-1/4' is not K/N. Write 1/4 for the first of four."),
        ("a/b", "shard 'a/b' is not K/N. Write 1/4 for the first of four."),
        ("1/4/2", "shard '1/4/2' is not K/N. Write 1/4 for the first of four."),
        ("", "shard '' is not K/N. Write 1/4 for the first of four."),
    ],
)
def test_shard_of__what_is_none__says_what_to_write(text, said):
    with pytest.raises(UsageError) as caught:
        shard_of(text)
    assert str(caught.value) == said


def test_shares__of_a_billion_cases__list_none():
    found = [shares([10**9, 25], (index, 3))[0].cases for index in (1, 2, 3)]
    assert sum(map(len, found)) == 10**9
    assert sorted(cases[-1] for cases in found)[-1] == 10**9 - 1
    first = next(order(shares([10**9, 25], (2, 3)), lambda _: 1.0))
    assert len(first[1]) <= WINDOW


@pytest.mark.parametrize("total", [1, 9, 10, 11, 25, 130])
@pytest.mark.parametrize("index", [1, 2, 3, 4])
def test_shard_cases__asked_in_any_way__are_the_same(total, index):
    (share,) = shares([total], (index, 4))
    listed = list(share.cases)
    assert len(share.cases) == len(listed)
    assert [share.cases[i - len(listed)] for i in range(len(listed))] == listed
    assert [case for low in range(0, total, 7) for case in share.cases.between(low, low + 7)] == listed
    with pytest.raises(IndexError):
        share.cases[len(listed)]


def test_shard__of_more_than_there_can_be__is_refused():
    with pytest.raises(UsageError, match=r"shards are too many\. Give at most 10,000"):
        shard_of("1/99999999999")

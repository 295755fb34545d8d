"""Shards and blocks: together they are the whole, once each."""

from __future__ import annotations

from collections import Counter

import pytest

from ci_autotest.errors import UsageError
from ci_autotest.plan import BLOCK, Share, blocks, shard_of, shares

COUNTS = [20, 1, 0, 7, 130]


def pairs(found: list[Share]) -> list[tuple[int, int]]:
    return [(share.test, case) for share in found for case in share.cases]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 50])
def test_shares__union_of_all_shards__is_the_whole_once(count):
    union = Counter(pair for index in range(1, count + 1) for pair in pairs(shares(COUNTS, (index, count))))
    assert union == Counter(pairs(shares(COUNTS, (1, 1))))
    assert sum(union.values()) == sum(COUNTS)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_shares__shards__are_of_even_size(count):
    sizes = [len(pairs(shares(COUNTS, (index, count)))) for index in range(1, count + 1)]
    assert max(sizes) - min(sizes) <= len(COUNTS)


@pytest.mark.parametrize("count", [2, 5])
def test_shares__one_case_tests__are_spread_over_shards(count):
    sizes = [len(pairs(shares([1] * 20, (index, count)))) for index in range(1, count + 1)]
    assert sizes == [20 // count] * count


def test_shares__every_share__knows_the_total():
    assert [share.total for share in shares(COUNTS, (2, 3))] == COUNTS


def test_shares__test_added_at_the_end__moves_no_case():
    before, after = shares(COUNTS, (1, 3)), shares([*COUNTS, 9], (1, 3))
    assert after[: len(before)] == before


def test_shares__test_added_in_front__keeps_numbers_within_each_test():
    # A case may move to another shard; its number, and so what it draws, stays.
    for index in (1, 2, 3):
        for share in shares([5, *COUNTS], (index, 3))[1:]:
            assert set(share.cases) <= set(range(COUNTS[share.test - 1]))
    whole = [share.cases for share in shares([5, *COUNTS], (1, 1))[1:]]
    assert whole == [share.cases for share in shares(COUNTS, (1, 1))]


@pytest.mark.parametrize("size", [1, 3, BLOCK, 1000])
def test_blocks__of_any_size__are_all_cases_once_in_order(size):
    found = [(test, case) for test, cases in blocks(shares(COUNTS, (1, 1)), size) for case in cases]
    assert Counter(found) == Counter(pairs(shares(COUNTS, (1, 1))))
    for test in range(len(COUNTS)):
        cases = [case for t, case in found if t == test]
        assert cases == sorted(cases)


def test_blocks__every_first_block__comes_before_any_second():
    assert [test for test, _ in blocks(shares([5, 2, 4], (1, 1)), 2)] == [0, 1, 2, 0, 2, 0]


def test_blocks__nothing__is_nothing():
    assert list(blocks([])) == list(blocks(shares([0, 0], (1, 1)))) == []


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

"""What matters most is placed first, and the page is never larger than it may be."""

from __future__ import annotations

import pytest

from ci_autotest.report.size_budget import Block, BlockForm, Region, fixed, page


def make(text):
    return lambda: text


def block(full, row):
    return Block(
        "rows",
        (BlockForm(2, "full", make(full)), BlockForm(2, "full", make(full[:5])), BlockForm(1, "rows", make(row))),
    )


REGIONS = [Region(name="full", lead="<"), Region(name="rows", lead="[", tail="]", more=" and {count}")]
BLOCKS = [block("A" * 20, "a"), block("B" * 20, "b"), block("C" * 20, "c")]


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        pytest.param(60, f"<{'A' * 20}{'B' * 20}{'C' * 20}", id="all in full"),
        pytest.param(57, f"<{'A' * 20}{'B' * 20}{'C' * 5}", id="the last one short"),
        pytest.param(41, f"<{'A' * 20}{'B' * 20}[c]", id="the last one is a row"),
        pytest.param(27, f"<{'A' * 20}{'B' * 5}[c]", id="first full, then short, then a row"),
        pytest.param(3, "[abc]", id="rows"),
        pytest.param(2, "[ab] and 1", id="one is only counted"),
        pytest.param(0, " and 3", id="no room"),
    ],
)
def test_page__less_and_less_room__last_blocks_give_way_first(room, shown):
    reserve = len("<[]") + len(" and 1,000,000,000")

    assert page(REGIONS, BLOCKS, room + reserve) == shown


def test_page__form_that_never_gets_its_turn__is_made_only_to_be_measured():
    made = []
    forms = tuple(BlockForm(0, "a", lambda name=name: made.append(name) or name) for name in ("full", "short"))

    page([Region(name="a")], [Block("a", forms)], 100)

    assert made == ["full"]


def test_page__blocks_that_were_not_made__are_counted():
    assert page([Region(name="a", more="{count} more", beyond=9_000)], [fixed("a", "x")], 100) == "x9,000 more"


def test_page__characters_of_several_bytes__are_measured_in_bytes():
    assert page([Region(name="a")], [fixed("a", "é" * 10)], 19) == ""

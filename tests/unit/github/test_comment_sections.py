"""The comment's text: markers, sections, and what a section cannot do to another."""

from __future__ import annotations

import pytest

from ci_autotest.errors import PublishError, UsageError
from ci_autotest.github.comment_sections import MAX_CHARS, CommentSection, Turn, compose, marker, sections_of

LINE = "<!-- ci-autotest:x -->"


def section(leg: str, text: str = "### ✗ bad", run_id: int = 5) -> CommentSection:
    return CommentSection(leg=leg, turn=Turn(run_id, 1), text=text)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("ci-autotest", "<!-- ci-autotest:ci-autotest -->"),
        ("gpu 8.0", "<!-- ci-autotest:gpu-8-0-16dd14f3 -->"),
        ("gpu-8.0", "<!-- ci-autotest:gpu-8-0-96e8553d -->"),
        ("x --> <script>", "<!-- ci-autotest:x-script-45d49042 -->"),
        ("a--b", "<!-- ci-autotest:a-b-90827a2e -->"),
        ("a\nb", "<!-- ci-autotest:a-b-7e18f737 -->"),
    ],
)
def test_marker__any_name__is_one_comment_of_one_line(name: str, line: str) -> None:
    assert marker(name) == line


def test_marker__long_name__is_cut_and_stays_its_own() -> None:
    assert len({marker("n" * 64), marker("n" * 65), marker("n" * 66)}) == 3
    assert len(marker("n" * 10_000)) < 100


def test_marker__no_letter__says_what_is_missing() -> None:
    with pytest.raises(UsageError) as caught:
        marker("-- ✓ --")

    assert str(caught.value) == "check name '-- ✓ --' has no letter and no digit (A to Z, 0 to 9). Give it one."


def test_compose__one_section__has_two_hidden_lines_and_its_text() -> None:
    assert compose(LINE, [section("")]) == f"{LINE}\n<!-- sections 5.1.9. -->\n\n### ✗ bad"


def test_compose__legs__are_in_order_under_one_line_on_all() -> None:
    body = compose(LINE, [section("b", "### ✓ fine"), section("a, 3.11", "### ✗ a\n\nmore", run_id=4)])

    assert body == (
        f"{LINE}\n<!-- sections 4.1.13.a%2C%203.11 5.1.10.b -->\n"
        "**1 of 2 legs not aligned**\n\n"
        "### ✗ a\n\nmore\n\n### ✓ fine"
    )


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param([section("")], id="one"),
        pytest.param([section("a"), section("b", "### ✗ b\n\n```\n### c\n```"), section("é --> <b>")], id="three"),
        pytest.param(
            [section("a", f"### ✗ \N{FIRE}\n\n{LINE}\n<!-- sections 9.9.9.b -->\n\n### ✓ b")], id="forged in text"
        ),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["sent", "edited in a browser"])
def test_sections_of__composed__are_those(sections: list[CommentSection], ends: str) -> None:
    body = compose(LINE, sections).replace("\n", ends)

    assert sections_of(body) == tuple(sorted(sections, key=lambda each: each.leg))


def test_sections_of__text_was_edited__are_none() -> None:
    body = compose(LINE, [section("a"), section("b")])

    assert sections_of(body + " and a remark") == ()


def test_compose__too_much__leaves_the_first_line_of_the_longest() -> None:
    long, short = section("a", "### ✗ long\n\n" + "é" * 32_000), section("b", "### ✗ short\n\n" + "x" * 3_000)

    body = compose(LINE, [long, short])

    told = {each.leg: each.text for each in sections_of(body)}
    assert told == {"a": "### ✗ long\n\nThe rest is in the job's summary and the artifact.", "b": short.text}
    assert len(body.encode()) <= MAX_CHARS


def test_compose__256_legs__all_have_their_line() -> None:
    sections = [section(f"leg {i}", f"### ✗ leg {i}: 3 operators misaligned\n\n" + "x" * 4_000) for i in range(256)]

    body = compose(LINE, sections)

    assert (len(sections_of(body)), len(body.encode()) <= MAX_CHARS) == (256, True)


def test_compose__not_even_first_lines_have_room__says_what_to_do() -> None:
    with pytest.raises(
        PublishError, match=r"3 legs do not fit into one\. Publish some of them under another `artifact-name`"
    ):
        compose(LINE, [section(str(i), "### " + "x" * 30_000) for i in range(3)])

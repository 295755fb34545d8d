from __future__ import annotations

import pytest

from ci_autotest.github.comment_sections import CommentSection, Turn, compose, sections_of
from ci_autotest.github.sticky import (
    Comment,
    Create,
    Delete,
    Done,
    Skip,
    Step,
    Update,
    User,
    WantedComment,
    decide,
    turn_of,
)

LINE = "<!-- ci-autotest:x -->"


def section(run_id: int, text: str = "text", leg: str = "", attempt: int = 1, again: str = "") -> CommentSection:
    return CommentSection(leg=leg, turn=Turn(run_id, attempt), text=f"### ✗ {text}", again=again)


def wanted(*sections: CommentSection, **changes) -> WantedComment:
    sections = sections or (section(5),)
    return WantedComment(**{"marker": LINE, "turn": sections[0].turn, "sections": sections, **changes})


def comment(comment_id: int, body: str | None, login: str | None = "bot") -> Comment:
    return Comment(id=comment_id, html_url=f"url {comment_id}", user=login and User(login), body=body)


def ours(comment_id: int, *sections: CommentSection) -> Comment:
    return comment(comment_id, compose(LINE, sections))


BODY = compose(LINE, [section(5)])
A4, A5, A6 = (ours(1, section(run)) for run in (4, 5, 6))
B4, B5, B6 = (ours(2, section(run)) for run in (4, 5, 6))
C4, C6 = (ours(3, section(run)) for run in (4, 6))


@pytest.mark.parametrize(
    ("comments", "step"),
    [
        pytest.param([], Create(BODY), id="nothing there"),
        pytest.param([comment(1, LINE, "mallory")], Create(BODY), id="forged"),
        pytest.param([comment(1, LINE, None)], Create(BODY), id="author is gone"),
        pytest.param([comment(1, None)], Create(BODY), id="no body"),
        pytest.param([comment(1, f" {LINE}")], Create(BODY), id="marker is indented"),
        pytest.param([A5], Done(A5), id="as wanted"),
        pytest.param([ours(1, section(5, "other"))], Update(1, BODY), id="same run, other text"),
        pytest.param([A4], Update(1, BODY), id="earlier run"),
        pytest.param([comment(1, LINE)], Update(1, BODY), id="of no run"),
        pytest.param([B4, A4], Update(1, BODY), id="two of an earlier run, out of order"),
        pytest.param([A4, B5], Update(1, BODY), id="text goes to the lowest first"),
        pytest.param([A5, B5, C4], Delete((2, 3), Done(A5)), id="duplicates"),
        pytest.param([A6], Done(A6, Turn(6, 1)), id="newer run"),
        pytest.param([A6, B5, C4], Delete((2, 3), Done(A6, Turn(6, 1))), id="newer run and duplicates"),
        pytest.param([A6, B6], Delete((2,), Done(A6, Turn(6, 1))), id="newer run twice"),
        pytest.param([A4, B6], Done(A4, Turn(6, 1)), id="newer run not in place"),
        pytest.param([A4, B4, C6], Delete((2,), Done(A4, Turn(6, 1))), id="newer run not in place, and a duplicate"),
        pytest.param(
            [ours(1, section(5, attempt=2))], Done(ours(1, section(5, attempt=2)), Turn(5, 2)), id="newer attempt"
        ),
    ],
)
def test_decide__comments_there_are(comments: list[Comment], step: Step) -> None:
    assert decide(comments, "bot", wanted(), wrote=False) == step


@pytest.mark.parametrize(
    ("comments", "step"),
    [
        pytest.param(
            [ours(1, section(5, "other"))], Done(ours(1, section(5, "other"))), id="same run has the last word"
        ),
        pytest.param([A4], Update(1, BODY), id="an earlier run has not"),
        pytest.param([], Create(BODY), id="deleted meanwhile"),
    ],
)
def test_decide__after_writing(comments: list[Comment], step: Step) -> None:
    assert decide(comments, "bot", wanted(), wrote=True) == step


def test_decide__no_comment_and_no_reason_for_one__is_skipped() -> None:
    assert decide([comment(1, LINE, "mallory")], "bot", wanted(may_create=False), wrote=False) == Skip()


def test_decide__comment_and_no_reason_for_one__is_brought_up_to_date() -> None:
    assert decide([A4], "bot", wanted(may_create=False), wrote=False) == Update(1, BODY)


def updated(there: list[Comment], want: WantedComment) -> dict[str, CommentSection]:
    """Return the sections by leg, as they are after the update that is asked for."""
    step = decide(there, "bot", want, wrote=False)
    assert isinstance(step, Update)
    return {part.leg: part for part in sections_of(step.body)}


def test_decide__legs_of_before__are_those_of_this_run() -> None:
    there = ours(1, section(4, "a", "a"), section(4, "gone", "gone"))

    assert updated([there], wanted(section(5, "a", "a"), section(5, "b", "b"))) == {
        "a": section(5, "a", "a"), "b": section(5, "b", "b")
    }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "text"),
    [
        pytest.param("### ✗ 1 operator misaligned", "### ✓ aligned\n\nagain", id="was misaligned"),
        pytest.param("### ✓ aligned", "### ✓ aligned", id="was aligned"),
    ],
)
def test_decide__aligned_again__says_so_where_it_was_not(before: str, text: str) -> None:
    there = comment(1, compose(LINE, [CommentSection(leg="", turn=Turn(4, 1), text=before)]))
    now = CommentSection(leg="", turn=Turn(5, 1), text="### ✓ aligned", again="### ✓ aligned\n\nagain")

    assert updated([there], wanted(now))[""].text == text


@pytest.mark.parametrize(
    ("body", "turn"),
    [
        pytest.param(compose(LINE, [section(12, attempt=3)]), Turn(12, 3), id="ours"),
        pytest.param(compose(LINE, [section(12, leg="a"), section(11, leg="b")]), Turn(12, 1), id="the latest leg"),
        pytest.param(compose(LINE, [section(12)]).replace("\n", "\r\n"), Turn(12, 1), id="CRLF"),
        pytest.param(f"{LINE}\ntext\n<!-- sections 12.3.4. -->", Turn(0, 0), id="not the second line"),
        pytest.param(f"{LINE}\n<!-- sections {'9' * 5000}.1.1. -->\n#", Turn(0, 0), id="too many digits"),
        pytest.param(f"{LINE}\n<!-- sections 12.1.999. -->\n# x", Turn(0, 0), id="cut"),
        pytest.param(f"{LINE}\n<!-- sections 12.1.3. -->\nedited", Turn(0, 0), id="edited"),
        pytest.param(LINE, Turn(0, 0), id="one line"),
        pytest.param(None, Turn(0, 0), id="no body"),
    ],
)
def test_turn_of__body(body: str | None, turn: Turn) -> None:
    assert turn_of(comment(1, body)) == turn


def test_turn__newer__is_greater() -> None:
    turns = [Turn(6, 1), Turn(5, 10), Turn(5, 2), Turn(0, 0)]

    assert sorted(turns, reverse=True) == turns

from __future__ import annotations

import pytest

from ci_autotest.errors import UsageError
from ci_autotest.github.sticky import (
    Comment,
    Create,
    Delete,
    Done,
    Step,
    Sticky,
    Turn,
    Update,
    User,
    decide,
    marker,
    sticky,
    turn_of,
)  # fmt: skip

LINE = "<!-- ci-autotest:x -->"
WANTED = Sticky(marker=LINE, turn=Turn(5, 1), text="text")


def comment(comment_id: int, body: str | None, login: str | None = "bot") -> Comment:
    return Comment(id=comment_id, html_url=f"url {comment_id}", user=login and User(login), body=body)


def ours(comment_id: int, run_id: int, text: str = "text") -> Comment:
    return comment(comment_id, Sticky(marker=LINE, turn=Turn(run_id, 1), text=text).body)


A5, B5, B4, C4, B6, C6 = ours(1, 5), ours(2, 5), ours(2, 4), ours(3, 4), ours(2, 6), ours(3, 6)
A4, A6 = ours(1, 4), ours(1, 6)


@pytest.mark.parametrize(
    ("comments", "step"),
    [
        pytest.param([], Create(), id="nothing there"),
        pytest.param([comment(1, LINE, "mallory")], Create(), id="forged"),
        pytest.param([comment(1, LINE, None)], Create(), id="author is gone"),
        pytest.param([comment(1, None)], Create(), id="no body"),
        pytest.param([comment(1, f" {LINE}")], Create(), id="marker is indented"),
        pytest.param([A5], Done(A5), id="as wanted"),
        pytest.param([ours(1, 5, "other")], Update(1), id="same run, other text"),
        pytest.param([A4], Update(1), id="earlier run"),
        pytest.param([comment(1, LINE)], Update(1), id="of no run"),
        pytest.param([B4, A4], Update(1), id="two of an earlier run, out of order"),
        pytest.param([A4, B5], Update(1), id="text goes to the lowest first"),
        pytest.param([A5, B5, C4], Delete((2, 3), Done(A5)), id="duplicates"),
        pytest.param([A6], Done(A6, Turn(6, 1)), id="newer run"),
        pytest.param([A6, B5, C4], Delete((2, 3), Done(A6, Turn(6, 1))), id="newer run and duplicates"),
        pytest.param([A6, B6], Delete((2,), Done(A6, Turn(6, 1))), id="newer run twice"),
        pytest.param([A4, B6], Done(A4, Turn(6, 1)), id="newer run not in place"),
        pytest.param([A4, B4, C6], Delete((2,), Done(A4, Turn(6, 1))), id="newer run not in place, and a duplicate"),
    ],
)
def test_decide__comments_there_are(comments: list[Comment], step: Step) -> None:
    assert decide(comments, "bot", WANTED, wrote=False) == step


@pytest.mark.parametrize(
    ("comments", "step"),
    [
        pytest.param([ours(1, 5, "other")], Done(ours(1, 5, "other")), id="same run has the last word"),
        pytest.param([A4], Update(1), id="an earlier run has not"),
        pytest.param([], Create(), id="deleted meanwhile"),
    ],
)
def test_decide__after_writing(comments: list[Comment], step: Step) -> None:
    assert decide(comments, "bot", WANTED, wrote=True) == step


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


@pytest.mark.parametrize(
    ("body", "turn"),
    [
        pytest.param(sticky("x", Turn(12, 3), "").body, Turn(12, 3), id="ours"),
        pytest.param(f"{LINE}\r\n<!-- run 12 attempt 3 -->\r\ntext", Turn(12, 3), id="CRLF"),
        pytest.param(f"{LINE}\ntext\n<!-- run 12 attempt 3 -->", Turn(0, 0), id="not the second line"),
        pytest.param(f"{LINE}\n<!-- run 12 -->", Turn(0, 0), id="no attempt"),
        pytest.param(f"{LINE}\n<!-- run {'9' * 5000} attempt 1 -->", Turn(0, 0), id="too many digits"),
        pytest.param(LINE, Turn(0, 0), id="one line"),
        pytest.param(None, Turn(0, 0), id="no body"),
    ],
)
def test_turn_of__body(body: str | None, turn: Turn) -> None:
    assert turn_of(comment(1, body)) == turn


def test_turn__newer__is_greater() -> None:
    turns = [Turn(6, 1), Turn(5, 10), Turn(5, 2), Turn(0, 0)]

    assert sorted(turns, reverse=True) == turns

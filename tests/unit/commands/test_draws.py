"""The draw log as text: what is printed is read back, edits and all; what cannot be read says where and what to write."""

from __future__ import annotations

import pytest

from ci_autotest.commands.draws import DrawLog, asked_for, edit_of, parse, render
from ci_autotest.errors import UsageError
from ci_autotest.values.case import Draw

LOG = DrawLog("autotests/a.py::exp", 7, 3, 1, values={"0.ndim": 2, "1": 0.5, "2": True})
DRAWS = [Draw("0.ndim", "ndim", 1, 6, 2), Draw("1", "float", 0.0, 1.0, 0.5), Draw("2", "bool", 0, 2, True)]
TEXT = """\
test = 'autotests/a.py::exp'
seed = 7
case = 3
attempt = 1
# profile: zero_size
0.ndim = 2                    # ndim of [1, 6)
1 = 0.5                       # float of [0, 1)
2 = True                      # bool of [0, 2)
"""


def test_render__a_case__names_it_and_every_draw():
    assert render(LOG, DRAWS, "zero_size") == TEXT


def test_parse__what_was_printed__is_the_log_again():
    assert parse(TEXT, "log.txt") == LOG


def test_parse__edited_by_hand__holds_the_edit():
    assert parse(TEXT.replace("0.ndim = 2 ", "0.ndim = 5 "), "log.txt").values["0.ndim"] == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("case = 1\n", "log.txt names no test.", id="no test"),
        pytest.param("test = 'a'\n", "log.txt names no case.", id="no case"),
        pytest.param("test = a\n", "log.txt, line 1: 'test = a' is no draw. Write SITE=VALUE", id="no text"),
        pytest.param("\ntest 3\n", "log.txt, line 2: 'test 3' is no draw.", id="no equals"),
        pytest.param("test = 'a'\ncase = 'b'\n", "log.txt: case is 'b'. Give a number.", id="case is text"),
        pytest.param("test = 'a'\ncase = 1\n1 = 2\n1 = 3\n", "line 4: 1 is given twice. Keep one.", id="twice"),
        pytest.param("test = 'a'\ncase = 1\n1 = [2]\n", "line 3: '1 = [2]' is no draw.", id="a list"),
        pytest.param("test = 'a'\ncase = 1\n1 = __import__('os')\n", "is no draw", id="a call"),
    ],
)
def test_parse__what_cannot_be_read__says_where_and_what_to_write(text, said):
    with pytest.raises(UsageError) as caught:
        parse(text, "log.txt")
    assert said in str(caught.value)


def test_edit_of__a_command_line__is_a_name_and_a_value():
    assert [edit_of(text, "--edit") for text in ("0.ndim=2", "1 = -0.5", "2=True")] == [
        ("0.ndim", 2),
        ("1", -0.5),
        ("2", True),
    ]


def test_asked_for__file_and_edits__edits_come_on_top(tmp_path):
    file = tmp_path / "log.txt"
    file.write_text(TEXT, encoding="utf-8")
    assert asked_for(None, 0, ["1=0.25"], file, 0).values == {"0.ndim": 2, "1": 0.25, "2": True}


@pytest.mark.parametrize("both", [True, False])
def test_asked_for__neither_or_both__says_what_to_give(tmp_path, both):
    with pytest.raises(UsageError, match="give either a test, as PATH::TEST, or --log FILE"):
        asked_for("a" if both else None, 0, (), tmp_path if both else None, 0)

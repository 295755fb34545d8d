"""What `-k` takes."""

from __future__ import annotations

import pytest

from ci_autotest.commands.keyword_expression import parsed
from ci_autotest.errors import UsageError

TESTS = ("a.py::softmax", "a.py::softmax_half", "b.py::Exp")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("softmax", TESTS[:2]),
        ("softmax and not half", TESTS[:1]),
        ("exp or half", TESTS[1:]),
        ("not (softmax or exp)", ()),
        ("not not exp", TESTS[2:]),
        ("a.py::softmax_", TESTS[1:2]),
        ("exp or softmax and half", TESTS[1:]),
    ],
)
def test_parsed__expression__chooses(text: str, found: tuple[str, ...]):
    keywords = parsed(text)
    assert tuple(test for test in TESTS if keywords.match(test)) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a word is missing at its end"),
        ("and", "a word is missing before 'and'"),
        ("a and", "a word is missing at its end"),
        ("a or or b", "a word is missing before 'or'"),
        ("(a", "a parenthesis is not closed"),
        ("a)", "')' is not expected there"),
        ("a b", "'b' is not expected there"),
        ("()", "a word is missing before ')'"),
        ("(" * 5000, "it has more than 100 words"),
    ],
)
def test_parsed__no_expression__says_what_is_wrong(text: str, why: str):
    with pytest.raises(UsageError) as caught:
        parsed(text)
    assert str(caught.value) == (
        f"-k is {text[:80]!r}: {why}. Give words of tests' ids, joined by and, or, not and parentheses, such as "
        "'softmax and not half'."
    )

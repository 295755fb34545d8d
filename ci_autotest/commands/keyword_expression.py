"""Expressions of ``-k``: words joined by ``and``, ``or``, ``not`` and parentheses, as in pytest.

A word holds for a test if the test's id contains it, in upper or lower case.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN: Final = re.compile(r"\s*([()]|[^\s()]+)")
_NO_WORDS: Final = frozenset({"and", "or", ")"})
#: The parser calls itself for each parenthesis and each `not`, and Python limits the depth of calls.
_TOKENS_AT_MOST: Final = 100
_SHOWN_CHARS: Final = 80


class Keywords(NamedTuple):
    """A parsed expression.

    Attributes:
        text: As it was given.
        holds: Whether it holds for the id of a test in lower case.
    """

    text: str
    holds: Callable[[str], bool]

    def match(self, test: str) -> bool:
        """Return whether the expression holds for a test's id."""
        return self.holds(test.lower())


def parsed(text: str) -> Keywords:
    """Return the parsed expression.

    Raises:
        UsageError: It is not an expression.
    """
    parser = _Parser(text)
    holds = parser.either()
    if parser.tokens:
        why = f"{parser.tokens[0]!r} is not expected there"
        raise parser.refusal(why)
    return Keywords(text, holds)


class _Parser:
    """Recursive descent: ``either`` is a list joined by ``or``, ``both`` by ``and``, ``one`` a word or a bracket."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.tokens: list[str] = _TOKEN.findall(text)
        if len(self.tokens) > _TOKENS_AT_MOST:
            why = f"it has more than {_TOKENS_AT_MOST} words"
            raise self.refusal(why)

    def either(self) -> Callable[[str], bool]:
        parts = [self.both()]
        while self._take("or"):
            parts.append(self.both())
        return lambda test: any(part(test) for part in parts)

    def both(self) -> Callable[[str], bool]:
        parts = [self.one()]
        while self._take("and"):
            parts.append(self.one())
        return lambda test: all(part(test) for part in parts)

    def one(self) -> Callable[[str], bool]:
        if self._take("not"):
            negated = self.one()
            return lambda test: not negated(test)
        if self._take("("):
            inner = self.either()
            if not self._take(")"):
                why = "a parenthesis is not closed"
                raise self.refusal(why)
            return inner
        return self._word()

    def _word(self) -> Callable[[str], bool]:
        word = self.tokens.pop(0) if self.tokens else ""
        if not word or word in _NO_WORDS:
            raise self.refusal(f"a word is missing before {word!r}" if word else "a word is missing at its end")
        wanted = word.lower()
        return lambda test: wanted in test

    def _take(self, token: str) -> bool:
        if self.tokens[:1] != [token]:
            return False
        self.tokens.pop(0)
        return True

    def refusal(self, why: str) -> UsageError:
        return UsageError(
            f"-k is {self._text[:_SHOWN_CHARS]!r}: {why}. Give words of tests' ids, joined by and, or, not and "
            "parentheses, such as 'softmax and not half'."
        )

"""What is said of a run and of its findings, as nodes: names and messages come from tests, that is, from anybody.

A line is a string of our own words, a node with what is not ours, or a tuple of lines. Only renderers escape it:
``markdown_text`` for GitHub, ``plain_line`` for a terminal and for the page, whose templates escape it for HTML.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, Union

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Characters of one name or sentence in a line, because a name of 70,000 would push everything else out.
LINE_LIMIT: Final = 300

# Controls except tab and line feed, invisible and bidirectional formatting, line separators,
# surrogates, non-characters. Zero-width joiners stay, because emoji need them. Source: Unicode 15,
# general categories Cc, Cf, Zl, Zp, Cs.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
# Source: ECMA-48, 5.4 (control sequences) and 8.3.89 (operating system commands, which set titles
# and make links).
_ANSI: Final = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[@-Z\\\\-_])")


@dataclass(frozen=True, slots=True)
class Words:
    """Somebody's words, shown in one line of at most ``limit`` characters."""

    value: str
    limit: int = LINE_LIMIT


@dataclass(frozen=True, slots=True)
class Code:
    """A name in code, shown in one line of at most ``limit`` characters."""

    value: str
    limit: int = LINE_LIMIT


@dataclass(frozen=True, slots=True)
class Strong:
    """A line that stands out."""

    line: Line


@dataclass(frozen=True, slots=True)
class Link:
    """A line that leads to an address of ours."""

    line: Line
    address: str


Line: TypeAlias = Union[str, Words, Code, Strong, Link, "tuple[Line, ...]"]


def joined(separator: str, lines: Iterable[Line]) -> Line:
    """Return the lines that say something as one, with our own words between them."""
    found: list[Line] = []
    for each in lines:
        if each:
            found += [separator, each] if found else [each]
    return tuple(found)


def plain_line(line: Line) -> str:
    """Return a line without any markup."""
    if isinstance(line, str):
        return line
    if isinstance(line, tuple):
        return "".join(map(plain_line, line))
    return one_line(line.value, line.limit) if isinstance(line, Words | Code) else plain_line(line.line)


def visible(value: str) -> str:
    """Return ``value`` with invisible and reordering characters as Python escapes."""
    return _UNSEEN.sub(_escaped, value.replace("\r\n", "\n"))


def plain(value: str) -> str:
    """Return ``value`` without terminal colours, and with other invisible characters as escapes."""
    return visible(_ANSI.sub("", value))


def one_line(value: str, limit: int = LINE_LIMIT) -> str:
    """Return ``value`` in one line of at most ``limit`` characters, not yet escaped."""
    # Text far beyond the limit is cut first, because cleaning a huge name would take long.
    joined_words = " ".join(plain(value[: 4 * limit]).split())
    is_short = len(joined_words) <= limit and len(value) <= 4 * limit
    return joined_words if is_short else f"{joined_words[: limit - 1].rstrip()}…"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()

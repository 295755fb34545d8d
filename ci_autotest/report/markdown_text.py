"""Escape text for Markdown, because names and messages come from tests and candidates, that is, from anybody.

There are four functions: ``text`` for words in a line, ``code`` for a name in a line, ``fence`` for lines of code, and
``title`` for words in a line of HTML, where Markdown is not read. Each takes any string and returns text that GitHub
shows as exactly those characters: no HTML, link, mention, issue reference, comment marker or reversed text.
"""

from __future__ import annotations

import re
from typing import Final

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

# An entity is never Markdown syntax, but GitHub looks for mentions and links after it has read entities: a zero-width
# space breaks those. An underscore between letters or digits is no syntax and stays readable.
_SPECIAL: Final = re.compile(r"[<>&|@#\\`*~\[\]$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?i:://|www\.|\bgh-(?=\d))")
_BREAK: Final = "&#8203;"
_REPLACED: Final = {
    "<": "&lt;",
    ">": "&gt;",
    "&": "&amp;",
    "|": "&#124;",
    "@": f"@{_BREAK}",
    "#": f"#{_BREAK}",
}
_LIST_START: Final = re.compile(r"^(?:[-+](?=[\s-]|$)|=|\d{1,9}(?=[.)](?:\s|$)))")
_TICKS: Final = re.compile("`+")


def size(value: str) -> int:
    """Return the size of ``value`` in UTF-8 bytes, which is never less than in UTF-16 code units.

    GitHub states its limits in characters, but counts them in one unit or the other.
    """
    return len(value.encode(errors="surrogatepass"))


def visible(value: str) -> str:
    """Return ``value`` with invisible and reordering characters as Python escapes."""
    return _UNSEEN.sub(_escaped, value.replace("\r\n", "\n"))


def plain(value: str) -> str:
    """Return ``value`` without terminal colours, and with other invisible characters as escapes."""
    return visible(_ANSI.sub("", value))


def line(value: str, limit: int = LINE_LIMIT) -> str:
    """Return ``value`` in one line of at most ``limit`` characters, not yet escaped for Markdown."""
    # Text far beyond the limit is cut first, because cleaning a huge name would take long.
    joined = " ".join(plain(value[: 4 * limit]).split())
    return joined if len(joined) <= limit and len(value) <= 4 * limit else f"{joined[: limit - 1].rstrip()}…"


def text(value: str, limit: int = LINE_LIMIT) -> str:
    """Return ``value`` as words in a line, a list or a cell of a table."""
    escaped = _SPECIAL.sub(_harmless, line(value, limit))
    return _LIST_START.sub(_without_list, escaped)


def code(value: str, limit: int = LINE_LIMIT) -> str:
    """Return ``value`` as a code span in a line, a list or a cell of a table.

    A cell ends at a pipe even inside a code span, and a span ends at a run of backticks, so a value that has either is
    shown as text.
    """
    shown = line(value, limit)
    if not shown or "|" in shown or "`" in shown:
        return text(value, limit)
    return f"`{shown}`"


def title(value: str, limit: int = LINE_LIMIT) -> str:
    """Return ``value`` as words inside of ``<summary>``: HTML as entities, mentions and links broken."""
    return _SPECIAL.sub(_in_html, line(value, limit))


def fence(value: str, language: str = "") -> str:
    """Return ``value`` as a code block whose fence is longer than any run of backticks inside."""
    body = visible(value).strip("\n")
    ticks = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(body)), default=0))
    return f"{ticks}{language}\n{body}\n{ticks}"


def folded(title: str, body: str) -> str:
    """Return ``body`` folded under a title, which must be escaped already."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def row(*cells: str) -> str:
    """Return a row of a table with its line end; the cells must be escaped already."""
    return f"| {' | '.join(cells)} |\n"


def plural(count: int, noun: str) -> str:
    """Return the count with the noun, ``1 test``, ``1,000 cases``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _harmless(found: re.Match[str]) -> str:
    piece = found[0]
    if len(piece) > 1:
        return f"{piece[:-1]}{_BREAK}{piece[-1]}" if piece != "://" else f":{_BREAK}//"
    return _REPLACED.get(piece, f"\\{piece}")


def _in_html(found: re.Match[str]) -> str:
    piece = found[0]
    return _harmless(found) if len(piece) > 1 or piece in _REPLACED else f"&#{ord(piece)};"


def _without_list(found: re.Match[str]) -> str:
    piece = found[0]
    return f"{piece}\\" if piece.isdigit() else f"\\{piece}"

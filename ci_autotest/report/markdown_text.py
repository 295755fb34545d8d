"""Markdown for GitHub: lines of a document, tables, code and folded parts.

It shows each character of a node as exactly that character: no HTML, link, mention, issue reference, comment marker or
reversed text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ci_autotest.report.document import LINE_LIMIT, Code, Link, Strong, Words, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ci_autotest.report.document import Line

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


def markdown(line: Line) -> str:
    """Return a line as Markdown for a paragraph, a list or a cell of a table."""
    match line:
        case str():
            return _SPECIAL.sub(_harmless, visible(line).replace("\n", " "))
        case Words(value, limit):
            return _words(value, limit)
        case Code(value, limit):
            return _code(value, limit)
        case Strong(inner):
            return f"**{markdown(inner)}**"
        case Link(inner, address):
            return f"[{markdown(inner)}]({address})"
        case _:
            return "".join(map(markdown, line))


def html(line: Line) -> str:
    """Return a line for ``<summary>``, where Markdown is not read: HTML as entities, mentions and links broken."""
    match line:
        case str():
            return _SPECIAL.sub(_in_html, visible(line).replace("\n", " "))
        case Words(value, limit) | Code(value, limit):
            return _SPECIAL.sub(_in_html, one_line(value, limit))
        case Strong(inner):
            return f"<b>{html(inner)}</b>"
        case Link(inner):
            return html(inner)
        case _:
            return "".join(map(html, line))


def row(*cells: Line) -> str:
    """Return a row of a table with its line end."""
    return f"| {' | '.join(map(markdown, cells))} |\n"


def head(*names: str, numbers: Iterable[str] = ()) -> str:
    """Return the first two lines of a table; the columns in ``numbers`` are aligned to the right."""
    right = set(numbers)
    return row(*names) + row(*("--:" if name in right else "---" for name in names))


def heading(level: int, line: Line) -> str:
    """Return a heading."""
    return f"{'#' * level} {markdown(line)}"


def anchored(name: str) -> str:
    """Return a place to which links lead; the name has only letters, digits, dashes and underscores."""
    return f'<a name="{name}"></a>'


def bullet(line: Line) -> str:
    """Return an item of a list with its line end."""
    return f"- {markdown(line)}\n"


def fence(value: str, language: str = "") -> str:
    """Return ``value`` as a code block whose fence is longer than any run of backticks inside."""
    body = visible(value).strip("\n")
    ticks = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(body)), default=0))
    return f"{ticks}{language}\n{body}\n{ticks}"


def folded(title: Line, body: str, anchor: str = "") -> str:
    """Return ``body``, which is Markdown, folded under a title, to which the links to ``anchor`` lead."""
    return f"{unfolded(title, anchor)}{body}{FOLD_END}"


#: The end of what ``unfolded`` begins.
FOLD_END: Final = "\n\n</details>"


def unfolded(title: Line, anchor: str = "") -> str:
    """Return the begin of a folded part."""
    return f"<details><summary>{anchored(anchor) if anchor else ''}{html(title)}</summary>\n\n"


def _words(value: str, limit: int = LINE_LIMIT) -> str:
    """Return ``value`` as words in a line, a list or a cell of a table."""
    escaped = _SPECIAL.sub(_harmless, one_line(value, limit))
    return _LIST_START.sub(_without_list, escaped)


def _code(value: str, limit: int = LINE_LIMIT) -> str:
    """Return ``value`` as a code span in a line, a list or a cell of a table.

    A cell ends at a pipe even inside a code span, and a span ends at a run of backticks, so a value that has either is
    shown as text.
    """
    shown = one_line(value, limit)
    if not shown or "|" in shown or "`" in shown:
        return _words(value, limit)
    return f"`{shown}`"


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

"""Break long lines of Python text so that they fit the page."""

from __future__ import annotations

import io
import token
import tokenize
from functools import lru_cache
from itertools import pairwise
from typing import Final

#: Characters of a line of code that a comment shows without scrolling.
WIDTH: Final = 96
#: Longest text that is tokenized; a longer one stays as it is.
_MOST: Final = 100_000
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


# A page is laid out again until it fits, and tokenizing is most of that time.
@lru_cache(maxsize=64)
def fitted(code: str, width: int = WIDTH) -> str:
    """Return ``code`` with long lines broken after commas inside brackets; text that is not Python stays as it is."""
    lines = code.split("\n")
    if len(code) > _MOST or all(len(line) <= width for line in lines):
        return code
    try:
        commas = _commas(code)
    except (tokenize.TokenError, SyntaxError):
        return code
    return "\n".join(
        piece
        for number, line in enumerate(lines, 1)
        for piece in (_broken(line, commas.get(number, []), width) if len(line) > width else [line])
    )


def _commas(code: str) -> dict[int, list[int]]:
    """Return the columns after commas inside brackets, by line."""
    found: dict[int, list[int]] = {}
    depth = 0
    for item in tokenize.generate_tokens(io.StringIO(code).readline):
        if item.type == token.OP:
            depth += (item.string in _OPEN) - (item.string in _CLOSE)
            if item.string == "," and depth > 0:
                found.setdefault(item.end[0], []).append(item.end[1])
    return found


def _broken(line: str, columns: list[int], width: int) -> list[str]:
    """Return the pieces of a line, each broken at the last comma that fits the width."""
    indent, end = " " * (len(line) - len(line.lstrip()) + 4), len(line.rstrip())
    pieces, start, lead = [], 0, ""
    for at, following in pairwise([*columns, end]):
        if at < end and len(lead) + following - start > width:
            pieces.append(lead + line[start:at])
            start, lead = at + (line[at] == " "), indent
    return [*pieces, lead + line[start:]]

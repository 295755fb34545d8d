"""Text for a terminal of a given width: names are cut in the middle, sentences are wrapped between words."""

from __future__ import annotations

import textwrap
from typing import Final

from rich.cells import cell_len

_ELLIPSIS: Final = "…"


def shortened(name: str, width: int) -> str:
    """Return a name in at most ``width`` cells; a longer one loses its middle, because both its ends say most."""
    if cell_len(name) <= width:
        return name
    tail = (width - 1 + 1) // 2
    head = width - 1 - tail
    start, end = name[: max(0, head)], name[len(name) - max(0, tail) :]
    # Wide characters take two cells each.
    while end and cell_len(start) + 1 + cell_len(end) > width:
        start, end = (start[:-1], end) if cell_len(start) > cell_len(end) else (start, end[1:])
    return f"{start}{_ELLIPSIS}{end}"


def wrapped(text: str, width: int | None) -> str:
    """Return text with its lines broken between words; what belongs to a line is indented two spaces further.

    Args:
        text: Any number of lines. A word that is longer than a line, such as a path, stays whole, to be copied.
        width: Width of the terminal; ``None`` leaves the lines as they are.
    """
    return text if width is None else "\n".join(_wrapped(line, width) for line in text.splitlines())


def _wrapped(line: str, width: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    lines = textwrap.wrap(
        line, max(width, 20), subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(lines)

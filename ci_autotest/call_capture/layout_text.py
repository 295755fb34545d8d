"""Calls and tuples laid out as ``ruff format`` leaves them: on one line if they fit, else an item a line.

A trailing comma keeps the second form in any line length from ``WIDTH`` on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

#: ruff's default.
WIDTH: Final = 88


@dataclass(frozen=True, slots=True)
class Bracketed:
    """Something with items in brackets.

    Args:
        opening: The text up to the bracket, with it.
        items: What is inside.
        closing: The bracket at the end.
    """

    opening: str
    items: tuple[Text, ...]
    closing: str = ")"


Text: TypeAlias = "str | Bracketed"


def call(function: str, items: Sequence[Text]) -> Bracketed:
    """Return a call."""
    return Bracketed(f"{function}(", tuple(items))


def keyword(name: str, value: Text) -> Text:
    """Return a keyword argument."""
    if isinstance(value, str):
        return f"{name}={value}"
    return Bracketed(f"{name}={value.opening}", value.items, value.closing)


def flat(text: Text) -> str:
    """Return a text on one line."""
    if isinstance(text, str):
        return text
    items = [flat(item) for item in text.items]
    comma = "," if text.opening.endswith("(") and text.closing == ")" and len(items) == 1 and _is_tuple(text) else ""
    return f"{text.opening}{', '.join(items)}{comma}{text.closing}"


def _is_tuple(text: Bracketed) -> bool:
    before = text.opening[:-1]
    return not before or before.endswith("=")


def laid_out(prefix: str, text: Text, suffix: str = "", indent: int = 4) -> list[str]:
    """Return the lines of a text between a prefix and a suffix."""
    pad = " " * indent
    line = f"{pad}{prefix}{flat(text)}{suffix}"
    if isinstance(text, str) or len(line) <= WIDTH or not text.items:
        return [line]
    inner = [part for item in text.items for part in laid_out("", item, ",", indent + 4)]
    return [f"{pad}{prefix}{text.opening}", *inner, f"{pad}{text.closing}{suffix}"]

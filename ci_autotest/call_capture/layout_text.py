"""Numbers as text, and calls and tuples as ``ruff format`` leaves them: on one line if they fit, else an item a line.

A trailing comma keeps the second form in any line length from ``WIDTH`` on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ci_autotest.values.dtypes import INTEGERS

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


# Numbers of a generated test: ranges rounded outward to three digits, and numbers as Python writes them.


def number_text(value: float) -> str:
    """Return a number as Python writes it."""
    return repr(value).replace("e+", "e") if math.isfinite(value) else f'float("{value}")'


def bounds_of(low: float, high: float, dtype: str) -> tuple[float, float]:
    """Return the range ``[low, high)`` from which elements are drawn that were seen from ``low`` to ``high``.

    Integers are exact. Floats are rounded outward to three digits, which keeps their signs and never crosses 1. A
    tensor of equal floats gets half of its element, or a half, on both sides.
    """
    if dtype in INTEGERS:
        return int(low), int(high) + 1
    if low == high:
        half = abs(low) / 2 or 0.5
        low, high = low - half, high + half
    return _rounded(low, math.floor), _rounded(high, math.ceil)


def _rounded(value: float, towards: object) -> float:
    if value == 0 or not callable(towards):
        return 0.0
    digits = 2 - math.floor(math.log10(abs(value)))
    # A power of ten outside of float64's range would divide by zero.
    if abs(digits) > 300:  # noqa: PLR2004 - float64 has powers of ten up to 308
        return value
    scaled = value * 10.0**digits
    return float(f"{towards(round(scaled, 6)) / 10.0**digits:.3g}")

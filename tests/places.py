"""Places of samples, by their text in a report."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ci_autotest.values.verdict import (
    BackwardPass,
    Call,
    Cotangent,
    Gradient,
    InFlight,
    Place,
    Result,
    State,
    Value,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# The first pattern that matches counts, so that the general ones come last.
_READ: Final[tuple[tuple[str, Callable[[re.Match[str]], Place]], ...]] = (
    (r"(?:in its )?backward pass", lambda _: BackwardPass()),
    (r"gradient put into output (\d+), which the backward pass wrote to", lambda m: Cotangent(position=int(m[1]))),
    (r"gradient of ([^.]*)(?:\.(.*))?", lambda m: Gradient(name=m[1], parameter=m[2] or "")),
    (r"names of the state after the run", lambda _: State()),
    (r"state (.*) after the run", lambda m: State(name=m[1])),
    (
        r"(value|shape|dtype|metadata|memory) of (.*?)(?:\[(\d+)\])?",
        lambda m: Value(name=m[2], aspect=m[1], element=None if m[3] is None else int(m[3])),
    ),
    (r"call of (.*)", lambda m: Call(name=m[1])),
    (r"(.*) after the run", lambda m: Value(name=m[1], aspect="end")),
    (r"in compiling (.*)", lambda m: InFlight(target=m[1], compiling=True)),
    (r"in (.*)", lambda m: InFlight(target=m[1])),
    (r"result", lambda _: Result()),
)


def place_of(text: str) -> Place | None:
    """Return the place that has a text; ``None`` for any other text."""
    found = ((re.fullmatch(pattern, text.removesuffix(", as a graph"), re.DOTALL), make) for pattern, make in _READ)
    return printable(next((make(match) for match, make in found if match is not None), None))

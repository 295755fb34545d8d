"""The calls that are equal to the mode: counted, and looked at in few of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ci_autotest.call_capture.observation import Elements, ObservedCall


class Observed:
    """The calls with one key.

    Attributes:
        count: Number of calls.
        unobserved: Number of calls that were not seen, in repeated steps of an optimizer.
        floats: Their different rows of floats.
        call: The first call as it is written down; ``None`` if it becomes no test.
        elements: What was seen of the elements of each tensor so far.
        omission: Name and reason if it becomes no test.
        next_look: Number of the call in which elements are looked at again.
    """

    __slots__ = ("call", "count", "elements", "floats", "next_look", "omission", "unobserved")

    def __init__(self, call: ObservedCall | None, elements: list[Elements], omission: tuple[str, str]) -> None:
        self.count = 1
        self.unobserved = 0
        self.next_look = 2
        self.floats: list[list[float]] = []
        self.call = call
        self.elements = elements
        self.omission = omission

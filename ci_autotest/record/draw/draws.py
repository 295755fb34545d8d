"""Draws: random words of an attempt become values, and each value is logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.record.draw.streams import SEED
from ci_autotest.values.case import FREE_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.record.draw.streams import Streams
    from ci_autotest.values.case import DrawnValue

_SITES: Final = tuple(map(str, range(64)))
_LOW: Final = FREE_SIZE[0]
_SPAN: Final = FREE_SIZE[1] - FREE_SIZE[0]
#: Ranges up to here are those of a test of small tensors; a test with a larger one has chosen its sizes.
_SMALL_RANGE: Final = 16


class Drawer:
    """Source of the values of one attempt, with their log.

    Args:
        streams: Source of the random words.
        key: Philox key of the attempt.
        edits: Values by site that replace drawn ones. Their words are consumed all the same, so that an edit changes no
            other draw.
        profile: Profile of the attempt.
    """

    __slots__ = ("_edits", "cache", "log", "next_site", "profile", "scale", "seed", "streams", "words")

    def __init__(
        self,
        streams: Streams,
        key: tuple[int, int],
        edits: Mapping[str, DrawnValue],
        profile: str = "ordinary",
    ) -> None:
        """Open the streams; the first word is the seed for the frameworks' own generators."""
        self.streams = streams
        # Tuples of `Draw`'s fields, or shorter ones for free sizes (`case.draws_of`), because they are fast to make and
        # most logs are never read.
        self.log: list[tuple[Any, ...]] = []
        self.cache: dict[int, tuple[object, object]] = {}
        self.profile = profile
        #: Factor of integers from small ranges that become sizes of a tensor; above 1 under ``large_shapes`` alone.
        self.scale = 1
        self._edits = edits
        self.next_site = 0
        self.words = streams.open(key)
        self.seed = self.words.pop() & SEED

    def site(self) -> str:
        """Return the site of a new generator: its number in the order of first use."""
        number = self.next_site
        self.next_site = number + 1
        return _SITES[number] if number < len(_SITES) else str(number)

    def integer(self, site: str, low: int, high: int, kind: str = "int") -> int:
        """Draw an integer in ``[low, high)``; an edited value is clamped to the range."""
        value = low + ((self.words or self.refill()).pop() * (high - low) >> 64)
        if self._edits and site in self._edits:
            value = min(max(int(self._edits[site] or 0), low), high - 1)
        simplest = low if low > 0 or kind == "choice" else 0 if high > 0 else high - 1
        self.log.append((site, kind, low, high, value, simplest))
        return value * self.scale if self.scale > 1 and kind == "int" and high <= _SMALL_RANGE else value

    def size(self, slot: int, dimension: int) -> int:
        """Draw a free size of a tensor, in elements: an integer in ``FREE_SIZE`` at ``<slot>.dim<dimension>``."""
        value = _LOW + ((self.words or self.refill()).pop() * _SPAN >> 64)
        if self._edits and (edited := self._edits.get(f"{slot}.dim{dimension}")) is not None:
            value = min(max(int(edited), _LOW), _LOW + _SPAN - 1)
        self.log.append((slot, dimension, value))
        return value

    def floating(self, site: str, low: float, high: float) -> float:
        """Draw a float in ``[low, high)`` with 53 random bits."""
        value = low + (self._word() >> 11) * 2.0**-53 * (high - low)
        if self._edits and site in self._edits:
            value = float(self._edits[site] or 0.0)
        self.log.append((site, "float", low, high, value, 0.0 if low <= 0 < high else low))
        return value

    def boolean(self, site: str, possibility: float = 0.5) -> bool:
        """Draw a boolean that is true with probability ``possibility``."""
        value = (self._word() >> 11) * 2.0**-53 < possibility
        if self._edits and site in self._edits:
            value = bool(self._edits[site])
        self.log.append((site, "bool", 0, 2, value, False))
        return value

    def choice(self, site: str, count: int, simplest: int = 0) -> int:
        """Draw the index of one of ``count`` alternatives; shrinking moves toward ``simplest``."""
        value = self.integer(site, 0, count, "choice")
        self.log[-1] = (*self.log[-1][:-1], simplest)
        return value

    def refill(self) -> list[int]:
        """Replace the consumed ``words`` by the next ones, and return them."""
        self.words = self.streams.more()
        return self.words

    def _word(self) -> int:
        return (self.words or self.refill()).pop()

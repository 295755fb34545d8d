"""Draws: one counter-based stream per attempt, turned into values by our own few lines, and the log of what was drawn.

The rule kept here: a value depends on the attempt's key and on its site. Scalars come from one run
of Philox words; tensor data from words keyed by their site, so that editing one draw leaves the
data of the others as they were. NumPy gives raw Philox words only: its distributions may change
between versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ci_autotest.case import DrawnValue

_WORDS: Final = 8
_SITES: Final = tuple(map(str, range(64)))
#: The last counter word tells scalar streams (0) from tensor data (the site's hash, never 0).
_DATA_BIT: Final = 1 << 40


#: Small tensors of an attempt that are drawn together, and the float32 that each may have.
_SLOTS: Final = 10
_SLOT_FLOATS: Final = 48
#: Slots from here on belong to cotangents.
COTANGENT_SLOT: Final = 7
_UNIT: Final = np.float32(2.0**-23)


def signed_floats(words: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Return two float32 of ``[-1, 1)`` for each word: ``(2 * len(words),)``.

    The upper 24 bits of each half word, signed, are all that a float32 of this range holds: the product is exact.
    """
    signed = words.view(np.int32) >> 8
    unit: NDArray[np.float32] = np.multiply(signed, _UNIT, dtype=np.float32, casting="unsafe")
    return unit


class Streams:
    """Give Philox words for a key: one bit generator, re-keyed, because a new one costs ten times as much."""

    def __init__(self) -> None:
        """Make the one bit generator."""
        self._bits = np.random.Philox(0)
        self._state: dict[str, Any] = dict(self._bits.state)
        self._counter: NDArray[np.uint64] = self._state["state"]["counter"]
        self._key: NDArray[np.uint64] = self._state["state"]["key"]
        self._state["buffer_pos"] = 4
        self._state["has_uint32"] = 0
        self._block = 0
        self._pool: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._floats: NDArray[np.float32] | None = None

    def open(self, key: tuple[int, int]) -> list[int]:
        """Begin the streams of an attempt and return its first words, 64 bits each."""
        self._key[0], self._key[1] = key
        self._seek(0, 0)
        drawn = self._bits.random_raw(_WORDS + _SLOTS * _SLOT_FLOATS // 2)
        self._block = (_WORDS + _SLOTS * _SLOT_FLOATS // 2) // 4
        self._pool = drawn[_WORDS:]
        self._floats = None
        words: list[int] = drawn[:_WORDS].tolist()
        return words

    def small(self, slot: int, count: int) -> NDArray[np.float32] | None:
        """Return ``count`` float32 of ``[-1, 1)`` that belong to ``slot`` alone, or ``None`` where they do not fit.

        Most tensors are small: the words of the first few come with the attempt's scalars, and are turned into numbers
        together. The array is shared: copy it before writing.
        """
        if slot >= _SLOTS or count > _SLOT_FLOATS:
            return None
        if self._floats is None:
            self._floats = signed_floats(self._pool)
        return self._floats[slot * _SLOT_FLOATS : slot * _SLOT_FLOATS + count]

    def more(self) -> list[int]:
        """Return the next scalar words of the attempt."""
        self._seek(self._block, 0)
        self._block += _WORDS // 4
        words: list[int] = self._bits.random_raw(_WORDS).tolist()
        return words

    def data(self, site: str, count: int) -> NDArray[np.uint64]:
        """Return ``count`` words that belong to ``site`` alone: uint64 ``(count,)``."""
        self._seek(0, crc32(site.encode()) | _DATA_BIT)
        return self._bits.random_raw(count)

    def _seek(self, block: int, last: int) -> None:
        self._counter[0] = block
        self._counter[1] = 0
        self._counter[2] = 0
        self._counter[3] = last
        self._bits.state = self._state  # type: ignore[assignment]


class Drawer:
    """Draw the values of one attempt and keep their log.

    Args:
        streams: Where words come from.
        key: The attempt's Philox key.
        edits: Values by site that replace what the stream gives; the word is used up all the same.
        profile: What the attempt is about.
    """

    __slots__ = ("_edits", "_next_site", "_words", "cache", "log", "profile", "seed", "streams")

    def __init__(
        self,
        streams: Streams,
        key: tuple[int, int],
        edits: Mapping[str, DrawnValue],
        profile: str = "ordinary",
    ) -> None:
        """Open the streams; the first word is the seed for the frameworks' own generators."""
        self.streams = streams
        # Plain tuples of `Draw`'s fields: one is made for each draw of each case, and few are ever looked at.
        self.log: list[tuple[str, str, float, float, DrawnValue, DrawnValue]] = []
        self.cache: dict[int, tuple[object, object]] = {}
        self.profile = profile
        self._edits = edits
        self._next_site = 0
        self._words = streams.open(key)
        self.seed = self._words.pop() & 0xFFFF_FFFF

    def site(self) -> str:
        """Return a new generator's site: its number in the order of first use."""
        number = self._next_site
        self._next_site = number + 1
        return _SITES[number] if number < len(_SITES) else str(number)

    def integer(self, site: str, low: int, high: int, kind: str = "int") -> int:
        """Draw an integer of ``[low, high)``; an edited value is kept within the range."""
        words = self._words
        if not words:
            words = self._words = self.streams.more()
        value = low + (words.pop() * (high - low) >> 64)
        if self._edits and site in self._edits:
            value = min(max(int(self._edits[site] or 0), low), high - 1)
        simplest = low if low > 0 or kind == "choice" else 0 if high > 0 else high - 1
        self.log.append((site, kind, low, high, value, simplest))
        return value

    def floating(self, site: str, low: float, high: float) -> float:
        """Draw a float of ``[low, high)`` with 53 bits."""
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
        """Draw the index of one of ``count`` alternatives, of which ``simplest`` is the one to shrink toward."""
        value = self.integer(site, 0, count, "choice")
        self.log[-1] = (*self.log[-1][:-1], simplest)
        return value

    def _word(self) -> int:
        if not self._words:
            self._words = self.streams.more()
        return self._words.pop()

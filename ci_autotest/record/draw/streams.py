"""Random streams: one counter-based Philox stream for each attempt.

The rule kept here: a value depends on the attempt's key and on its site. Scalars come from one run
of Philox words; tensor data from words keyed by their site, so that editing one draw leaves the
data of the others as they were. NumPy gives raw Philox words only: its distributions may change
between versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from ci_autotest.values.case import pattern_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: Words that an attempt opens with: the seed of the frameworks' own generators, and those that scalars are made from.
_WORDS: Final = 12
SCALARS: Final = _WORDS - 1
#: The last counter word tells tensor data (the site's hash, never 0) from an attempt's own block (0).
_DATA_BIT: Final = 1 << 40
#: The last counter word of the noise, its length in words (two float32 each), and what moves a further output on.
_NOISE_BIT: Final = 1 << 41
_NOISE: Final = 1 << 16
_PRIME: Final = 7919
#: Elements of the table that are kept at most, where an output needed as many: 16 MB.
_NOISE_KEPT: Final = 1 << 22
#: Third counter word of the scalars beyond the first ``_WORDS``.
_MORE: Final = 1

#: Small tensors of an attempt that are drawn together, and the float32 that each may have.
_SLOTS: Final = 10
SMALL: Final = 48
#: Slots from here on belong to cotangents.
COTANGENT_SLOT: Final = 7
#: Words of an attempt's own block: its scalars at the front, its small tensors at the end, a little room between.
_BLOCK_WORDS: Final = 256
_FIRST_FLOAT: Final = 2 * _BLOCK_WORDS - _SLOTS * SMALL
#: Counter steps of such a block: Philox gives four words a step.
_BLOCK: Final = _BLOCK_WORDS // 4
#: Bits of a key's second word that hold the attempt (``case.key_of``).
_ATTEMPT_BITS: Final = 8
#: Bits of the seed.
SEED: Final = 0xFFFF_FFFF
_UNIT: Final = np.float32(2.0**-23)


def signed_floats(words: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Return two float32 of ``[-1, 1)`` for each word, ``(2 * len(words),)``; the words are used up.

    The upper 24 bits of each half word, signed, are all that a float32 of this range holds: the product is exact.
    """
    signed = words.view(np.int32)
    np.right_shift(signed, 8, out=signed)
    unit = signed.astype(np.float32)
    return np.multiply(unit, _UNIT, out=unit)


class Fetched(NamedTuple):
    """The words of the first attempts at a run of cases, drawn together.

    Attributes:
        test: First word of their keys.
        first: Number of the first case.
        words: That each attempt opens with, used from the end.
        floats: Of their small tensors.
    """

    test: int
    first: int
    words: list[list[int]]
    floats: NDArray[np.float32]

    def base(self, row: int) -> int:
        """Return where the slots of a case begin."""
        return row * 2 * _BLOCK_WORDS + _FIRST_FLOAT


class Streams:
    """Give Philox words for a key: one bit generator, re-keyed, because a new one costs ten times as much.

    The key's first word is the test's, its second the case and the attempt. Philox is keyed by test and attempt and
    counts on from the case: the blocks of a run of cases lie side by side, and are drawn together where that is asked
    for (``prefetch``). What is drawn is the same either way.
    """

    def __init__(self, shapes: int = 0) -> None:
        """Make the one bit generator.

        Args:
            shapes: As ``case.pattern_of`` has it.
        """
        self._shapes = shapes
        self._bits = np.random.Philox(0)
        self._state: dict[str, Any] = dict(self._bits.state)
        # Written through views: setting an array's element takes three times as long.
        self._counter = memoryview(self._state["state"]["counter"])
        self._key = memoryview(self._state["state"]["key"])
        self._state["buffer_pos"] = 4
        self._state["has_uint32"] = 0
        self._at = (0, 0, 0)  # test, case and attempt that are open
        self._more = 0
        self._floats: NDArray[np.float32] = np.empty(0, np.float32)
        self._base = 0
        self._ahead = Fetched(0, 0, [], self._floats)
        self._noise: NDArray[np.float32] | None = None

    def prefetch(self, test: int, cases: Sequence[int]) -> None:
        """Draw the blocks of the first attempts at a run of cases together.

        Args:
            test: First word of their keys.
            cases: Numbers, ascending; drawn together only where they follow one another.
        """
        if not cases or cases[-1] - cases[0] != len(cases) - 1:
            return
        words = self._blocks(test, cases[0], 0, len(cases))
        opening = words.reshape(len(cases), _BLOCK_WORDS)[:, :_WORDS].tolist()
        self._ahead = Fetched(test, cases[0], opening, signed_floats(words))

    def open(self, key: tuple[int, int]) -> list[int]:
        """Begin the streams of an attempt and return its first words, 64 bits each; the list is the caller's."""
        test, second = key
        case, attempt = second >> _ATTEMPT_BITS, second & 0xFF
        self._at = test, case, attempt
        self._more = 0
        ahead = self._ahead
        row = case - ahead.first
        if test == ahead.test and not attempt and 0 <= row < len(ahead.words):
            first = ahead.words[row].copy()
            self._floats, self._base = ahead.floats, ahead.base(row)
        else:
            words = self._blocks(*self._at, 1)
            first = words[:_WORDS].tolist()
            self._floats = signed_floats(words)
            self._base = _FIRST_FLOAT
        return self._repeated(first) if self._shapes else first

    def _repeated(self, first: list[int]) -> list[int]:
        """Return the first words of the case whose sizes and choices this one repeats, with this one's seed."""
        test, case, attempt = self._at
        pattern = pattern_of(case, self._shapes)
        if pattern == case:
            return first
        return [*self._blocks(test, pattern, attempt, 1)[: _WORDS - 1].tolist(), first[-1]]

    def small(self, slot: int, count: int) -> NDArray[np.float32]:
        """Return ``count`` float32 of ``[-1, 1)``, at most ``SMALL``, that belong to ``slot`` alone.

        Most tensors are small: the words of the first few come with the attempt's scalars, and are turned into numbers
        together. The array is shared: copy it before writing.
        """
        begin = self._base + slot * SMALL
        return self._floats[begin : begin + count]

    def cotangent(self, position: int, count: int, seed: int) -> NDArray[np.float32]:
        """Return ``count`` float32 of ``[-1, 1)`` to put into output ``position``; shared, copy before writing.

        Large ones are cut from one table of noise, at a place that the attempt's seed says: outputs may be a hundred
        times as large as inputs, and a gradient is linear in what is put in.
        """
        if position < _SLOTS - COTANGENT_SLOT and count <= SMALL:
            return self.small(COTANGENT_SLOT + position, count)
        begin = (seed + position * _PRIME) % _NOISE
        return self._noise_of(begin + count)[begin : begin + count]

    def _noise_of(self, count: int) -> NDArray[np.float32]:
        """Return the table of noise, over and over, at least ``count`` long."""
        noise = self._noise
        if noise is None:
            self._seek((0, 0), (0, 0, 0, _NOISE_BIT))
            noise = self._noise = signed_floats(self._bits.random_raw(_NOISE))
        if count > len(noise):
            noise = np.resize(noise, count)
            if count <= _NOISE_KEPT:
                self._noise = noise
        return noise

    def more(self) -> list[int]:
        """Return the next scalar words of the attempt."""
        test, case, attempt = self._at
        self._seek((test, attempt), (self._more, pattern_of(case, self._shapes), _MORE, 0))
        self._more += _WORDS // 4
        words: list[int] = self._bits.random_raw(_WORDS).tolist()
        return words

    def data(self, site: str, count: int) -> NDArray[np.uint64]:
        """Return ``count`` words that belong to ``site`` alone: uint64 ``(count,)``."""
        test, case, attempt = self._at
        self._seek((test, attempt), (0, case, 0, crc32(site.encode()) | _DATA_BIT))
        return self._bits.random_raw(count)

    def _blocks(self, test: int, case: int, attempt: int, count: int) -> NDArray[np.uint64]:
        self._seek((test, attempt), (case * _BLOCK, 0, 0, 0))
        return self._bits.random_raw(count * _BLOCK_WORDS)

    def _seek(self, key: tuple[int, int], counter: tuple[int, int, int, int]) -> None:
        to, at = self._key, self._counter
        to[0], to[1] = key
        at[0], at[1], at[2], at[3] = counter
        self._bits.state = self._state  # type: ignore[assignment]

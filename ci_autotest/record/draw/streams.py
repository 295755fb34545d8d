"""Random streams: one counter-based Philox stream for each attempt.

The rule of this module: a value depends only on the attempt's key and on its site. Scalars come from consecutive
Philox words. Tensor data come from words that depend on the site, so that editing one draw does not change other data.
Only raw Philox words are taken from NumPy, because its distributions may change between versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from ci_autotest.values.case import pattern_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: Number of words at the start of an attempt: one seed for the frameworks' own generators, the rest for scalars.
_WORDS: Final = 12
SCALARS: Final = _WORDS - 1
#: Bit in the last counter word of tensor data, above the hash of the site. In the block of an attempt that word is 0.
_DATA_BIT: Final = 1 << 40
#: Bit in the last counter word of the noise table, the table's length in words (two float32 each), and the distance
#: between the noise of two outputs.
_NOISE_BIT: Final = 1 << 41
_NOISE: Final = 1 << 16
_PRIME: Final = 7919
#: Greatest number of elements of a lengthened noise table that is kept in memory: 16 MB.
_NOISE_KEPT: Final = 1 << 22
#: Third counter word of the scalars after the first ``_WORDS``.
_MORE: Final = 1

#: Number of small tensors of an attempt that are drawn together, and the greatest number of float32 in each.
_SLOTS: Final = 10
SMALL: Final = 48
#: First slot for cotangents.
COTANGENT_SLOT: Final = 7
#: Number of words in the block of an attempt: scalars at the front, small tensors at the end, some unused in between.
_BLOCK_WORDS: Final = 256
_FIRST_FLOAT: Final = 2 * _BLOCK_WORDS - _SLOTS * SMALL
#: Counter steps of a block; Philox gives four words a step.
_BLOCK: Final = _BLOCK_WORDS // 4
#: Number of bits for the attempt in a key's second word (``case.key_of``).
_ATTEMPT_BITS: Final = 8
#: Mask of the seed.
SEED: Final = 0xFFFF_FFFF
_UNIT: Final = np.float32(2.0**-23)


def signed_floats(words: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Return two float32 in ``[-1, 1)`` for each word, ``(2 * len(words),)``; the words are overwritten.

    Each float uses the upper 24 bits of a half word, as a signed number. A float32 holds 24 bits exactly, so the
    product is exact.
    """
    signed = words.view(np.int32)
    np.right_shift(signed, 8, out=signed)
    unit = signed.astype(np.float32)
    return np.multiply(unit, _UNIT, out=unit)


class Fetched(NamedTuple):
    """The words of the first attempts at consecutive cases, drawn together.

    Attributes:
        test: First word of the attempts' keys.
        first: Number of the first case.
        words: First words of each attempt, consumed from the end.
        floats: Data of their small tensors.
    """

    test: int
    first: int
    words: list[list[int]]
    floats: NDArray[np.float32]

    def base(self, row: int) -> int:
        """Return the index of a case's first slot in ``floats``."""
        return row * 2 * _BLOCK_WORDS + _FIRST_FLOAT


class Streams:
    """Philox words by key, all from one bit generator, because making a new one takes ten times as long as a new key.

    The first word of a key is the test's; the second holds the case and the attempt. Philox gets the test and the
    attempt as its key and the case as its counter. So the blocks of consecutive cases are adjacent, and ``prefetch``
    can draw them together and get the same words as one by one.
    """

    def __init__(self, shapes: int = 0) -> None:
        """Make the bit generator.

        Args:
            shapes: Number of sets of sizes and choices, as in ``case.pattern_of``.
        """
        self._shapes = shapes
        self._bits = np.random.Philox(0)
        self._state: dict[str, Any] = dict(self._bits.state)
        # Written through memory views, because setting an element of an array takes three times as long.
        self._counter = memoryview(self._state["state"]["counter"])
        self._key = memoryview(self._state["state"]["key"])
        self._state["buffer_pos"] = 4
        self._state["has_uint32"] = 0
        self._at = (0, 0, 0)  # current test, case and attempt
        self._more = 0
        self._floats: NDArray[np.float32] = np.empty(0, np.float32)
        self._base = 0
        self._ahead = Fetched(0, 0, [], self._floats)
        self._noise: NDArray[np.float32] | None = None

    def prefetch(self, test: int, cases: Sequence[int]) -> None:
        """Draw the blocks of the first attempts at several cases together, if the cases are consecutive.

        Args:
            test: First word of their keys.
            cases: Numbers of the cases, ascending.
        """
        if not cases or cases[-1] - cases[0] != len(cases) - 1:
            return
        words = self._blocks(test, cases[0], 0, len(cases))
        opening = words.reshape(len(cases), _BLOCK_WORDS)[:, :_WORDS].tolist()
        self._ahead = Fetched(test, cases[0], opening, signed_floats(words))

    def open(self, key: tuple[int, int]) -> list[int]:
        """Start the streams of an attempt and return a new list of its first words, 64 bits each."""
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

    @property
    def current(self) -> tuple[int, int, int]:
        """The test's key, the case and the number of the attempt."""
        return self._at

    def place(self) -> tuple[int, int, int]:
        """Return the test's key, the case that determines the sizes and choices, and the number of the attempt."""
        test, case, attempt = self._at
        return test, pattern_of(case, self._shapes), attempt

    def _repeated(self, first: list[int]) -> list[int]:
        """Return the first words of the case that this case repeats in sizes and choices, but with its own seed."""
        test, case, attempt = self._at
        pattern = pattern_of(case, self._shapes)
        if pattern == case:
            return first
        return [*self._blocks(test, pattern, attempt, 1)[: _WORDS - 1].tolist(), first[-1]]

    def small(self, slot: int, count: int) -> NDArray[np.float32]:
        """Return the first ``count`` float32 in ``[-1, 1)`` of ``slot``; ``count`` is at most ``SMALL``.

        Most tensors are small, so the words of the first few are drawn with the attempt's scalars and converted
        together. The array is shared: copy it before writing.
        """
        begin = self._base + slot * SMALL
        return self._floats[begin : begin + count]

    def cotangent(self, position: int, count: int, seed: int) -> NDArray[np.float32]:
        """Return ``count`` float32 in ``[-1, 1)`` as the gradient of output ``position``; copy them before writing.

        Large ones are slices of one noise table, at an offset that depends on the attempt's seed. Drawing them would be
        slow, because an output may be a hundred times as large as the inputs. Gradients are linear in these values, so
        the values need not be independent.
        """
        if position < _SLOTS - COTANGENT_SLOT and count <= SMALL:
            return self.small(COTANGENT_SLOT + position, count)
        begin = (seed + position * _PRIME) % _NOISE
        return self._noise_of(begin + count)[begin : begin + count]

    def _noise_of(self, count: int) -> NDArray[np.float32]:
        """Return the noise table, repeated until it has at least ``count`` elements."""
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
        """Return ``count`` words of ``site``: uint64 ``(count,)``."""
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

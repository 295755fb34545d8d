"""Sizes of a plain body's inputs, worked out for many cases at a time: each is made from one word of the attempt."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.case import FREE_SIZE
from ci_autotest.record.generators import Generator, Typed
from ci_autotest.record.streams import COTANGENT_SLOT, SCALARS
from ci_autotest.record.variables import RandomNumber

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ci_autotest.record.tensors import Asked


class Size(NamedTuple):
    """A drawn size: an integer of ``[low, low + span)``, in elements.

    Attributes:
        word: Which of the attempt's words it is made from.
        low: The least.
        span: How many there are.
    """

    word: int
    low: int
    span: int


class Input(NamedTuple):
    """How an input is drawn: float32, in the usual range.

    Attributes:
        slot: Its own among the attempt's small tensors.
        sizes: In elements, drawn or given.
        with_grad: Whether it asks for its gradient.
        has_free: Whether the test leaves a size open.
    """

    slot: int
    sizes: tuple[Size | int, ...]
    with_grad: bool
    has_free: bool

    def shapes(self, words: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """Return the shape of each case.

        Args:
            words: Of the attempts, in the order in which they are used, a column each.
        """
        count = len(words[0])
        columns = [
            repeat(size, count)
            if isinstance(size, int)
            else [size.low + (word * size.span >> 64) for word in words[size.word]]
            for size in self.sizes
        ]
        return list(zip(*columns, strict=True)) if columns else [()] * count


_FREE: Final = FREE_SIZE[0], FREE_SIZE[1] - FREE_SIZE[0]


class _Unsized(Exception):  # noqa: N818 - nothing is wrong
    """An input is drawn in another way."""


def sizing_of(inputs: Iterable[Asked]) -> tuple[Input, ...] | None:
    """Return how inputs are drawn, in order, where nothing else is; ``None`` where one is not drawn as such."""
    sizing = _Sizing()
    try:
        return tuple([sizing.input(asked) for asked in inputs])
    except _Unsized:
        return None


class _Sizing:
    """Count words and sites as they are used up."""

    def __init__(self) -> None:
        self._words = self._sites = 0
        self._known: dict[int, Size] = {}

    def input(self, asked: Asked) -> Input:
        ndim, dims, low, high, dtype, with_grad = asked
        slot = self._site()
        if not (
            type(ndim) is int
            and 0 <= ndim <= len(dims)
            and all(dim is None for dim in dims[ndim:])
            and low is None
            and high is None
            and dtype is float
            and type(with_grad) is bool
            and slot < COTANGENT_SLOT
        ):
            raise _Unsized
        return Input(slot, tuple(map(self._size, dims[:ndim])), with_grad, None in dims[:ndim])

    def _size(self, dim: int | Generator | None) -> Size | int:
        if dim is None:
            return self._drawn(*_FREE)
        if type(dim) is int and dim >= 0:
            return dim
        if isinstance(dim, Generator):
            return self._of(dim)
        raise _Unsized

    def _of(self, generator: Generator) -> Size:
        """Return what a generator of integers gives, the same wherever it is used."""
        found = self._known.get(id(generator))
        if found is None:
            self._site()
            if type(generator) is Typed and generator.kind is int:
                found = self._of(generator.source)
            elif type(generator) is RandomNumber and type(generator.low) is type(generator.high) is int:
                if generator.low < 0:
                    raise _Unsized
                found = self._drawn(generator.low, generator.high - generator.low)
            else:
                raise _Unsized
            self._known[id(generator)] = found
        return found

    def _drawn(self, low: int, span: int) -> Size:
        if self._words == SCALARS:
            raise _Unsized
        self._words += 1
        return Size(self._words - 1, low, span)

    def _site(self) -> int:
        self._sites += 1
        return self._sites - 1

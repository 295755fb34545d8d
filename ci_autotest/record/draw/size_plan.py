"""The plan of sizes: each free dimension of a test has a turn in which it is large, so that this is not left to chance.

The free dimensions are numbered in the order in which a body draws them, and ten ordinary cases in a row have the turns
of ten numbers. So a default run of 20 cases takes each dimension beyond 256, and 100 cases take it through all classes
of sizes. One dimension is large at a time, and the other free dimensions of its tensor are small, so that this stays
cheap. With more than ten dimensions, those of two tensors share a turn.

The rule of this module: whether a dimension has its turn depends on the test's key, the number of the case, and what
the attempt drew before it. So a case can be drawn alone, and no one needs to know how many dimensions the test has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.values.case import FREE_SIZE
from ci_autotest.values.size_classes import FreeDimension, SizeClass, SizeStanding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The profile of an attempt in which a dimension has its turn.
BOUNDARY: Final = "boundary"
#: Turns until the rotation begins again with the next class: the ordinary cases of a default run.
TURNS: Final = 10
#: The class of each round of turns. The first one is that of a default run: what goes wrong beyond 128 shows there too.
_ROUNDS: Final[tuple[SizeClass, ...]] = ("beyond_256", "near_128", "beyond_1024", "near_32", "one")
#: Planned sizes of each class: about as many as a free size has values, multiples of a tile and others.
_SIZES: Final[Mapping[SizeClass, tuple[int, ...]]] = {
    "one": (1,),
    "near_32": (31, 32, 33),
    "near_128": (127, 128, 129),
    "beyond_256": (257, 258, 260, 264, 272, 288, 320),
    "beyond_1024": (1025, 1026, 1028, 1032, 1040, 1056, 1088),
}
_ASCENDING: Final = tuple(_SIZES)
#: Least planned size that no ordinary case has.
LEAST: Final = _SIZES["near_32"][0]
#: Upper bound of a planned size, exclusive.
MOST: Final = _SIZES["beyond_1024"][-1] + 1
#: Greatest number of elements of a tensor whose size is planned: 257 rows of 2,000 elements that the test gives.
_ELEMENTS: Final = 1 << 19
#: Greatest of the other free sizes of a tensor that has a turn, in each attempt: small; as in other cases, because a
#: small one may have no room for a kernel; 1, because that broadcasts.
_LIMITS: Final = (3, FREE_SIZE[1] - 1, 1)


class SizePlan:
    """The plan of one attempt.

    Args:
        key: Key of the test.
        case: Number of the case whose sizes the attempt has.
        attempt: Number of the attempt; from the fourth on, the reference has refused the planned sizes.
        shapes: Number of sets of sizes that the cases of the test share; 0 if each has its own.
        has_turn: Whether the case has a turn.
        otherwise: Why a class that no case reaches is not reached.
    """

    __slots__ = ("_attempt", "_next", "_otherwise", "_turn", "_turns", "_wanted", "dimensions", "is_applied", "missed")

    def __init__(
        self,
        key: int = 0,
        case: int = 0,
        attempt: int = 0,
        shapes: int = 0,
        *,
        has_turn: bool = False,
        otherwise: SizeStanding = "profiles",
    ) -> None:
        """Find the turn of the case: the rotation begins at an offset that the key gives."""
        self._turns = min(shapes, TURNS) or TURNS
        number = case // 2
        self._turn = (number + key) % self._turns if has_turn else -1
        self._wanted = _ROUNDS[number // self._turns % len(_ROUNDS)]
        self._attempt = attempt
        self._otherwise = otherwise
        self._next = 0
        #: Whether a dimension had its turn.
        self.is_applied = False
        #: The free dimensions of the attempt.
        self.dimensions: list[FreeDimension] = []
        #: Classes that a dimension was to have, and why it has not.
        self.missed: dict[str, tuple[tuple[SizeClass, SizeStanding], ...]] = {}

    @property
    def is_refused(self) -> bool:
        """Whether the reference has refused the planned sizes, so that this attempt has none."""
        return self._attempt >= len(_LIMITS)

    def claim(self, free: Sequence[int]) -> int | None:
        """Return which of the next free dimensions has its turn; ``None`` if none has.

        Args:
            free: The indices of a tensor's free dimensions; one that may have more or fewer gives all that it may have.
        """
        first, self._next = self._next, self._next + len(free)
        if self._turn < 0:
            return None
        # The first one, if several numbers of one tensor share a turn.
        at = (self._turn - first) % self._turns
        return free[at] if at < len(free) else None

    def limit(self, free: int, given: int) -> int:
        """Return the greatest of the other free sizes of a tensor that has a turn; 0 if there is no limit.

        Args:
            free: Number of the tensor's free dimensions.
            given: Number of elements of its other dimensions.
        """
        if self.is_refused:
            return 0
        limit = _LIMITS[self._attempt]
        return limit if _SIZES[self._wanted][-1] * limit ** (free - 1) * given <= _ELEMENTS else 1

    def size(self, name: str, drawn: int, others: int, power: int = 1) -> int:
        """Return the size of an open dimension that has its turn.

        Args:
            name: Name of the dimension.
            drawn: The size that was drawn, which chooses among the sizes of the class.
            others: Number of elements of the tensor's other dimensions.
            power: How often the tensor has this dimension: twice if it is a square matrix.
        """
        most = int((_ELEMENTS / max(others, 1)) ** (1 / power))
        return self._chosen(name, drawn, (FREE_SIZE[0], most + 1), "element_cap")

    def within(self, name: str, low: int, high: int, drawn: int) -> int:
        """Return the size of a dimension that has its turn, if the test draws it from ``[low, high)``."""
        return self._chosen(name, drawn, (low, high), "range")

    def saw(self, name: str, size: int, low: int = FREE_SIZE[0], high: int | None = None) -> None:
        """Note a free dimension of the attempt, and the range that the test gives it."""
        self.dimensions.append(FreeDimension(name, size, low, high, self.missed.get(name, ()), self._otherwise))

    def _chosen(self, name: str, drawn: int, bounds: tuple[int, int], why: SizeStanding) -> int:
        """Return a size of the wanted class within bounds, else the greatest one of a smaller class."""
        at = _ASCENDING.index(self._wanted)
        if self.is_refused:
            self.missed[name] = ((self._wanted, "rejected"),)
            return drawn
        for smaller in reversed(_ASCENDING[: at + 1]):
            sizes = [size for size in _SIZES[smaller] if bounds[0] <= size < bounds[1]]
            if sizes:
                self.is_applied = True
                return sizes[drawn % len(sizes)] if smaller == self._wanted else sizes[-1]
            self.missed[name] = tuple((larger, why) for larger in _ASCENDING[_ASCENDING.index(smaller) :])
        return drawn

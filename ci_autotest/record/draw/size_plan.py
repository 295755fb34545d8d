"""The plan of sizes: each free dimension of a test has a turn to be large, so that large sizes are not left to chance.

The free dimensions are numbered in the order in which a body draws them. Each of ten ordinary cases in a row gives one
number its turn. So a default run of 20 cases takes each dimension beyond 256, and 100 cases take it through all classes
of sizes. Only one dimension is large at a time, and the other free dimensions of its tensor are small, so that a case
stays cheap. If a test has more than ten free dimensions, some share a turn.

The rule of this module: whether a dimension has its turn depends on the test's key, the number of the case, and the
draws before it in the attempt. So a case can be drawn without the others, and the number of dimensions of the test need
not be known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.values.case import FREE_SIZE
from ci_autotest.values.size_classes import FreeDimension, SizeClass, SizeStanding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The profile of an attempt in which a dimension has its turn.
BOUNDARY: Final = "boundary"
#: Turns until the rotation begins again with the next class: the number of ordinary cases in a default run.
TURNS: Final = 10
#: The class of each round of turns. A default run has only the first: an error beyond 128 shows beyond 256 too.
_ROUNDS: Final[tuple[SizeClass, ...]] = ("beyond_256", "near_128", "beyond_1024", "near_32", "one")
#: Planned sizes of each class: multiples of a tile and others; the larger classes have one for each free size.
_SIZES: Final[Mapping[SizeClass, tuple[int, ...]]] = {
    "one": (1,),
    "near_32": (31, 32, 33),
    "near_128": (127, 128, 129),
    "beyond_256": (257, 258, 260, 264, 272, 288, 320),
    "beyond_1024": (1025, 1026, 1028, 1032, 1040, 1056, 1088),
}
_ASCENDING: Final = tuple(_SIZES)
#: Least planned size that is greater than any free size of an ordinary case.
LEAST: Final = _SIZES["near_32"][0]
#: Upper bound of a planned size, exclusive.
MOST: Final = _SIZES["beyond_1024"][-1] + 1
#: Greatest number of elements of a tensor whose size is planned: 257 rows of 2,000 elements that the test gives.
_ELEMENTS: Final = 1 << 19
#: Greatest of the other free sizes of a tensor that has a turn, by the number of the attempt: first a small one; then
#: the usual one, because a convolution's kernel may not fit into a small size; then 1, because that broadcasts.
_LIMITS: Final = (3, FREE_SIZE[1] - 1, 1)


class SizePlan:
    """The plan of one attempt.

    Args:
        key: Key of the test.
        case: Number of the case that determines the sizes of the attempt.
        attempt: Number of the attempt, from 0; from 3 on, the reference has refused the planned sizes.
        shapes: Number of sets of sizes that the cases of the test share; 0 if each has its own.
        has_turn: True if the case has a turn.
        otherwise: The reason to report for a class of sizes that no case reaches.
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
        """Find the turn of the case; the rotation begins at an offset that depends on the key."""
        self._turns = min(shapes, TURNS) or TURNS
        number = case // 2
        self._turn = (number + key) % self._turns if has_turn else -1
        self._wanted = _ROUNDS[number // self._turns % len(_ROUNDS)]
        self._attempt = attempt
        self._otherwise = otherwise
        self._next = 0
        #: True if a dimension had its turn.
        self.is_applied = False
        #: The free dimensions of the attempt.
        self.dimensions: list[FreeDimension] = []
        #: The classes that each dimension should have had but missed, and why, by its name.
        self.missed: dict[str, tuple[tuple[SizeClass, SizeStanding], ...]] = {}

    @property
    def is_refused(self) -> bool:
        """True if the reference has refused the planned sizes, so that this attempt has none."""
        return self._attempt >= len(_LIMITS)

    def claim(self, free: Sequence[int]) -> int | None:
        """Return which of the next free dimensions has its turn; ``None`` if none has.

        Args:
            free: The indices of a tensor's free dimensions. If their number is drawn later, all possible ones.
        """
        first, self._next = self._next, self._next + len(free)
        if self._turn < 0:
            return None
        # If several dimensions of one tensor share a turn, the first one has it.
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
        """Return the size of a free dimension that has its turn.

        Args:
            name: Name of the dimension.
            drawn: The size that was drawn; it selects one of the sizes of the class.
            others: Number of elements of the tensor's other dimensions.
            power: How often the tensor has this dimension: twice if it is a square matrix.
        """
        most = int((_ELEMENTS / max(others, 1)) ** (1 / power))
        return self._chosen(name, drawn, (FREE_SIZE[0], most + 1), "element_cap")

    def within(self, name: str, low: int, high: int, drawn: int) -> int:
        """Return the size of a dimension that has its turn, if the test draws it from ``[low, high)``."""
        return self._chosen(name, drawn, (low, high), "range")

    def saw(self, name: str, size: int, low: int = FREE_SIZE[0], high: int | None = None) -> None:
        """Note a free dimension of the attempt and the range that the test gives it."""
        self.dimensions.append(FreeDimension(name, size, low, high, self.missed.get(name, ()), self._otherwise))

    def _chosen(self, name: str, drawn: int, bounds: tuple[int, int], why: SizeStanding) -> int:
        """Return a size of the wanted class within the bounds, else the greatest one of a smaller class."""
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

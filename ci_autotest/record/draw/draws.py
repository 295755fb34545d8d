"""Draws: random words of an attempt become values, and each value is logged."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.record.author_names import author_name
from ci_autotest.record.draw.covering import planned
from ci_autotest.record.draw.size_plan import BOUNDARY, MOST, SizePlan
from ci_autotest.record.draw.streams import SEED
from ci_autotest.values.case import FREE_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ci_autotest.record.draw.covering import Level
    from ci_autotest.record.draw.streams import Streams
    from ci_autotest.values.case import DrawnValue

_SITES: Final = tuple(map(str, range(64)))
_ONE: Final = (0,)
_LOW: Final = FREE_SIZE[0]
_SPAN: Final = FREE_SIZE[1] - FREE_SIZE[0]
#: Greatest upper bound of a range that may be scaled. A test with a larger range has chosen its sizes deliberately.
_SMALL_RANGE: Final = 16


class Drawer:
    """Source of the values of one attempt, with their log.

    Args:
        streams: Source of the random words.
        key: Philox key of the attempt.
        edits: Values by site or name that replace drawn ones; ``None`` to give the sites no names, which take time.
            The words of replaced draws are consumed all the same, so that an edit changes no other draw.
        profile: Profile of the attempt.
        turn: Number of the case in the walk through the profiles. It selects the layouts of ``non_contiguous``.
        point: Number of the case's point of the test's grid; after the last point, the grid begins again.
    """

    __slots__ = (
        "_depth",
        "_edits",
        "_levels",
        "_place",
        "_point",
        "_rest",
        "cache",
        "least",
        "log",
        "names",
        "next_site",
        "plan",
        "point",
        "points",
        "profile",
        "scale",
        "seed",
        "streams",
        "turn",
        "words",
    )

    def __init__(
        self,
        streams: Streams,
        key: tuple[int, int],
        edits: Mapping[str, DrawnValue] | None,
        profile: str = "ordinary",
        turn: int = 0,
        point: int = 0,
    ) -> None:
        """Open the streams; the first word is the seed for the frameworks' own generators."""
        self.streams = streams
        # Tuples of `Draw`'s fields, or shorter ones for free sizes (`case.draws_of`), because they are fast to make and
        # most logs are never read.
        self.log: list[tuple[Any, ...]] = []
        #: Each generator with its value and its site, by the id of the generator.
        self.cache: dict[int, tuple[object, object, str]] = {}
        self.profile = profile
        self.turn = turn
        #: Plan of the sizes; by default no dimension has a turn.
        self.plan = SizePlan()
        #: Least number of dimensions to draw at the moment, so that the dimension that has its turn exists.
        self.least = 0
        #: Factor of integers from small ranges that become sizes of a tensor; above 1 only under ``large_shapes``.
        self.scale = 1
        self._edits = dict(edits or {})
        #: Names of sites so far; ``None`` if sites get no names.
        self.names: set[str] | None = None if edits is None else set()
        #: Number of combinations of the grid's axes that were drawn so far.
        self.points = 1
        #: The case's values of these axes.
        self.point: list[object] = []
        self._point = point
        self.next_site = 0
        self._levels: tuple[Level, ...] = ()
        self._depth = 0
        self._rest: int | None = None
        self.words = streams.open(key)
        self._place = streams.place()
        self.seed = self.words.pop() & SEED

    def site(self) -> str:
        """Return the site of a new generator: its number in the order of first use."""
        number = self.next_site
        self.next_site = number + 1
        return _SITES[number] if number < len(_SITES) else str(number)

    def tensor_site(self) -> str:
        """Return the site of a new tensor; name it after the variable that the tensor is bound to."""
        site = self.site()
        if self.names is not None:
            self.name(site, author_name(self.names.__contains__))
        return site

    def name(self, site: str, name: str | None) -> None:
        """Name a site in the log, unless another site has the name, and apply edits by that name to it."""
        if name is None or self.names is None or name in self.names:
            return
        self.names.add(name)
        self.log.append((site, name))
        for key in [key for key in self._edits if key.partition(".")[0] == name]:
            self._edits.setdefault(site + key[len(name) :], self._edits[key])

    def integer(
        self,
        site: str,
        low: int,
        high: int,
        kind: str = "int",
        *,
        is_planned: bool = False,
        may_be_size: bool = False,
    ) -> int:
        """Draw an integer in ``[low, high)``; an edited value is clamped to the range.

        Args:
            site: Site of the draw.
            low: Lower bound.
            high: Upper bound, exclusive.
            kind: Kind of the draw.
            is_planned: True if the covering array makes this choice.
            may_be_size: True if the integer may be a size, so that the plan of sizes gives it a turn.
        """
        value = low + ((self.words or self.refill()).pop() * (high - low) >> 64)
        if is_planned and self._has_plan():
            value = low + self._planned(high - low)
        if self._edits and site in self._edits:
            value = min(max(int(self._edits[site] or 0), low), high - 1)
        elif 0 <= value < self.least and kind != "choice":
            value = min(self.least, high - 1)
        if may_be_size and self.plan.claim(_ONE) is not None and site not in self._edits:
            value = self.plan.within(site, low, high, value)
            self._note_turn()
        simplest = low if low > 0 or kind == "choice" else 0 if high > 0 else high - 1
        self.log.append((site, kind, low, high, value, simplest))
        return value * self.scale if self.scale > 1 and kind == "int" and high <= _SMALL_RANGE else value

    def size(self, slot: int, dimension: int, limit: int = 0) -> int:
        """Draw a free size of a tensor, in elements: an integer in ``FREE_SIZE`` at ``<slot>.dim<dimension>``.

        ``limit`` is the greatest size, unless it is 0 or the site is edited.
        """
        value = _LOW + ((self.words or self.refill()).pop() * _SPAN >> 64)
        if limit:
            value = (value - 1) % limit + 1
        if self._edits and (edited := self._edits.get(f"{slot}.dim{dimension}")) is not None:
            value = min(max(int(edited), _LOW), _LOW + _SPAN - 1)
        self.log.append((slot, dimension, value))
        return value

    def turn_size(self, name: str, at: int, drawn: int, others: int, power: int = 1) -> int:
        """Replace a free size by the planned one, if a planned size fits, and return it.

        Args:
            name: Site of the size.
            at: Index of the size in the log.
            drawn: The size that was drawn.
            others: Number of elements of the tensor's other dimensions.
            power: How often the tensor has this dimension.
        """
        value = self.plan.size(name, drawn, others, power)
        if not self.plan.is_applied:
            return drawn
        self._note_turn()
        if self._edits and (edited := self._edits.get(name)) is not None:
            value = min(max(int(edited), _LOW), MOST - 1)
        self.log[at] = (name, "dim", _LOW, MOST, value, _LOW)
        return value

    def _note_turn(self) -> None:
        if self.plan.is_applied:
            self.profile = BOUNDARY

    def floating(self, site: str, low: float, high: float) -> float:
        """Draw a float in ``[low, high)`` with 53 random bits."""
        value = low + (self._word() >> 11) * 2.0**-53 * (high - low)
        if self._edits and site in self._edits:
            value = float(self._edits[site] or 0.0)
        self.log.append((site, "float", low, high, value, 0.0 if low <= 0 < high else low))
        return value

    def boolean(self, site: str, possibility: float | None = None) -> bool:
        """Draw a boolean that is true with probability ``possibility``, or by plan if that is ``None``."""
        value = (self._word() >> 11) * 2.0**-53 < (0.5 if possibility is None else possibility)
        if possibility is None and (self._rest is not None or self._has_plan()):
            value = self._planned(2) == 1
        if self._edits and site in self._edits:
            value = bool(self._edits[site])
        self.log.append((site, "bool", 0, 2, value, False))
        return value

    def choice(self, site: str, count: int, simplest: int = 0, given: int | None = None) -> int:
        """Draw the index of one of ``count`` alternatives; shrinking moves toward ``simplest``.

        If ``given`` is a number, it replaces the drawn index, unless the site is edited.
        """
        value = self.integer(site, 0, count, "choice")
        if given is not None and not (self._edits and site in self._edits):
            value = given % count
        self.log[-1] = (*self.log[-1][:4], value, simplest)
        return value

    def grid_choice(self, site: str, count: int) -> int:
        """Return the index of a value of an axis of the grid; the first axis varies from case to case."""
        value = self._point // self.points % count
        self.points *= count
        if self._edits and site in self._edits:
            value = min(max(int(self._edits[site] or 0), 0), count - 1)
        self.log.append((site, "choice", 0, count, value, 0))
        return value

    @contextmanager
    def alternative(
        self, site: str, weights: tuple[int, ...], simplest: int, fitting: tuple[int, ...] = ()
    ) -> Iterator[int]:
        """Draw the index of an alternative by plan; draws inside the context belong to the alternative.

        Args:
            site: Site of the choice.
            weights: Number of planned values of each alternative: 2 for a boolean, 1 for a value that does not vary.
            simplest: Index to which shrinking moves.
            fitting: Indices to which the profile applies; another index is replaced by one of them. Empty if any fits.
        """
        index = self.choice(site, len(weights), simplest)
        if self._rest is not None or self._has_plan():
            rest = self._planned(sum(weights))
            taken = 0
            while rest >= weights[taken]:
                rest, taken = rest - weights[taken], taken + 1
            if not self._edits or site not in self._edits:
                index = taken if not fitting or taken in fitting else fitting[taken % len(fitting)]
                self.log[-1] = (*self.log[-1][:4], index, simplest)
            self._rest = rest if weights[index] > 1 else None
        self._depth += 1
        try:
            yield index
        finally:
            self._depth -= 1
            self._rest = None

    def _has_plan(self) -> bool:
        """Return true if the next choice is planned.

        Only the first attempt is planned, because the reference may refuse the planned choices. Choices inside an
        alternative are not planned, because the plan of all later choices would depend on them.
        """
        return not self._place[2] and not self._depth

    def _planned(self, count: int) -> int:
        """Return a planned number below ``count``: the rest of the alternative's number, or the case's next one."""
        if self._rest is not None:
            return self._rest % count
        before, self._levels = self._levels, (*self._levels, count)
        return planned(self._place[0], self._place[1], before, count)

    def plan_beside(self, column: tuple[int, ...]) -> None:
        """Add to the plan a choice that another rule makes; ``column`` has it for each of ``ROWS`` cases."""
        self._levels = (*self._levels, column)

    def refill(self) -> list[int]:
        """Replace the consumed ``words`` by the next ones and return them."""
        self.words = self.streams.more()
        return self.words

    def _word(self) -> int:
        return (self.words or self.refill()).pop()

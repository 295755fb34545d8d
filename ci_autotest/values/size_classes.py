"""Classes of sizes, and which of them the free dimensions of a test reached.

A free dimension is a size that a test leaves open, or draws from a range. Parts of a run are joined class by class: a
class that any part reached is reached, and of two reasons the first in ``_STRONGEST`` is kept. So the order and the
number of the parts change nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SizeClass = Literal["one", "near_32", "near_128", "beyond_256", "beyond_1024"]
#: Whether a class was reached, or why not.
SizeStanding = Literal["reached", "range", "grid", "profiles", "element_cap", "rejected", "shapes", "few_cases"]
#: Classes that each free dimension of a test reached, or why not, by the dimension's name.
ReachedSizes: TypeAlias = dict[str, dict[SizeClass, SizeStanding]]

#: The sizes of each class; the upper bound is exclusive. A size beyond 1,024 is in two classes.
CLASSES: Final[Mapping[SizeClass, tuple[int, float]]] = {
    "one": (1, 2),
    "near_32": (31, 34),
    "near_128": (127, 130),
    "beyond_256": (257, float("inf")),
    "beyond_1024": (1025, float("inf")),
}
#: What holds if parts of a run differ, from the top.
_STRONGEST: Final[tuple[SizeStanding, ...]] = (
    "reached", "range", "grid", "profiles", "element_cap", "rejected", "shapes", "few_cases",
)  # fmt: skip
_RANK: Final = {standing: rank for rank, standing in enumerate(_STRONGEST)}


class FreeDimension(NamedTuple):
    """A free dimension in one attempt.

    Attributes:
        name: Site of its draw, as ``ci-autotest draws`` shows it.
        size: Its size, in elements.
        low: Least size that the test allows.
        high: Upper bound of the sizes that the test allows, exclusive; ``None`` if there is none.
        missed: Classes that it was to have in this attempt, and why it has not.
        otherwise: Why it has not reached the other classes.
    """

    name: str
    size: int
    low: int
    high: int | None
    missed: tuple[tuple[SizeClass, SizeStanding], ...]
    otherwise: SizeStanding


@lru_cache(maxsize=4096)
def _standings(dimension: FreeDimension) -> dict[SizeClass, SizeStanding]:
    """Return how an attempt stands to each class; the dimension's name does not matter."""
    missed, high = dict(dimension.missed), float("inf") if dimension.high is None else dimension.high
    found: dict[SizeClass, SizeStanding] = {}
    for name, (least, above) in CLASSES.items():
        if least <= dimension.size < above:
            found[name] = "reached"
        elif max(least, dimension.low) >= min(above, high):
            found[name] = "range"
        else:
            found[name] = missed.get(name, dimension.otherwise)
    return found


def sizes_of(dimensions: Iterable[FreeDimension]) -> ReachedSizes:
    """Return the classes that the free dimensions of an attempt reached."""
    return {dimension.name: _standings(dimension._replace(name="")) for dimension in dimensions}


def joined_sizes(parts: Iterable[ReachedSizes]) -> ReachedSizes:
    """Return the classes that the parts of a test reached together, by the names of the dimensions in order."""
    found: ReachedSizes = {}
    for part in parts:
        for name, standings in part.items():
            known = found.get(name)
            found[name] = standings if known is None or known == standings else _joined(known, standings)
    return dict(sorted(found.items(), key=_order))


def _joined(one: dict[SizeClass, SizeStanding], other: dict[SizeClass, SizeStanding]) -> dict[SizeClass, SizeStanding]:
    found = one | other
    for name in one.keys() & other.keys():
        found[name] = min(one[name], other[name], key=_RANK.__getitem__)
    return found


def _order(item: tuple[str, object]) -> tuple[object, ...]:
    """Order names by their numbers: ``2.dim0`` before ``10.dim0``."""
    return tuple((len(part) if part.isdecimal() else 0, part) for part in item[0].split("."))

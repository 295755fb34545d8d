"""Cases, attempts and draws: the names from which the inputs of a test's body can be generated again.

The inputs of a case depend on (root seed, test, case, attempt) and on nothing else; ``key_of`` alone decides that.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ci_autotest.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Attempts at one case before it counts as rejected.
ATTEMPTS_PER_CASE: Final = 20
#: Most points of the grid of a test.
GRID_AT_MOST: Final = 1_000_000
#: Bounds of a size that a test leaves open, exclusive above. Source: OneFlow's AutoTest 0.9.0.
FREE_SIZE: Final = (1, 8)

#: Number of fields of a name, and of an open size, in the log of draws.
_NAME: Final = 2
_SIZE: Final = 3

DrawnValue: TypeAlias = bool | int | float | str | None


class Draw(NamedTuple):
    """One random choice.

    Attributes:
        site: Place in the attempt, ``<generator>.<field>``; it does not change if another draw is edited.
        kind: ``int``, ``float``, ``bool``, ``dim`` (a tensor's open size) or ``choice`` (the index of an alternative).
        low: Lower bound, inclusive.
        high: Upper bound, exclusive for integers and choices.
        value: The chosen value.
        simplest: Value toward which the shrinker moves it.
        name: What the test calls it, such as ``weight.dim0``; empty if its names were not asked for, or it has none.
    """

    site: str
    kind: str
    low: float
    high: float
    value: DrawnValue
    simplest: DrawnValue = 0
    name: str = ""

    @property
    def label(self) -> str:
        """The name, else the site."""
        return self.name or self.site


def draws_of(log: Sequence[tuple[Any, ...]]) -> list[Draw]:
    """Return the draws of a log.

    In it, ``(slot, dimension, size)`` is a tensor's open size, and ``(site, name)`` the name of a tensor or generator.
    """
    names: dict[str, str] = dict(entry for entry in log if len(entry) == _NAME)
    draws = [Draw(*entry) if len(entry) > _SIZE else _size(*entry) for entry in log if len(entry) >= _SIZE]
    if not names:
        return draws
    owners = [draw.site.partition(".") for draw in draws]
    return [
        draw._replace(name=f"{names[owner]}{dot}{field}") if owner in names else draw
        for draw, (owner, dot, field) in zip(draws, owners, strict=True)
    ]


def made_by_name(draws: Sequence[Draw]) -> dict[str, Draw]:
    """Return draws by site and by name, both of which an edit may have."""
    return {key: draw for draw in draws for key in (draw.site, draw.label)}


def _size(slot: int, dimension: int, size: int) -> Draw:
    return Draw(f"{slot}.dim{dimension}", "dim", *FREE_SIZE, size, FREE_SIZE[0])


def root_seed(asked: int | str, environ: Mapping[str, str]) -> int:
    """Return the root seed: a number as it is, a random number, or a hash of the commit.

    Raises:
        ConfigError: The seed is ``commit`` and GITHUB_SHA is not set.
    """
    if isinstance(asked, int):
        return asked
    # From the system, because Python's own generator may have been seeded.
    if asked == "random":
        return int.from_bytes(os.urandom(4), "little")
    sha = environ.get("GITHUB_SHA", "")
    if not sha:
        message = "seed is 'commit', but GITHUB_SHA is not set. Set it to the commit's hash, or give --seed a number."
        raise ConfigError(message)
    # A variable may hold bytes that are no UTF-8, which a plain `encode` refuses.
    return int.from_bytes(blake2b(sha.encode(errors="backslashreplace"), digest_size=4).digest(), "little")


def test_key(seed: int, test: str) -> int:
    """Return 64 bits that distinguish a test's streams from those of every other test."""
    # Separated by a NUL, which is in no path and in no name of Python, so that no two pairs give one text.
    digest = blake2b(f"{seed}\0{test}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def key_of(test: int, case: int, attempt: int) -> tuple[int, int]:
    """Return the Philox key of an attempt, given ``test_key``: two words of 64 bits."""
    # Eight bits are more than a case has attempts.
    return test, (case << 8) | attempt


def pattern_of(case: int, shapes: int) -> int:
    """Return the ordinary case whose sizes and choices a case repeats with new data; the case itself without sharing.

    If a number of shapes has no factor in common with the ten turns of profiles, as 3 has, each profile meets all
    shapes.

    Args:
        case: Number of the case.
        shapes: Number of sets of sizes and choices that the cases of a test share; 0 if each has its own.
    """
    return 2 * (case // 2 % shapes) if shapes else case

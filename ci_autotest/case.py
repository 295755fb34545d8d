"""Cases, attempts and draws: the names from which everything that a test body saw can be made again.

The inputs of a case depend on (root seed, test, case, attempt) and on nothing else. ``key_of`` is
the one place where that is decided.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

#: Attempts that one case may take before it counts as rejected.
ATTEMPTS_PER_CASE: Final = 20
#: Cases of a window after the first; see ``window_of``.
WINDOW: Final = 10

DrawnValue: TypeAlias = bool | int | float | str | None


class Draw(NamedTuple):
    """Say what one random choice was.

    Attributes:
        site: Where in the attempt, ``<generator>.<field>``; the same after another draw was edited.
        kind: ``int``, ``float``, ``bool`` or ``choice`` (the index of an alternative).
        low: Least value, inclusive.
        high: Upper bound, exclusive for integers and choices.
        value: What was chosen.
        simplest: What the shrinker moves it toward.
    """

    site: str
    kind: str
    low: float
    high: float
    value: DrawnValue
    simplest: DrawnValue = 0


def test_key(seed: int, test: str) -> int:
    """Return the 64 bits that tell a test's streams from every other test's."""
    digest = blake2b(f"{seed}\0{test}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def key_of(test: int, case: int, attempt: int) -> tuple[int, int]:
    """Return the Philox key of an attempt, given ``test_key``: two words of 64 bits."""
    return test, (case << 8) | attempt


def window_of(case: int) -> int:
    """Return the number of the window that a case is in: 0 for case 0, 1 for 1 to 9, 2 for 10 to 19.

    A window is never split between shards or workers.
    """
    return 0 if case == 0 else case // WINDOW + 1

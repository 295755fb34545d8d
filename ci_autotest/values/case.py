"""Cases, attempts and draws: the names from which everything that a test body saw can be made again.

The inputs of a case depend on (root seed, test, case, attempt) and on nothing else. ``key_of`` is
the one place where that is decided.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ci_autotest.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Attempts that one case may take before it counts as rejected.
ATTEMPTS_PER_CASE: Final = 20
#: Cases of a window after the first; see ``window_of``.
WINDOW: Final = 10

#: Bounds of a tensor's free sizes, exclusive above; source: OneFlow's AutoTest 0.9.0.
FREE_SIZE: Final = (1, 8)

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


def draws_of(log: Sequence[tuple[Any, ...]]) -> list[Draw]:
    """Return the draws of a log; a tensor's free size stands in it as ``(slot, dimension, size)``."""
    return [Draw(*entry) if len(entry) == len(Draw._fields) else _size(*entry) for entry in log]


def _size(slot: int, dimension: int, size: int) -> Draw:
    return Draw(f"{slot}.dim{dimension}", "dim", *FREE_SIZE, size, FREE_SIZE[0])


def root_seed(asked: int | str, environ: Mapping[str, str]) -> int:
    """Return the root seed: a number as it is, ``random`` drawn, ``commit`` from the commit's hash.

    Raises:
        ConfigError: ``commit`` is asked for and no commit is known.
    """
    if isinstance(asked, int):
        return asked
    if asked == "random":
        return int.from_bytes(os.urandom(4), "little")
    sha = environ.get("GITHUB_SHA", "")
    if not sha:
        message = "seed is 'commit', but GITHUB_SHA is not set. Set it to the commit's hash, or give --seed a number."
        raise ConfigError(message)
    return int.from_bytes(blake2b(sha.encode(errors="backslashreplace"), digest_size=4).digest(), "little")


def test_key(seed: int, test: str) -> int:
    """Return the 64 bits that tell a test's streams from every other test's."""
    digest = blake2b(f"{seed}\0{test}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def key_of(test: int, case: int, attempt: int) -> tuple[int, int]:
    """Return the Philox key of an attempt, given ``test_key``: two words of 64 bits."""
    return test, (case << 8) | attempt


def pattern_of(case: int, shapes: int) -> int:
    """Return the ordinary case whose sizes and choices a case repeats, with data of its own; itself where none is.

    An odd number of shapes lets each profile, of which there are eight, meet all of them.

    Args:
        case: Its number.
        shapes: Sets of sizes and choices that a test's cases share, ``0``: each has its own.
    """
    return 2 * (case // 2 % shapes) if shapes else case


def window_of(case: int) -> int:
    """Return the number of the window that a case is in: 0 for case 0, 1 for 1 to 9, 2 for 10 to 19.

    A window is never split between shards or workers.
    """
    return 0 if case == 0 else case // WINDOW + 1


def is_late(case: int) -> bool:
    """Whether a case is in the second half of its window: it is probed whatever its inputs are."""
    return case % WINDOW >= WINDOW // 2


def has_series(case: int) -> bool:
    """Whether the probe of a case is a series of calls instead of a sequence: in every other window."""
    return window_of(case) % 2 == 0

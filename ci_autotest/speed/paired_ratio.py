"""The ratio of paired times, with an interval that assumes nothing about how a loaded machine disturbs them.

Each pair holds the best times of both sides within a few milliseconds, and the order within a pair is random. For equal
code the ratio of a pair is then as likely above 1 as below it, whatever else the machine does. So the interval is the
one that belongs to the sign test: two order statistics of the ratios.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Final

from ci_autotest.values.speed import Ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.values.speed import SpeedVerdict

#: Probability that the interval misses the median.
ERROR: Final = 0.001
#: Fewest pairs for which such an interval exists: 2 * 0.5 ** 11 is below the error.
FEWEST: Final = 11
#: Ratios up to this are never called slower: memory, caches and the order of code make equal code differ that much.
SLIGHT: Final = 1.03
#: Ratios that lie wholly within this factor are the same for every purpose.
ALIKE: Final = 1.1
#: Seconds of a call that are never called slower: a function of Python around a kernel takes about as long.
SLIGHT_S: Final = 1e-6


@lru_cache(maxsize=64)
def rank(count: int) -> int:
    """Return how many ratios lie outside of the interval at each end; -1 if there are too few for an interval."""
    total, tail = 2**count, 0
    for outside in range(count // 2):
        tail += math.comb(count, outside)
        if 2 * tail > ERROR * total:
            return outside - 1
    return count // 2 - 1


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> Ratio | None:
    """Return the ratio of pairs ``(candidate, reference)`` in seconds; ``None`` if there are too few of them.

    Source:
        The interval of the sign test: W. J. Conover, Practical Nonparametric Statistics, section 3.2.
    """
    ratios = sorted(candidate / reference for candidate, reference in pairs)
    outside = rank(len(ratios))
    if outside < 0:
        return None
    low, high = ratios[outside], ratios[len(ratios) - 1 - outside]
    return Ratio(low=low, median=median(ratios), high=high, pairs=len(ratios))


def speed_verdict(ratio: Ratio | None, reference_s: float) -> SpeedVerdict:
    """Return what one measurement says; ``reference_s`` are the seconds of the reference's call."""
    if ratio is None:
        return "cannot_tell"
    if ratio.low > SLIGHT and (ratio.low - 1) * reference_s > SLIGHT_S:
        return "slower"
    if ratio.high < 1 / SLIGHT and (1 - ratio.high) * reference_s > SLIGHT_S:
        return "faster"
    return "same" if ratio.low >= 1 / ALIKE and ratio.high <= ALIKE else "cannot_tell"

"""The ratio of paired times, with an interval that assumes nothing about how a loaded machine disturbs them.

Each pair holds the best times of both sides within a few milliseconds, and the order within a pair is random. For equal
code the ratio of a pair is then as likely above 1 as below it, whatever else the machine does. So the interval is the
one that belongs to the sign test: two order statistics of the ratios. What several measurements say together is here,
too.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.values.speed import Ratio, SpeedResult

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


# What several measurements of one call say together: a difference counts only if every fresh process shows it.


#: Measurements, each in a process of its own, that must show a difference, and how many are made at most for that. The
#: addresses of code and data differ between processes, which alone may make equal code a few per cent slower in one.
NEEDED: Final = 3
MOST: Final = 5
#: Verdicts about which a measurement has to be repeated.
DIFFERING: Final = frozenset({"slower", "faster", "misaligned", "crashed"})


def is_to_repeat(measurements: Sequence[Sequence[SpeedResult]]) -> bool:
    """Whether something is still to be shown by another process, and none has denied it."""
    return any(_is_open(item, seen, len(measurements)) for item, seen in _seen(measurements))


def _is_open(item: SpeedResult, seen: Sequence[SpeedResult], count: int) -> bool:
    if item.verdict not in DIFFERING:  # Like the reference, but slower than in the baseline.
        return count < NEEDED and all(other.change == "slower" for other in seen)
    # A measurement that cannot tell is no denial: on a loaded machine some of them cannot.
    is_denied = any(other.verdict not in {item.verdict, "cannot_tell"} for other in seen)
    return count < MOST and _agreeing(item, seen) < NEEDED and not is_denied


def combined(measurements: Sequence[Sequence[SpeedResult]]) -> tuple[SpeedResult, ...]:
    """Return the results of the first measurement as the others leave them."""
    return tuple(_combined(item, seen) for item, seen in _seen(measurements))


def _seen(measurements: Sequence[Sequence[SpeedResult]]) -> list[tuple[SpeedResult, list[SpeedResult]]]:
    """Return each result of the first measurement with those of all measurements about the same call."""
    return [
        (item, [other for results in measurements for other in results if other.key == item.key])
        for item in measurements[0]
    ]


def _agreeing(item: SpeedResult, seen: Sequence[SpeedResult]) -> int:
    return sum(other.verdict == item.verdict for other in seen)


def _combined(item: SpeedResult, seen: Sequence[SpeedResult]) -> SpeedResult:
    if item.verdict not in DIFFERING:
        return _with_ratio(item, seen)
    if _agreeing(item, seen) >= NEEDED:
        return _with_ratio(item, [other for other in seen if other.verdict == item.verdict])
    shown = ", ".join(other.verdict.replace("_", " ") for other in seen)
    verdict: SpeedVerdict = "cannot_tell" if item.ratio is not None else "not_timed"
    doubted = msgspec.structs.replace(item, verdict=verdict, reason=f"fresh processes disagree: {shown}", kind=None)
    return _with_ratio(doubted, seen)


def _with_ratio(item: SpeedResult, seen: Sequence[SpeedResult]) -> SpeedResult:
    """Return a result with the interval that holds those of several measurements."""
    ratios = [other.ratio for other in seen if other.ratio is not None]
    if not ratios:
        return item
    hull = Ratio(
        low=min(ratio.low for ratio in ratios), median=median(ratio.median for ratio in ratios),
        high=max(ratio.high for ratio in ratios), pairs=sum(ratio.pairs for ratio in ratios),
    )  # fmt: skip
    return msgspec.structs.replace(item, ratio=hull)

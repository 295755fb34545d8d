"""What several measurements of one call say together: a difference counts only if every fresh process shows it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.values.speed import Ratio, SpeedResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.values.speed import SpeedVerdict

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

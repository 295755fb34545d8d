"""The sizes that a run's free dimensions reached, in a sentence: a fault beyond 128 shows only in what is larger."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ci_autotest.values.amounts import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.values.result import RunResult
    from ci_autotest.values.size_classes import ReachedSizes, SizeClass, SizeStanding

_CLASSES: Final[Mapping[SizeClass, str]] = {
    "one": "1", "near_32": "near 32", "near_128": "near 128", "beyond_256": "beyond 256", "beyond_1024": "beyond 1,024",
}  # fmt: skip
#: Why a class was not reached.
WHY_NOT_REACHED: Final[Mapping[SizeStanding, str]] = {
    "range": "the tests draw from ranges without it", "grid": "a grid says the sizes",
    "profiles": "the tests' profiles leave it out", "element_cap": "it would be too many elements",
    "rejected": "the reference rejected it", "shapes": "raise `shapes`", "few_cases": "raise `--cases`",
}  # fmt: skip


def size_sentence(result: RunResult) -> str:
    """Return how many free dimensions reached each class of sizes, and why none did; empty without dimensions."""
    by_test: dict[str, ReachedSizes] = {item.test: item.sizes for item in result.results if item.sizes}
    dimensions = [standings for sizes in by_test.values() for standings in sizes.values()]
    if not dimensions:
        return ""
    reached, missed = [], dict[str, list[str]]()
    for name, words in _CLASSES.items():
        standings = Counter(each[name] for each in dimensions if name in each)
        if count := standings.pop("reached", 0):
            reached.append(f"{words} in {count:,}")
        elif standings:
            missed.setdefault(WHY_NOT_REACHED[standings.most_common(1)[0][0]], []).append(words)
    parts = [", ".join(reached), *(f"none is {', '.join(names)} ({why})" for why, names in missed.items())]
    return f"sizes of {plural(len(dimensions), 'free dimension')}: {'; '.join(filter(None, parts))}"

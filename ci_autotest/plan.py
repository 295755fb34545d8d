"""The plan: which cases of which tests this process runs, and in which order. What a case draws does not depend on it.

A test's cases are cut into *windows*: case 0, cases 1 to 9, then tens. A window is never split between
shards or workers, so that what is decided within it, such as leaving the rest alone after
too many crashes, is the same however the run is spread.
"""

from __future__ import annotations

import heapq
import re
from hashlib import blake2b
from itertools import chain, groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.case import WINDOW, window_of
from ci_autotest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: Seconds that a task should take: enough to amortise a message, few enough that workers end together.
TASK_S: Final = 0.4
#: Cases of one task at most.
TASK_CASES: Final = 500
#: Where the rounds after the first two end; the last two numbers give the ratio for what follows.
_ROUNDS: Final = (1, 10, 50, 100)
_SHARD: Final = re.compile(r"(\d+)/(\d+)")


class Share(NamedTuple):
    """Say how many cases a test has in the whole run, and which of them are this shard's, in order."""

    test: int
    total: int
    cases: Sequence[int]


def shard_of(text: str) -> tuple[int, int]:
    """Return ``(K, N)`` of ``K/N``.

    Raises:
        UsageError: It is not that, or K is not from 1 to N.
    """
    match = _SHARD.fullmatch(text.strip())
    if not match or int(match[2]) < 1:
        message = f"shard '{text}' is not K/N. Write 1/4 for the first of four."
        raise UsageError(message)
    index, count = int(match[1]), int(match[2])
    if not 1 <= index <= count:
        hint = f"Use {count}/{count} or lower." if index > count else f"Use 1/{count} or higher."
        message = f"shard '{text}' names shard {index} of {count}: the index runs from 1 to the count. {hint}"
        raise UsageError(message)
    return index, count


def windows(total: int) -> Iterator[range]:
    """Yield the windows of a test of ``total`` cases, in order."""
    if total:
        yield range(1)
    for start in chain((1,) if total > 1 else (), range(WINDOW, total, WINDOW)):
        yield range(start, min(start - start % WINDOW + WINDOW, total))


def shares(counts: Sequence[int], shard: tuple[int, int], case_s: Sequence[float] = ()) -> list[Share]:
    """Return each test's cases of a shard: windows, longest first, each to the shard that has least to do so far.

    The union over all shards is the unsharded run, case for case. Equal arguments give equal shards
    on every machine.

    Args:
        counts: Cases by test, in order.
        shard: ``(K, N)``, from 1.
        case_s: Seconds of one case by test; none: all the same.
    """
    index, count = shard
    if count == 1:
        return [Share(test, total, range(total)) for test, total in enumerate(counts)]
    own = assigned(counts, count, case_s)[index - 1]
    return [Share(test, total, tuple(chain(*own.get(test, ())))) for test, total in enumerate(counts)]


def assigned(counts: Sequence[int], count: int, case_s: Sequence[float] = ()) -> list[dict[int, list[range]]]:
    """Return, for each of ``count`` shards, its windows by test."""
    cost = case_s or [1.0] * len(counts)
    pieces = [
        (-len(window) * cost[test], window.start, test, window)
        for test, total in enumerate(counts)
        for window in windows(total)
    ]
    pieces.sort(key=lambda piece: piece[:3])
    loads = [(0.0, 0, shard) for shard in range(count)]
    parts: list[dict[int, list[range]]] = [{} for _ in range(count)]
    for weight, _, test, window in pieces:
        load, held, shard = heapq.heappop(loads)
        parts[shard].setdefault(test, []).append(window)
        # Seconds first; cases settle it between shards whose seconds say nothing yet.
        heapq.heappush(loads, (load - weight, held + len(window), shard))
    for part in parts:
        for own in part.values():
            own.sort(key=lambda window: window.start)
    return parts


def digest(tests: Sequence[tuple[str, int]], case_s: Sequence[float]) -> str:
    """Return what tells one plan from another: shards of one run have it in common."""
    told = "\n".join(f"{test}\0{count}\0{cost!r}" for (test, count), cost in zip(tests, case_s, strict=True))
    return blake2b(told.encode(), digest_size=8).hexdigest()


def costs(tests: Sequence[str], known: Mapping[str, float]) -> list[float]:
    """Return seconds of one case by test, as learned, to the nearest power of two; the median where nothing is known.

    Rounded, so that shards whose databases differ by noise are still shards of one plan.
    """
    learned = sorted(_rounded(known[test]) for test in tests if test in known)
    usual = learned[len(learned) // 2] if learned else 1.0
    return [_rounded(known[test]) if test in known else usual for test in tests]


def _rounded(seconds: float) -> float:
    power = 2.0**-14
    while power < seconds and power < 1 << 20:
        power *= 2
    return power


def order(shared: Sequence[Share], case_s: Callable[[int], float]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield ``(test, cases)``: breadth first, the longest test first within a round.

    Every test runs once before any runs ten times. ``case_s`` is asked as late as can be: it learns
    while the run goes on.

    Args:
        shared: What this shard runs.
        case_s: Returns the seconds of one case of a test, as far as they are known.
    """
    low = high = 0
    longest = max((share.cases[-1] + 1 for share in shared if share.cases), default=0)
    for number in range(longest + len(_ROUNDS)):
        low, high = high, _ROUNDS[number] if number < len(_ROUNDS) else 2 * high
        if low >= longest:
            return
        for share in sorted(shared, key=lambda item: -case_s(item.test)):
            cases = _between(share.cases, low, high)
            for task in _tasks(cases, case_s(share.test)):
                yield share.test, task


def _between(cases: Sequence[int], low: int, high: int) -> Sequence[int]:
    if isinstance(cases, range):
        return cases[low:high]
    return [case for case in cases if low <= case < high]


def _tasks(cases: Sequence[int], case_s: float) -> Iterator[list[int]]:
    """Yield whole windows, as many together as a task should take."""
    room = max(1, min(TASK_CASES, int(TASK_S / max(case_s, 1e-6))))
    task: list[int] = []
    for _, window in groupby(cases, key=window_of):
        own = list(window)
        if task and len(task) + len(own) > room:
            yield task
            task = []
        task += own
    if task:
        yield task

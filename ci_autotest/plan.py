"""The plan: which cases of which tests this process runs, and in which order. It has no influence on what a case draws.

A test's cases are divided into *windows*: case 0, cases 1 to 9, then ten at a time. A window is never split between
shards or workers. So decisions within a window, for example to skip the rest after too many crashes, do not depend on
how the run is distributed.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.errors import UsageError
from ci_autotest.values.schedule import WINDOW, window_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

#: Seconds that a task should take: long enough to amortise its message, short enough that workers finish together.
TASK_S: Final = 0.4
#: Greatest number of cases in a task.
TASK_CASES: Final = 500
#: The case at which each of the first rounds ends; later rounds double.
_ROUNDS: Final = (1, 10, 50, 100)
SHARDS_AT_MOST: Final = 10_000
_SHARD: Final = re.compile(r"(\d+)/(\d+)")


class Share(NamedTuple):
    """How many cases a test has in the whole run, and which of them this shard runs, in order."""

    test: int
    total: int
    cases: range | ShardCases


class ShardCases(Sequence[int]):
    """The cases of some windows of a test, in order, without a list of them: a test may have a billion cases.

    Args:
        total: Number of the test's cases in the whole run.
        first: Whether windows 0 and 1 are included.
        start: The first of the other windows.
        step: Distance in windows from each of those to the next.
    """

    __slots__ = ("_few", "_rest", "_total")

    def __init__(self, total: int, first: tuple[bool, bool], start: int, step: int) -> None:
        self._total = total
        self._few = [
            case
            for window, is_own in zip(windows(min(total, WINDOW)), first, strict=False)
            if is_own
            for case in window
        ]
        self._rest = range(start * WINDOW, total, step * WINDOW)

    def __len__(self) -> int:
        if not self._rest:
            return len(self._few)
        return len(self._few) + WINDOW * (len(self._rest) - 1) + min(WINDOW, self._total - self._rest[-1])

    def __getitem__(self, index: Any) -> Any:
        position = index if index >= 0 else len(self) + index
        if not 0 <= position < len(self):
            raise IndexError(index)
        if position < len(self._few):
            return self._few[position]
        window, within = divmod(position - len(self._few), WINDOW)
        return self._rest[window] + within

    def between(self, low: int, high: int) -> Iterator[int]:
        """Yield the cases in ``[low, high)``."""
        yield from (case for case in self._few if low <= case < high)
        first = bisect_left(self._rest, low - WINDOW + 1)
        for start in self._rest[first : bisect_left(self._rest, high)]:
            yield from range(max(start, low), min(start + WINDOW, high, self._total))


def shard_of(text: str) -> tuple[int, int]:
    """Return ``(K, N)`` for ``K/N``.

    Raises:
        UsageError: The text has another form, or K is not from 1 to N.
    """
    match = _SHARD.fullmatch(text.strip())
    if not match or int(match[2]) < 1:
        message = f"shard '{text[:80]}' is not K/N. Write 1/4 for the first of four."
        raise UsageError(message)
    index, count = int(match[1]), int(match[2])
    if count > SHARDS_AT_MOST:
        message = f"shard '{text[:80]}': {str(count)[:30]} shards are too many. Give at most {SHARDS_AT_MOST:,}."
        raise UsageError(message)
    if not 1 <= index <= count:
        hint = f"Use {count}/{count} or lower." if index > count else f"Use 1/{count} or higher."
        message = f"shard '{text}' names shard {index} of {count}: the index runs from 1 to the count. {hint}"
        raise UsageError(message)
    return index, count


def windows(total: int) -> Iterator[range]:
    """Yield the windows of a test with ``total`` cases, in order."""
    if total:
        yield range(1)
    for start in chain((1,) if total > 1 else (), range(WINDOW, total, WINDOW)):
        yield range(start, min(start - start % WINDOW + WINDOW, total))


def shares(counts: Sequence[int], shard: tuple[int, int], case_s: Sequence[float] = ()) -> list[Share]:
    """Return each test's cases in a shard.

    Windows of ten cases are dealt to the shards in turn, longest tests first, so that a start and a step describe them.
    The first two windows of each test, of one and of nine cases, then go, longest first, to the shard with the least
    work. Together the shards run exactly the cases of the unsharded run. Equal arguments give equal shards on every
    machine.

    Args:
        counts: Number of cases by test, in order.
        shard: ``(K, N)``, where K starts at 1.
        case_s: Seconds of one case by test; empty if all take equally long.
    """
    index, count = shard
    if count == 1:
        return [Share(test, total, range(total)) for test, total in enumerate(counts)]
    cost = case_s or [1.0] * len(counts)
    starts, loads = _dealt(counts, count, cost)
    heapq.heapify(loads)
    few: dict[tuple[int, int], int] = {}
    firsts = [
        (-len(cases) * cost[test], window, test)
        for test, total in enumerate(counts)
        for window, cases in enumerate(windows(min(total, WINDOW)))
    ]
    for weight, window, test in sorted(firsts):
        load, held, own_shard = heapq.heappop(loads)
        few[test, window] = own_shard
        # Shards with equal seconds, for example none at all so far, are ordered by their number of windows.
        heapq.heappush(loads, (load - weight, held + 1, own_shard))
    own = index - 1
    return [
        Share(
            test,
            total,
            ShardCases(
                total,
                (few.get((test, 0)) == own, few.get((test, 1)) == own),
                1 + (own - starts[test]) % count,
                count,
            ),
        )
        for test, total in enumerate(counts)
    ]


def _dealt(
    counts: Sequence[int], count: int, cost: Sequence[float]
) -> tuple[dict[int, int], list[tuple[float, int, int]]]:
    """Return the shard of each test's first window of ten, and ``(seconds, windows, shard)`` of each shard's load."""
    starts: dict[int, int] = {}
    seconds, held = [0.0] * count, [0] * count
    dealt = 0
    for test in sorted(range(len(counts)), key=lambda test: (-cost[test], test)):
        starts[test] = dealt % count
        found = max(0, -(-counts[test] // WINDOW) - 1)
        for position in range(found % count):  # full rounds add the same to every shard
            shard = (dealt + position) % count
            seconds[shard] += WINDOW * cost[test]
            held[shard] += 1
        dealt += found
    return starts, [(seconds[shard], held[shard], shard) for shard in range(count)]


def digest(tests: Sequence[tuple[str, int]], case_s: Sequence[float]) -> str:
    """Return a fingerprint of the plan: all shards of a run must have the same."""
    text = "dealt\n" + "\n".join(
        f"{test}\0{count}\0{cost!r}" for (test, count), cost in zip(tests, case_s, strict=True)
    )
    return blake2b(text.encode(), digest_size=8).hexdigest()


def costs(tests: Sequence[str], known: Mapping[str, float]) -> list[float]:
    """Return the seconds of one case by test, as measured in earlier runs, rounded up to a power of two.

    A test without a measurement gets the median. Without rounding, shards whose measurements differ by noise would not
    belong to the same plan.
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

    Every test runs once before any test runs ten times. ``case_s`` is called as late as possible, because its answers
    get better during the run.

    Args:
        shared: The cases that this shard runs.
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


def _between(cases: range | ShardCases, low: int, high: int) -> Iterable[int]:
    return cases[low:high] if isinstance(cases, range) else cases.between(low, high)


def _tasks(cases: Iterable[int], case_s: float) -> Iterator[list[int]]:
    """Yield tasks: whole windows, as many as fit into ``TASK_S``."""
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

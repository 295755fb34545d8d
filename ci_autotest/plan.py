"""The plan: which cases of which tests this process runs, in blocks. What a case draws does not depend on it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Cases of one block: enough to amortise a message, few enough that workers end together.
BLOCK: Final = 50
_SHARD: Final = re.compile(r"(\d+)/(\d+)")


class Share(NamedTuple):
    """Say how many cases a test has in this run, and which of them are this shard's."""

    test: int
    total: int
    cases: tuple[int, ...]


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


def shares(counts: Sequence[int], shard: tuple[int, int]) -> list[Share]:
    """Return each test's cases of a shard: case ``k`` of test ``t`` belongs to shard ``(t + k) mod N``.

    The union over all shards is the unsharded run, case for case; adding a test moves no case of
    another within its test.

    Args:
        counts: Cases by test, in order.
        shard: ``(K, N)``, from 1.
    """
    index, count = shard
    return [
        Share(test, total, tuple(case for case in range(total) if (test + case) % count == index - 1))
        for test, total in enumerate(counts)
    ]


def blocks(shared: Sequence[Share], size: int = BLOCK) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield ``(test, cases)``, breadth first: every test's first block comes before any test's second."""
    longest = max((len(share.cases) for share in shared), default=0)
    for start in range(0, longest, size):
        for share in shared:
            cases = share.cases[start : start + size]
            if cases:
                yield share.test, cases

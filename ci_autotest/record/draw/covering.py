"""Covering arrays: the choices of a test's cases are planned so that each pair of alternatives meets within 20 cases.

The rule of this module: a choice depends on the test's key, the number of the case, and the choices before it in the
same case, never on another case. So a case can be drawn without the others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias

Level: TypeAlias = int | tuple[int, ...]

#: Number of cases within which pairs are covered: the default of ``cases``.
ROWS: Final = 20
#: Ordinary cases come first, because a choice that is made only together with a boundary may show nothing.
_ORDER: Final = (*range(0, ROWS, 2), *range(1, ROWS, 2))
#: Odd number whose multiples are spread over 64 bits (Knuth's multiplicative hashing).
_SPREAD: Final = 0x9E37_79B9_7F4A_7C15
_WORD: Final = (1 << 64) - 1


def planned(test: int, case: int, levels: tuple[Level, ...], count: int) -> int:
    """Return the planned choice of a case among ``count`` alternatives.

    Args:
        test: Key of the test. Another key gives other choices in the same case, but the same pairs over all cases.
        case: Number of the case.
        levels: The choices of the case so far: the number of alternatives of each, or the choice of each row if another
            rule makes it.
        count: Number of alternatives of this choice.
    """
    block, row = divmod(case, ROWS)
    turn = ((test ^ (block << 8 | (len(levels) + 1))) * _SPREAD & _WORD) >> 40
    return (_column((*levels, count))[row] + turn) % count


@lru_cache(maxsize=4096)
def _column(levels: tuple[Level, ...]) -> tuple[int, ...]:
    """Return the choices of all rows, by growing a covering array by one column (Lei and Tai's horizontal growth)."""
    count = levels[-1]
    if isinstance(count, tuple):
        return count
    before = [_column(levels[: at + 1]) for at in range(len(levels) - 1)]
    covered: set[tuple[int, int, int]] = set()
    used = [0] * count
    chosen = [0] * ROWS
    for row in _ORDER:
        # Take the alternative with the most new pairs. Ties go to the one chosen least, then to the next one in turn.
        best = max(
            range(count),
            key=lambda level: (
                sum((at, column[row], level) not in covered for at, column in enumerate(before)),
                -used[level],
                -((level - row) % count),
            ),
        )
        covered.update((at, column[row], best) for at, column in enumerate(before))
        used[best] += 1
        chosen[row] = best
    return tuple(chosen)

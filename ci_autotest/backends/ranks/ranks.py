"""What the ranks of a group did that one process does not do, as errors, and its words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.errors import error_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

#: What a group does that has one result on all ranks.
ALL_AGREE: Final = "all ranks do the same"


class RankError(Exception):
    """The ranks of a group are not as one process.

    Args:
        seen: What they did, in words.
        expected: What they should have done.
        detail: One more line; empty for none.
    """

    is_call = True

    def __init__(self, seen: str, expected: str, detail: str = "") -> None:
        self.seen, self.expected, self.detail = seen, expected, detail
        super().__init__(f"{seen}: {detail}" if detail else seen)


class OneRankError(RankError):
    """An operator raised on some ranks and went on, on the others.

    Args:
        raised: The error of each rank that raised.
        ranks: Number of ranks.
    """

    def __init__(self, raised: Mapping[int, Exception], ranks: int) -> None:
        error = next(iter(raised.values()))
        rest = [rank for rank in range(ranks) if rank not in raised]
        seen = f"{numbered(raised)} raised {type(error).__name__}, {numbered(rest)} went on"
        super().__init__(seen, ALL_AGREE, f"{type(error).__name__}: {error_text(error)}")


class PartError(RankError):
    """A rank holds a part of another shape than the placement says, so that the whole cannot be gathered."""

    is_call = False


def numbered(ranks: Collection[int]) -> str:
    """Return the numbers of ranks in words: ``rank 3``, ``ranks 0, 1 and 2``."""
    numbers = [str(rank) for rank in sorted(ranks)]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return f"ranks {', '.join(numbers[:-1])} and {numbers[-1]}"


def other_bits(ranks: Collection[int], others: Collection[int]) -> str:
    """Return in words that some ranks hold other elements than the others."""
    verb = "holds" if len(ranks) == 1 else "hold"
    return f"{numbered(ranks)} {verb} other bits than {numbered(others)}"

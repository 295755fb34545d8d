"""Delegation: which calls of a body a compiler ran itself, and which PyTorch ran in its place.

A compiler may take a part of a graph only and leave the rest to PyTorch. Of that rest, PyTorch is compared with itself.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from ci_autotest.values.verdict import Struct

#: How much of a case its candidate ran: every call, some, none, or nobody knows.
DelegatedPart: TypeAlias = Literal["wholly", "in_part", "nothing", "unknown"]


class Delegation(NamedTuple):
    """Which steps of one run the candidate ran, by index; steps that compute nothing are in neither set.

    Attributes:
        own: Steps that the candidate ran.
        left: Steps that PyTorch ran, wholly or in part. Both hold every step if only their number is known.
        notes: What the run tells beside that, for example that a part fell back without a word.
        is_known: Whether it could be seen.
    """

    own: frozenset[int] = frozenset()
    left: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    is_known: bool = True

    @property
    def part(self) -> DelegatedPart:
        """How much the candidate ran."""
        if not self.is_known:
            return "unknown"
        if not self.left:
            return "wholly"
        return "in_part" if self.own else "nothing"


class DelegationCounts(Struct, frozen=True, kw_only=True):
    """The compared cases of a test by how much of them its candidate ran; zeros if that is not asked of it.

    Attributes:
        wholly: Every call.
        in_part: Some calls; PyTorch ran the others.
        nothing: No call. Such a case is unsupported, unless it differs.
        unknown: It could not be seen.
    """

    wholly: int = 0
    in_part: int = 0
    nothing: int = 0
    unknown: int = 0

    def __add__(self, other: DelegationCounts) -> DelegationCounts:
        return DelegationCounts(**{name: getattr(self, name) + getattr(other, name) for name in _PARTS})


_PARTS: Final = DelegationCounts.__struct_fields__

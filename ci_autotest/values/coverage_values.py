"""Coverage as values: how far each operator was exercised, and how many of torch's operators were."""

from __future__ import annotations

from typing import Final

import msgspec

from ci_autotest.values.verdict import Struct


class Exercised(Struct, frozen=True, kw_only=True):
    """How far one operator was exercised.

    Attributes:
        cases: Number of accepted cases whose program calls it; for a candidate, those that were compared on it.
        aligned: Number of those that were aligned.
        arguments: Torch's names of the arguments that were passed.
        dtypes: Dtypes of its tensor arguments, or of its results if it had none.
        delegated: Of a compiler: number of the compared cases in which it ran every call of the operator itself;
            ``None`` if that is not known, and for a candidate that runs all that it is given.
        placements: On a group of ranks: how its tensor arguments lay in the compared cases, ``Shard(0); Replicate``.
    """

    cases: int = 0
    aligned: int = 0
    arguments: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    placements: tuple[str, ...] = ()
    delegated: int | None = None

    def __add__(self, other: Exercised) -> Exercised:
        arguments, dtypes = {*self.arguments, *other.arguments}, {*self.dtypes, *other.dtypes}
        placements = sorted({*self.placements, *other.placements})[:PLACEMENTS_LISTED]
        # Sorted before the cut, so that the same names stay whatever the order of the cases is.
        return Exercised(
            cases=self.cases + other.cases, aligned=self.aligned + other.aligned,
            arguments=tuple(sorted(arguments)[:NAMES_LISTED]), dtypes=tuple(sorted(dtypes)[:NAMES_LISTED]),
            placements=tuple(placements), delegated=_sum(self.delegated, other.delegated),
        )  # fmt: skip


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one + other


#: Operators that a report lists at most, so that a worker that invents names cannot fill it.
OPERATORS_LISTED: Final = 6_000
#: Most names of arguments and of dtypes per operator, for the same reason.
NAMES_LISTED: Final = 64
#: Most placements per operator, for the same reason.
PLACEMENTS_LISTED: Final = 1024


class OperatorCoverage(Struct, frozen=True, kw_only=True):
    """How far an operator was exercised on the reference and on each candidate.

    Attributes:
        operator: Canonical operator.
        family: Family of a public operator of torch; empty for any other operator.
        recorded: Calls on the reference.
        candidates: Compared calls, by candidate.
    """

    operator: str
    family: str = ""
    recorded: Exercised
    candidates: dict[str, Exercised] = msgspec.field(default_factory=dict)


class CoverageCounts(Struct, frozen=True, kw_only=True):
    """Number of operators.

    Attributes:
        public: Torch's public operators.
        tested: Public operators that a case calls.
        supported: Tested operators that were compared on the candidate, or that have a finding.
        aligned: Supported operators with an aligned case and without a finding.
        misaligned: Tested operators with a finding that counts against the candidate.
        reference_off: Tested operators whose findings are the reference's fault, or known differences.
        known: Tested operators whose findings are known differences.
    """

    public: int = 0
    tested: int = 0
    supported: int = 0
    aligned: int = 0
    misaligned: int = 0
    reference_off: int = 0
    known: int = 0


class CandidateCoverage(Struct, frozen=True, kw_only=True):
    """Counts of torch's public operators on a candidate.

    Attributes:
        candidate: Name of the candidate.
        counts: All operators.
        families: Operators by family.
        own: Operators of the user's; ``public`` is their number.
        pairs: On a group of ranks: number of (operator, placements of its arguments) that were compared.
        overloads: Overloads of PyTorch's dispatcher; ``public`` is the number that concerns a backend.
    """

    candidate: str
    counts: CoverageCounts
    families: dict[str, CoverageCounts] = msgspec.field(default_factory=dict)
    own: CoverageCounts = CoverageCounts()
    pairs: int = 0
    overloads: CoverageCounts = CoverageCounts()

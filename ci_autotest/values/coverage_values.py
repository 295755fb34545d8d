"""How far operators were exercised, and how many of torch's were: what coverage is made of."""

from __future__ import annotations

from typing import Final

import msgspec

from ci_autotest.values.verdict import Struct


class Exercised(Struct, frozen=True, kw_only=True):
    """Say how far one operator was exercised.

    Attributes:
        cases: Accepted cases whose program calls it; on a candidate those of them that were compared there.
        aligned: Those of them that were aligned.
        arguments: Torch's names of the arguments that were given in them.
        dtypes: Of the tensors that it was given in them, or of its results where it was given none.
    """

    cases: int = 0
    aligned: int = 0
    arguments: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()


#: Names of arguments, and of dtypes, that are told of an operator: a worker that makes names up cannot fill a report.
NAMES_LISTED: Final = 64


def joined(one: Exercised, other: Exercised) -> Exercised:
    """Return how far an operator was exercised in two sets of cases."""
    arguments, dtypes = {*one.arguments, *other.arguments}, {*one.dtypes, *other.dtypes}
    return Exercised(
        cases=one.cases + other.cases, aligned=one.aligned + other.aligned,
        arguments=tuple(sorted(arguments)[:NAMES_LISTED]), dtypes=tuple(sorted(dtypes)[:NAMES_LISTED]),
    )  # fmt: skip


class OperatorCoverage(Struct, frozen=True, kw_only=True):
    """Say how far an operator was exercised: ``recorded`` on the reference, then by candidate that compared it.

    Attributes:
        family: Of torch's public operators; empty for an operator that is none of them.
    """

    operator: str
    family: str = ""
    recorded: Exercised
    candidates: dict[str, Exercised] = msgspec.field(default_factory=dict)


class CoverageCounts(Struct, frozen=True, kw_only=True):
    """Count operators.

    Attributes:
        public: Torch's public operators.
        tested: Those of them that a case calls.
        supported: Those of them that were compared on the candidate in a case, or that a finding names.
        aligned: Those of them that have an aligned case, and no finding.
        misaligned: Those of them that a finding names that is no leniency and not flaky.
    """

    public: int = 0
    tested: int = 0
    supported: int = 0
    aligned: int = 0
    misaligned: int = 0


class CandidateCoverage(Struct, frozen=True, kw_only=True):
    """Count torch's public operators on a candidate, in all and by family."""

    candidate: str
    counts: CoverageCounts
    families: dict[str, CoverageCounts] = msgspec.field(default_factory=dict)

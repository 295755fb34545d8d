"""Coverage: which of torch's public operators a run tested on each candidate, in total and by family.

``operators.json`` lists the public operators and those that the shipped suite calls; ``backends/public_operators.py``
makes it. A candidate supports an operator if a case that calls the operator was compared on it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.values.coverage_values import CandidateCoverage, CoverageCounts, Exercised, OperatorCoverage, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import RunResult

#: Operators that a report lists at most, so that a worker that invents names cannot fill it.
OPERATORS_LISTED: Final = 2_000
_UNCOUNTED: Final = frozenset({"leniency"})


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operators by family.

    Attributes:
        torch: Version of PyTorch that they come from.
        public: All public operators.
        suite: Operators that the shipped suite calls.
    """

    torch: str
    public: dict[str, tuple[str, ...]]
    suite: dict[str, tuple[str, ...]]


def catalogue() -> Catalogue:
    """Return the catalogue that ships with the package."""
    data = files("ci_autotest.report").joinpath("operators.json").read_bytes()
    return msgspec.json.decode(data, type=Catalogue)


def covered(
    recorded: Mapping[str, Exercised], compared: Mapping[str, Mapping[str, Exercised]]
) -> tuple[OperatorCoverage, ...]:
    """Return the exercised operators, sorted by name.

    Args:
        recorded: On the reference, by operator.
        compared: By candidate and operator.
    """
    family_of = {operator: family for family, own in catalogue().public.items() for operator in own}
    return tuple(
        OperatorCoverage(
            operator=operator,
            family=family_of.get(operator, ""),
            recorded=recorded[operator],
            candidates={name: found[operator] for name, found in sorted(compared.items()) if operator in found},
        )
        for operator in sorted(recorded)[:OPERATORS_LISTED]
    )


def counted(
    operators: Iterable[OperatorCoverage], findings: Sequence[Finding], candidates: Iterable[str]
) -> tuple[CandidateCoverage, ...]:
    """Return the counts by candidate; empty if no operator was exercised."""
    own = {item.operator: item for item in operators}
    public = catalogue().public
    if not own:
        return ()
    found = []
    for name in candidates:
        misaligned = {
            item.operator
            for item in findings
            if item.candidate == name and item.outcome != "flaky" and item.kind not in _UNCOUNTED
        }
        families = {family: _counts(known, own, name, misaligned) for family, known in public.items()}
        counts = CoverageCounts(
            **{
                field: sum(getattr(each, field) for each in families.values())
                for field in CoverageCounts.__struct_fields__
            }
        )
        tested = {family: each for family, each in sorted(families.items()) if each.tested}
        found.append(CandidateCoverage(candidate=name, counts=counts, families=tested))
    return tuple(found)


def _counts(
    known: Sequence[str], own: Mapping[str, OperatorCoverage], name: str, misaligned: set[str]
) -> CoverageCounts:
    tested = [operator for operator in known if operator in own or operator in misaligned]
    compared = {operator for operator in tested if operator in own and own[operator].candidates.get(name)}
    aligned = {
        operator for operator in compared if own[operator].candidates[name].aligned and operator not in misaligned
    }
    return CoverageCounts(
        public=len(known), tested=len(tested), supported=len(compared | misaligned.intersection(tested)),
        aligned=len(aligned), misaligned=len(misaligned.intersection(tested)),
    )  # fmt: skip


def merged(parts: Iterable[RunResult]) -> tuple[OperatorCoverage, ...]:
    """Return the operators that all shards of one run exercised."""
    recorded: dict[str, Exercised] = {}
    compared: dict[str, dict[str, Exercised]] = {}
    for part in parts:
        for item in part.operators:
            add(recorded, item.operator, item.recorded)
            for name, found in item.candidates.items():
                add(compared.setdefault(name, {}), item.operator, found)
    return covered(recorded, compared)


def add(counts: dict[str, Exercised], operator: str, found: Exercised) -> None:
    """Add ``found`` to the counts of an operator."""
    before = counts.get(operator)
    if before is not None or len(counts) < OPERATORS_LISTED:
        counts[operator] = joined(before or Exercised(), found)


def sentence(coverage: CandidateCoverage) -> str:
    """Return a candidate's coverage in one sentence."""
    counts = coverage.counts
    return (
        f"coverage of {coverage.candidate}: {counts.supported:,} of {counts.tested:,} tested operators are supported, "
        f"{counts.aligned:,} aligned, {counts.misaligned:,} misaligned; torch has {counts.public:,} public operators"
    )

"""Coverage: which of torch's public operators a run tested on each candidate, in total and by family.

``operators.json`` lists the public operators and those that the shipped suite calls; ``backends/public_operators.py``
makes it. A candidate supports an operator if a case that calls the operator was compared on it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from ci_autotest.program.targets import is_own
from ci_autotest.report.markdown_text import plural
from ci_autotest.values.coverage_values import CandidateCoverage, CoverageCounts, Exercised, OperatorCoverage, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import RunResult

#: Operators that a report lists at most, so that a worker that invents names cannot fill it.
OPERATORS_LISTED: Final = 2_000
_UNCOUNTED: Final = frozenset({"leniency"})

#: Why the shipped suite leaves an operator out: PyTorch is about to remove it, or may still change it; the result is
#: computed from random numbers; what is unique about the result is tested elsewhere.
LeftOut = Literal["deprecated", "beta", "random", "not_unique"]


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operators by family.

    Attributes:
        torch: Version of PyTorch that they come from.
        public: All public operators.
        suite: Operators that the shipped suite calls.
        left_out: Public operators that it does not call, and why.
    """

    torch: str
    public: dict[str, tuple[str, ...]]
    suite: dict[str, tuple[str, ...]]
    left_out: dict[str, LeftOut]


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
        differing = [
            item
            for item in findings
            if item.candidate == name and item.outcome != "flaky" and item.kind not in _UNCOUNTED
        ]
        misaligned = {item.operator for item in differing if item.known is None}
        known = {item.operator for item in differing} - misaligned
        families = {family: _counts(listed, own, name, (misaligned, known)) for family, listed in public.items()}
        counts = CoverageCounts(
            **{
                field: sum(getattr(each, field) for each in families.values())
                for field in CoverageCounts.__struct_fields__
            }
        )
        yours = sorted(filter(is_own, own.keys() | misaligned | known))
        tested = {family: each for family, each in sorted(families.items()) if each.tested}
        own_counts = _counts(yours, own, name, (misaligned, known))
        pairs = sum(len(each.candidates[name].placements) for each in own.values() if name in each.candidates)
        found.append(CandidateCoverage(candidate=name, counts=counts, families=tested, own=own_counts, pairs=pairs))
    return tuple(found)


def _counts(
    listed: Sequence[str], own: Mapping[str, OperatorCoverage], name: str, differing: tuple[set[str], set[str]]
) -> CoverageCounts:
    """Count the operators of a family; ``differing`` has the misaligned ones, and those with known differences."""
    found = set().union(*differing)
    tested = [operator for operator in listed if operator in own or operator in found]
    compared = {operator for operator in tested if operator in own and own[operator].candidates.get(name)}
    aligned = {operator for operator in compared - found if own[operator].candidates[name].aligned}
    misaligned, known = (len(operators.intersection(tested)) for operators in differing)
    return CoverageCounts(
        public=len(listed), tested=len(tested), supported=len(compared | found.intersection(tested)),
        aligned=len(aligned), misaligned=misaligned, known=known,
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
        f"{counts.aligned:,} aligned, {counts.misaligned:,} misaligned{known_of(counts)}; "
        f"torch has {counts.public:,} public operators{_own_sentence(coverage.own)}"
        + (f"; compared: {plural(coverage.pairs, 'pair')} of operator and placements" if coverage.pairs else "")
    )


def _own_sentence(counts: CoverageCounts) -> str:
    if not counts.tested:
        return ""
    return (
        f"; of your own, {counts.supported:,} of {counts.tested:,} are supported, {counts.aligned:,} aligned, "
        f"{counts.misaligned:,} misaligned{known_of(counts)}"
    )


def known_of(counts: CoverageCounts) -> str:
    """Return the number of operators with known differences as the end of a list; empty if there is none."""
    if not counts.known:
        return ""
    return f", {counts.known:,} with {'a known difference' if counts.known == 1 else 'known differences'}"

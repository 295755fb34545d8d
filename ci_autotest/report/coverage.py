"""Coverage: which of torch's public operators a run tested on each candidate, in total and by family; and which sizes.

``operators.json`` lists the public operators and those that the shipped suite calls; ``backends/public_operators.py``
makes it. A candidate supports an operator if a case that calls the operator was compared on it. Overloads of PyTorch's
dispatcher are counted beside them if a program names them: ``overloads.json`` lists those that concern a backend.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from ci_autotest.program.targets import DISPATCHER, OPS, is_overload, is_own
from ci_autotest.values.amounts import plural
from ci_autotest.values.coverage_values import CandidateCoverage, CoverageCounts, OperatorCoverage
from ci_autotest.values.finding import counts_against

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ci_autotest.values.coverage_values import Exercised
    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import RunResult
    from ci_autotest.values.size_classes import ReachedSizes, SizeClass, SizeStanding
    from ci_autotest.values.tally import UsageTally

_UNCOUNTED: Final = frozenset({"leniency"})
#: Family of the overloads of PyTorch's dispatcher.
_OVERLOADS: Final = "dispatcher"

#: Why the shipped suite leaves an operator out: PyTorch is about to remove it, or may still change it; the result is
#: computed from random numbers; what is unique about the result is tested elsewhere.
LeftOut = Literal["deprecated", "beta", "random", "not_unique"]


#: Why no test calls an overload: only another device or library has its kernel; its tensors are nested, which no
#: program can hold; it changes the state of autograd or of function transforms; it accesses files or replaces the
#: memory of a tensor; what it gives cannot be compared; it needs an object of C++, such as packed weights; it needs
#: arguments that nobody has written a sample of.
LeftOutOverload = Literal["device", "nested", "transform", "memory", "no_result", "object", "no_sample"]
_CLASSES: Final[Mapping[SizeClass, str]] = {
    "one": "1", "near_32": "near 32", "near_128": "near 128", "beyond_256": "beyond 256", "beyond_1024": "beyond 1,024",
}  # fmt: skip
#: Why a class was not reached.
WHY_NOT_REACHED: Final[Mapping[SizeStanding, str]] = {
    "range": "the tests draw from ranges without it", "grid": "a grid says the sizes",
    "profiles": "the tests' profiles leave it out", "element_cap": "it would be too many elements",
    "rejected": "the reference rejected it", "shapes": "raise `shapes`", "few_cases": "raise `--cases`",
}  # fmt: skip


class DispatcherCatalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Overloads of PyTorch's dispatcher that take or return a tensor, by what became of them.

    Attributes:
        torch: Version of PyTorch that they come from.
        tested: Those that ``builtin:overloads`` tests.
        left_out: Those that it does not test, by reason.
    """

    torch: str
    tested: tuple[str, ...]
    left_out: dict[LeftOutOverload, tuple[str, ...]]

    @property
    def all(self) -> tuple[str, ...]:
        """Every overload."""
        return (*self.tested, *(name for own in self.left_out.values() for name in own))


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


@cache
def overloads() -> DispatcherCatalogue:
    """Return the overloads that the package knows."""
    data = files("ci_autotest.report").joinpath("overloads.json").read_bytes()
    return msgspec.json.decode(data, type=DispatcherCatalogue)


def covered(usage: Mapping[str, UsageTally]) -> tuple[OperatorCoverage, ...]:
    """Return the exercised operators, sorted by name.

    Args:
        usage: What each candidate used; the empty name stands for what was recorded.
    """
    family_of = {operator: family for family, own in catalogue().public.items() for operator in own}
    compared = {name: used.exercised for name, used in sorted(usage.items()) if name}
    return tuple(
        OperatorCoverage(
            operator=operator,
            family=family_of.get(operator, _OVERLOADS if is_overload(operator) else ""),
            recorded=recorded,
            candidates={name: found[operator] for name, found in compared.items() if operator in found},
        )
        for operator, recorded in sorted(usage[""].exercised.items())
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
        sets = _sets([(item.operator, item) for item in differing])
        families = {family: _counts(listed, own, name, sets) for family, listed in public.items()}
        counts = CoverageCounts(
            **{
                field: sum(getattr(each, field) for each in families.values())
                for field in CoverageCounts.__struct_fields__
            }
        )
        yours = sorted(one for one in own.keys() | set().union(*sets) if is_own(one) and not _is_dispatchers(one))
        tested = {family: each for family, each in sorted(families.items()) if each.tested}
        own_counts = _counts(yours, own, name, sets)
        pairs = sum(len(each.candidates[name].placements) for each in own.values() if name in each.candidates)
        found.append(
            CandidateCoverage(
                candidate=name, counts=counts, families=tested, own=own_counts, pairs=pairs,
                overloads=_overload_counts(own, name, differing),
            )
        )  # fmt: skip
    return tuple(found)


def _sets(differing: Sequence[tuple[str, Finding]]) -> tuple[set[str], set[str], set[str]]:
    """Return the misaligned operators, those of which the reference is off, and those with known differences."""
    misaligned = {name for name, item in differing if item.known is None and counts_against(item)}
    off = {name for name, item in differing if item.known is None and item.blame == "reference"} - misaligned
    return misaligned, off, {name for name, item in differing if item.known is not None} - misaligned - off


def _is_dispatchers(operator: str) -> bool:
    return operator.startswith(DISPATCHER)


def _overload_counts(own: Mapping[str, OperatorCoverage], name: str, differing: Sequence[Finding]) -> CoverageCounts:
    """Count the overloads that a program named; none if no program did."""
    sets = _sets([(item.target, item) for item in differing if is_overload(item.target)])
    if not any(map(is_overload, own.keys() | set().union(*sets))):
        return CoverageCounts()
    return _counts([f"{OPS}{one}" for one in overloads().all], own, name, sets)


def _counts(
    listed: Sequence[str], own: Mapping[str, OperatorCoverage], name: str, differing: tuple[set[str], ...]
) -> CoverageCounts:
    """Count the operators of a family; ``differing`` is what ``_sets`` returns."""
    found = set().union(*differing)
    tested = [operator for operator in listed if operator in own or operator in found]
    compared = {operator for operator in tested if operator in own and is_run(own[operator].candidates.get(name))}
    aligned = {operator for operator in compared - found if own[operator].candidates[name].aligned}
    misaligned, off, known = (len(operators.intersection(tested)) for operators in differing)
    return CoverageCounts(
        public=len(listed), tested=len(tested), supported=len(compared | found.intersection(tested)),
        aligned=len(aligned), misaligned=misaligned, reference_off=off, known=known,
    )  # fmt: skip


def is_run(found: Exercised | None) -> bool:
    """Whether a candidate ran an operator itself in a compared case."""
    return found is not None and found.delegated != 0


def sentence(coverage: CandidateCoverage) -> str:
    """Return a candidate's coverage in one sentence."""
    counts = coverage.counts
    return (
        f"coverage of {coverage.candidate}: {counts.supported:,} of {counts.tested:,} tested operators are supported, "
        f"{counts.aligned:,} aligned, {counts.misaligned:,} misaligned{known_of(counts)}; "
        f"torch has {counts.public:,} public operators{_own_sentence(coverage.own)}"
        + _overload_sentence(coverage.overloads)
        + (f"; compared: {plural(coverage.pairs, 'pair')} of operator and placements" if coverage.pairs else "")
    )


def _overload_sentence(counts: CoverageCounts) -> str:
    if not counts.tested:
        return ""
    return (
        f"; of {counts.public:,} overloads of its dispatcher, {counts.tested:,} are tested, {counts.supported:,} "
        f"supported, {counts.aligned:,} aligned, {counts.misaligned:,} misaligned{known_of(counts)}"
    )


def _own_sentence(counts: CoverageCounts) -> str:
    if not counts.tested:
        return ""
    return (
        f"; of your own, {counts.supported:,} of {counts.tested:,} are supported, {counts.aligned:,} aligned, "
        f"{counts.misaligned:,} misaligned{known_of(counts)}"
    )


def known_of(counts: CoverageCounts) -> str:
    """Return the end of a list: operators of which the reference is off, and those with known differences."""
    off = f", {counts.reference_off:,} where the reference is off" if counts.reference_off else ""
    if not counts.known:
        return off
    return f"{off}, {counts.known:,} with {'a known difference' if counts.known == 1 else 'known differences'}"


def size_sentence(result: RunResult) -> str:
    """Return how many free dimensions reached each class of sizes, and why none did; empty without dimensions."""
    by_test: dict[str, ReachedSizes] = {item.test: item.sizes for item in result.results if item.sizes}
    dimensions = [standings for sizes in by_test.values() for standings in sizes.values()]
    if not dimensions:
        return ""
    reached, missed = [], dict[str, list[str]]()
    for name, words in _CLASSES.items():
        standings = Counter(each[name] for each in dimensions if name in each)
        if count := standings.pop("reached", 0):
            reached.append(f"{words} in {count:,}")
        elif standings:
            missed.setdefault(WHY_NOT_REACHED[standings.most_common(1)[0][0]], []).append(words)
    parts = [", ".join(reached), *(f"none is {', '.join(names)} ({why})" for why, names in missed.items())]
    return f"sizes of {plural(len(dimensions), 'free dimension')}: {'; '.join(filter(None, parts))}"

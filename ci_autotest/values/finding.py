"""A finding and what belongs to it: where its test is defined, the cases that hit it, its other programs.

A finding is identified by (candidate, operator, kind) and by nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ci_autotest.values.verdict import Blame, Difference, Kind, Outcome, StepError, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable


class Location(Struct, frozen=True, kw_only=True):
    """Say where a test is defined: a file with ``/``, relative to the configuration's folder, and a line from 1."""

    file: str
    line: int


#: Cases of one test that a hit tells by number.
HITS_LISTED: Final = 100


class Hit(Struct, frozen=True, kw_only=True):
    """Say which cases of a test hit an identity.

    Attributes:
        test: Its id.
        cases: Their numbers, the first hundred.
        count: All of them.
        of_cases: Cases of the test.
    """

    test: str
    cases: tuple[int, ...]
    count: int
    of_cases: int


#: Other smallest programs of one identity that are looked for, each from a test of its own.
VARIANTS_AT_MOST: Final = 2


class Variant(Struct, frozen=True, kw_only=True):
    """Hold another smallest program of one identity: a sub-entry of its finding.

    Attributes:
        test: Id of the test that it was shrunk from.
        case: Its number.
        headline: One sentence.
        program: The smallest program as Python text.
        calls: What that program calls, with the names of keywords: programs that have them in common are told once.
    """

    test: str
    case: int
    headline: str
    program: str
    calls: tuple[str, ...] = ()


class Finding(Struct, frozen=True, kw_only=True):
    """Hold a confirmed misalignment, crash or timeout with its smallest program.

    Identity is (candidate, operator, kind). Sizes are in elements, differences in the unit of the
    elements.

    Attributes:
        id: ``<operator's last name>-<hash of the identity>``; the folder's name in ``findings/``.
        where: What differs, for reading: ``value of softmax``, ``gradient of x``.
        headline: One sentence.
        message: The whole message, several lines.
        first_pair: Candidate's and reference's value at ``first_index``, hexadecimal.
        oracle: The float64 oracle's word.
        program: The smallest program as Python text.
        cases: Cases in which this identity was seen; ``of_cases`` were run.
        tests: Ids of the tests that hit it.
        known: Reason, where the configuration accepts this difference.
        repro: Path of ``repro.py`` in the output folder, ``None`` where there is none.
        replay: One line that runs it again.
        growth: Of accumulated error, step by step.
        layer: Of a compiled candidate, the layer at fault: ``dynamo``, ``aot_autograd`` or ``inductor``.
        hits: Cases that hit this identity, by test.
        versions: Of the frameworks and the platform.
        variants: Other smallest programs, from other tests that hit it.
        calls: What the smallest program calls, with the names of keywords.
        attempt: Number of the accepted attempt at the case.
        output: For a crash or a timeout, the end of what its process printed, with the fault handler's stack.
        earlier: Whether an earlier run found it and no case of this one did: its program, kept in ``.autotest/``,
            still shows it.
        demanded: Of a leniency, whether the author wrote that the reference refuses it: then it fails the run.
    """

    id: str
    candidate: str
    operator: str
    target: str
    kind: Kind
    blame: Blame
    outcome: Outcome
    test: str
    case: int
    seed: int
    profile: str = "ordinary"
    steps: int = 0
    dims_max: int = 0
    greatest_absolute_difference: int | float | None = None
    greatest_relative_difference: float | None = None
    greatest_ulp_difference: int | None = None
    first_index: tuple[int, ...] | None = None
    first_pair: tuple[str, str] | None = None
    message: str = ""
    confirmed: bool = False
    shrunk: bool = False
    repro: str | None = None
    repro_verified: bool = False
    where: str = ""
    headline: str = ""
    candidate_seen: str = ""
    reference_seen: str = ""
    detail: str = ""
    difference: Difference | None = None
    oracle: str = ""
    oracle_value: str | None = None
    accumulated: bool = False
    program: str = ""
    cases: int = 1
    of_cases: int = 1
    tests: tuple[str, ...] = ()
    known: str | None = None
    location: Location | None = None
    replay: str = ""
    growth: tuple[StepError, ...] = ()
    layer: str = ""
    hits: tuple[Hit, ...] = ()
    versions: str = ""
    variants: tuple[Variant, ...] = ()
    calls: tuple[str, ...] = ()
    attempt: int = 0
    output: str = ""
    earlier: bool = False
    demanded: bool = False

    @property
    def identity(self) -> tuple[str, str, str]:
        """What makes two findings one, between runs too."""
        return self.candidate, self.operator, self.kind


#: Blames that never fail the candidate.
TOLERATED_BLAMES: Final = frozenset({"reference", "ill_conditioned"})


def counts_against(finding: Finding) -> bool:
    """Whether a finding fails the run under ``--fail-on misaligned``."""
    if finding.known is not None or finding.outcome == "flaky":
        return False
    return not is_found_leniency(finding) and finding.blame not in TOLERATED_BLAMES


def representative(findings: Iterable[Finding]) -> Finding:
    """Return the finding that stands for all of one identity, the same in whatever order they came.

    One that counts against the run comes before one that does not, then a confirmed one, then one with its program,
    then one that a case of this run showed; of those the lowest test and case.
    """

    def rank(item: Finding) -> tuple[bool, bool, bool, bool, str, int]:
        return not counts_against(item), not item.confirmed, not item.program, item.earlier, item.test, item.case

    return min(findings, key=rank)


def is_found_leniency(finding: Finding) -> bool:
    """Whether a candidate accepts what the reference refuses, and nobody wrote that it must be refused."""
    return finding.kind == "leniency" and not finding.demanded

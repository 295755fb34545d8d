"""A finding and what belongs to it: where its test is defined, the cases that hit it, its other programs.

A finding is identified by (candidate, operator, kind) and by nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ci_autotest.values.error_pattern import ErrorPattern
from ci_autotest.values.verdict import Blame, Difference, Kind, Outcome, Place, StepError, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable


class Location(Struct, frozen=True, kw_only=True):
    """Definition of a test.

    Attributes:
        file: Path relative to the configuration's folder, with ``/``.
        line: Line number from 1.
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


#: Cases of one test that a hit lists by number.
HITS_LISTED: Final = 100


class Hit(Struct, frozen=True, kw_only=True):
    """The cases of a test that hit an identity.

    Attributes:
        test: Id of the test.
        cases: Numbers of the first hundred cases.
        count: Number of all such cases.
        of_cases: Number of cases of the test.
    """

    test: str
    cases: tuple[int, ...]
    count: int
    of_cases: int


#: Other smallest programs of one identity that a run looks for, each from another test.
VARIANTS_AT_MOST: Final = 2


#: Why a finding has no program that fails when it is pasted; ``report/finding_program.py`` has the sentences.
NoProgram: TypeAlias = Literal[
    "", "unconfirmed", "flaky", "cases", "loader", "elsewhere", "bands", "checks", "tensors", "unnamed", "unrecorded",
    "passes", "stops", "calls",
]  # fmt: skip


class Variant(Struct, frozen=True, kw_only=True):
    """Another smallest program of one identity, as a part of its finding.

    Attributes:
        test: Id of the test that it was shrunk from.
        case: Number of the case.
        headline: One sentence.
        program: The smallest program as Python text.
        calls: What the program calls, with the names of keyword arguments; of several programs with the same calls only
            one is kept.
    """

    test: str
    case: int
    headline: str
    program: str
    calls: tuple[str, ...] = ()


class Finding(Struct, frozen=True, kw_only=True):
    """A misalignment, crash or timeout with its smallest program.

    Its identity is (candidate, operator, kind). Sizes are in elements, differences in the unit of the elements.

    Attributes:
        id: Last name of the operator and a hash of the identity, for example ``softmax-3f2a1c``; also the folder's name
            in ``findings/``.
        candidate: Name of the candidate.
        operator: Canonical operator of the step that is wrong.
        target: The operator as the test spells it.
        kind: What differs.
        blame: Which side is wrong, according to the float64 oracle.
        outcome: Outcome of the case: misaligned, crashed, timed_out or flaky.
        test: Id of the test, ``path::name``.
        case: Number of the case.
        seed: Root seed of the run.
        profile: Profile of the case, for example ``ordinary``.
        steps: Number of steps of the smallest program.
        dims_max: Most dimensions of a tensor in the smallest program.
        greatest_absolute_difference: In the unit of the elements; null if not finite.
        greatest_relative_difference: A ratio to the reference; null if not finite.
        greatest_ulp_difference: In units in the last place.
        first_index: Index of the first element outside the tolerance.
        first_pair: The candidate's and the reference's value at ``first_index``, hexadecimal for floating point.
        message: The whole message, of several lines.
        confirmed: Whether it was repeated in a fresh process.
        shrunk: Whether the program is the smallest that was found.
        repro: Path of ``repro.py`` in the output folder; null if there is none.
        repro_verified: Whether ``repro.py`` was run and showed the finding.
        where: What differs, in words: ``value of softmax``, ``gradient of x``.
        at: The same place for programs.
        headline: One sentence.
        candidate_seen: What the candidate has, in words.
        reference_seen: What the reference has, in words.
        detail: One more line, for example the candidate's exception.
        difference: The numbers, if both sides are tensors of one shape.
        oracle: What the float64 oracle says, in one sentence.
        oracle_value: The float64 value at ``first_index``, hexadecimal.
        accumulated: Whether the error accumulates over steps, none of which is misaligned on its own.
        program: The smallest program as Python text, which fails when it is pasted; for reading only if ``no_program``
            says why it does not.
        cases: Number of cases that show this identity.
        of_cases: Number of cases that were run.
        tests: Ids of the tests that hit the identity.
        known: Reason of the configuration's row that accepts this difference; null if none does.
        location: Definition of the test.
        replay: Command that runs the finding again.
        growth: How an accumulated error grows, step by step.
        layer: Layer at fault in a compiled candidate: ``dynamo``, ``aot_autograd`` or ``inductor``.
        hits: Cases that hit the identity, by test.
        versions: Versions of the frameworks and the platform.
        variants: Other smallest programs, from other tests that hit the identity.
        calls: What the smallest program calls, with the names of keyword arguments.
        attempt: Number of the accepted attempt at the case.
        output: The end of what the test and the candidate printed when the case ran again; for a crash or a timeout,
            with the fault handler's stack.
        earlier: Whether only an earlier run's cases show it: its program in ``.autotest/`` still fails.
        demanded: Whether a leniency fails the run, because the test says that the reference refuses the call.
        pattern: Which elements are wrong in the case as it was found, before shrinking.
        notes: What the test's body says about the case as it was found.
        lacks_gradient: Whether the values agree and the candidate's are of no gradient.
        not_shrunk: Why the program is not the smallest, in words; empty if it is.
        no_program: Why no program fails when it is pasted; empty if ``program`` does.
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
    at: Place | None = None
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
    pattern: ErrorPattern | None = None
    notes: tuple[str, ...] = ()
    lacks_gradient: bool = False
    not_shrunk: str = ""
    no_program: NoProgram = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        """Candidate, operator and kind, by which findings of different runs are matched."""
        return self.candidate, self.operator, self.kind


#: Blames that never fail the run.
TOLERATED_BLAMES: Final = frozenset({"reference", "ill_conditioned"})


def counts_against(finding: Finding) -> bool:
    """Whether a finding fails the run under ``--fail-on misaligned``."""
    if finding.known is not None or finding.outcome == "flaky":
        return False
    return not is_found_leniency(finding) and finding.blame not in TOLERATED_BLAMES


def representative(findings: Iterable[Finding]) -> Finding:
    """Return the finding that represents all of one identity, whatever their order.

    A finding that counts against the run is preferred, then a confirmed one, then one with a repro, then one with a
    program to paste, then one that a case of this run shows; of those the lowest test and case.
    """

    def rank(item: Finding) -> tuple[bool, bool, bool, bool, bool, str, int]:
        lacks_program = not item.program or bool(item.no_program)
        # Negated, because `False` is less than `True`.
        return (
            not counts_against(item), not item.confirmed, item.repro is None, lacks_program, item.earlier,
            item.test, item.case,
        )  # fmt: skip

    return min(findings, key=rank)


def is_found_leniency(finding: Finding) -> bool:
    """Whether a candidate accepts what the reference refuses, and no test demands the refusal."""
    return finding.kind == "leniency" and not finding.demanded

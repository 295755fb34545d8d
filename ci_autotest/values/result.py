"""What a run found, as values: outcomes, misalignments, findings, results, the report.

Everything here is a frozen msgspec struct: it crosses processes and is written to ``report.json``,
whose JSON Schema is derived from ``RunResult``. The words are those of the README's glossary.
Differences that are not finite are ``None``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from ci_autotest.errors import UnsupportedReason
from ci_autotest.values.coverage_values import CandidateCoverage, OperatorCoverage
from ci_autotest.values.verdict import (
    WORST_FIRST,
    Blame,
    Difference,
    Kind,
    Outcome,
    StepError,
    Struct,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA: Final = "ci-autotest/report/1"


class Location(Struct, frozen=True, kw_only=True):
    """Say where a test is defined: a file with ``/``, relative to the configuration's folder, and a line from 1."""

    file: str
    line: int


class CaseCounts(Struct, frozen=True, kw_only=True):
    """Count the cases of one (test, candidate) by outcome."""

    aligned: int = 0
    misaligned: int = 0
    unsupported: int = 0
    crashed: int = 0
    timed_out: int = 0
    flaky: int = 0
    not_run: int = 0

    @property
    def compared(self) -> int:
        """Cases in which something of the candidate's was held against the reference."""
        return self.aligned + self.misaligned + self.crashed + self.timed_out + self.flaky


#: Texts that are kept of the cases that are unsupported for one reason.
_DETAILS: Final = 3


class UnsupportedCases(Struct, frozen=True, kw_only=True):
    """Count the cases of one (test, candidate) that are unsupported for one reason.

    Attributes:
        reason: What decisions go by.
        cases: How many.
        details: What was said of them, for reading: the first three texts in alphabetical order.
    """

    reason: UnsupportedReason
    cases: int
    details: tuple[str, ...]


def joined_unsupported(counts: Iterable[UnsupportedCases]) -> tuple[UnsupportedCases, ...]:
    """Return counts with one entry for each reason, the most frequent first: the same in whatever order they came."""
    groups: dict[UnsupportedReason, list[UnsupportedCases]] = {}
    for item in counts:
        groups.setdefault(item.reason, []).append(item)
    joined = [
        UnsupportedCases(
            reason=reason,
            cases=sum(item.cases for item in group),
            details=tuple(sorted({detail for item in group for detail in item.details})[:_DETAILS]),
        )
        for reason, group in groups.items()
    ]
    return tuple(sorted(joined, key=lambda item: (-item.cases, item.reason.value)))


class AttemptCounts(Struct, frozen=True, kw_only=True):
    """Count attempts: ``accepted`` and ``rejected`` by the reference."""

    accepted: int = 0
    rejected: int = 0


#: Cases of one test that a hit tells by number.
HITS_TOLD: Final = 100


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


class CandidateInfo(Struct, frozen=True, kw_only=True):
    """Say what a candidate is, why it is not there when it is not, and which operators it replaces.

    Attributes:
        version: Of the framework.
        libraries: In an interpreter of its own: Python's version and those of what the framework computes with.
        mode: ``graph`` where each body runs as one graph, ``graph, forward only`` where such graphs have no gradients.
        kernels: Where replacements that are Python functions of the checkout are defined, by operator; their files are
            relative to its top.
    """

    name: str
    backend: str
    version: str = ""
    libraries: dict[str, str] = msgspec.field(default_factory=dict)
    mode: str = ""
    device: str = "cpu"
    available: bool = True
    reason: str = ""
    replaces: tuple[str, ...] = ()
    kernels: dict[str, Location] = msgspec.field(default_factory=dict)


class OperatorStanding(Struct, frozen=True, kw_only=True):
    """Say whether a candidate has an operator.

    Attributes:
        standing: ``supported``: it has it; ``unsupported``: its table says why not; ``absent``: its framework has no
            function of the name that is meant; ``no_kernel``: its device has none; ``unmapped``: its table does not
            speak of it.
    """

    operator: str
    standing: Literal["supported", "unsupported", "absent", "no_kernel", "unmapped"]
    reason: str = ""


class TestResult(Struct, frozen=True, kw_only=True):
    """Hold what one test showed on one candidate.

    Attributes:
        outcome: The worst of its cases.
        profiles: Accepted cases by profile.
        duration_s: Seconds spent in its cases, on all workers.
        findings: Ids of its findings.
        reason: Why it is not aligned, where no finding says so.
        unsupported: Why its unsupported cases are, most frequent first.
        weak: Fewer than one ordinary attempt in ten was accepted.
        refusal: Of a weak test, what the reference said to an attempt that it rejected.
        undefined_gradients: Cases whose backward pass the reference refused: their values alone were compared.
        rejected_cases: Cases of which the reference rejected every attempt; they are among ``cases.not_run``.
        left_alone: Whether the rest of a window is left out after cases of it have ended their worker: some have.
    """

    test: str
    candidate: str
    outcome: Outcome
    cases: CaseCounts
    attempts: AttemptCounts = AttemptCounts()
    profiles: dict[str, int] = msgspec.field(default_factory=dict)
    duration_s: float = 0.0
    findings: tuple[str, ...] = ()
    reason: str = ""
    unsupported: tuple[UnsupportedCases, ...] = ()
    weak: bool = False
    refusal: str = ""
    undefined_gradients: int = 0
    rejected_cases: int = 0
    left_alone: bool = False
    location: Location | None = None

    @property
    def run(self) -> int:
        """Cases that were run: those with an outcome, and those that the reference rejected."""
        counts = self.cases
        return counts.compared + counts.unsupported + min(counts.not_run, self.rejected_cases)


class BrokenTest(Struct, frozen=True, kw_only=True):
    """Say why a file could not be imported, or why a test's body or declaration is wrong."""

    test: str
    message: str
    traceback: str = ""
    location: Location | None = None


class Environment(Struct, frozen=True, kw_only=True):
    """Say what ran: versions, platform, the commit where there is one, the configuration's folder in the repository."""

    ci_autotest: str
    python: str
    platform: str
    torch: str = ""
    commit: str = ""
    folder: str = ""


class Summary(Struct, frozen=True, kw_only=True):
    """Count (test, candidate) pairs by outcome, and what else a reader wants first."""

    aligned: int = 0
    misaligned: int = 0
    unsupported: int = 0
    crashed: int = 0
    timed_out: int = 0
    flaky: int = 0
    not_run: int = 0
    broken: int = 0
    findings: int = 0
    cases: int = 0


class RunResult(Struct, frozen=True, kw_only=True):
    """Hold a whole run: what ``report.json`` is.

    Attributes:
        seed: Root seed; replays exactly with ``--seed``.
        shard: ``(K, N)``; ``(1, 1)`` is everything.
        shapes: Sets of sizes and choices that the cases of a test shared; 0: each had its own. A case is the same in
            another run where seed, test, case and this are.
        interrupted: The run was stopped before its end.
        notes: Sentences a reader must see: rules that matched nothing, devices skipped.
        fixed: Identities of findings of the baseline that were not seen again, as ``candidate
            operator kind``.
        new: Ids of findings that the baseline does not have; ``None`` without a baseline.
        calls: For candidates that replace operators, the calls that were replaced, by operator.
        is_partial: Tests were selected by name, or cases were left out: what is missing here says nothing.
        plan: Of a shard, tells its plan from others: shards of one run have it in common.
        coverage: Torch's public operators by candidate.
        operators: How far each operator was exercised, with which arguments and dtypes.
        exit_code: What the command ended with.
    """

    schema: Literal["ci-autotest/report/1"] = SCHEMA
    seed: int
    environment: Environment
    candidates: tuple[CandidateInfo, ...]
    results: tuple[TestResult, ...]
    findings: tuple[Finding, ...]
    summary: Summary
    broken: tuple[BrokenTest, ...] = ()
    shard: tuple[int, int] = (1, 1)
    shapes: int = 0
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    new: tuple[str, ...] | None = None
    duration_s: float = 0.0
    calls: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    is_partial: bool = False
    plan: str = ""
    coverage: tuple[CandidateCoverage, ...] = ()
    operators: tuple[OperatorCoverage, ...] = ()
    exit_code: int = 0


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


def uncalled(result: RunResult) -> dict[str, list[str]]:
    """Return the replacements that were never called, by candidate; only a whole run can say that of one."""
    if result.interrupted or result.is_partial or result.broken or result.shard != (1, 1):
        return {}
    found = {}
    for candidate in result.candidates:
        if not candidate.replaces or not candidate.available:
            continue
        called = {name.rpartition(".")[2] for name, count in result.calls.get(candidate.name, {}).items() if count}
        # A call that ended its worker was counted by no one; its finding says that it was made.
        called |= {item.operator.rpartition(".")[2] for item in result.findings if item.candidate == candidate.name}
        missing = [name for name in candidate.replaces if name.rpartition(".")[2].rstrip("_") not in called]
        if missing:
            found[candidate.name] = missing
    return found


def worst(counts: CaseCounts) -> Outcome:
    """Return the outcome of a test from the outcomes of its cases: the worst that happened, ``not_run`` if none did."""
    for outcome in WORST_FIRST:
        if getattr(counts, outcome):
            return "aligned" if outcome in {"unsupported", "not_run"} and counts.aligned else outcome
    return "not_run"

"""The result of a run as values: counts, tests, candidates, the report.

Everything here is a frozen msgspec struct that crosses processes and is written to ``report.json``, whose JSON Schema
is derived from ``RunResult``. Differences that are not finite are ``None``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import msgspec

from ci_autotest.errors import UnsupportedReason
from ci_autotest.values.aligned_error import AlignedError
from ci_autotest.values.coverage_values import CandidateCoverage, OperatorCoverage
from ci_autotest.values.delegation import DelegationCounts
from ci_autotest.values.finding import Finding, Location
from ci_autotest.values.power import PowerResult
from ci_autotest.values.probes import ProbeCounts
from ci_autotest.values.size_classes import ReachedSizes
from ci_autotest.values.speed import SpeedResult
from ci_autotest.values.verdict import WORST_FIRST, Outcome, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SCHEMA: Final = "ci-autotest/report/1"


class CaseCounts(Struct, frozen=True, kw_only=True):
    """Number of cases of one (test, candidate) by outcome.

    Attributes:
        reference_off: Cases that differ, and not by the candidate's fault: the reference is wrong.
        known: Cases that differ only in what a row of ``known`` accepts; they are in no other count.
        skipped: Cases that the test itself skipped.
    """

    aligned: int = 0
    misaligned: int = 0
    reference_off: int = 0
    known: int = 0
    unsupported: int = 0
    crashed: int = 0
    timed_out: int = 0
    flaky: int = 0
    not_run: int = 0
    skipped: int = 0

    def __add__(self, other: CaseCounts) -> CaseCounts:
        return CaseCounts(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

    @property
    def compared(self) -> int:
        """Number of cases in which the candidate was compared with the reference."""
        differing = self.misaligned + self.reference_off + self.known
        return self.aligned + differing + self.crashed + self.timed_out + self.flaky


#: Examples that are kept for each reason.
_DETAILS: Final = 3


class UnsupportedCases(Struct, frozen=True, kw_only=True):
    """The cases of one (test, candidate) that are unsupported for one reason.

    Attributes:
        reason: Typed reason, on which all decisions depend.
        cases: Number of cases.
        details: Up to three examples in words, in alphabetical order.
    """

    reason: UnsupportedReason
    cases: int
    details: tuple[str, ...]


def joined_unsupported(counts: Iterable[UnsupportedCases]) -> tuple[UnsupportedCases, ...]:
    """Return counts with one entry for each reason, the most frequent first, whatever the order of ``counts``."""
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
    """Number of attempts that the reference accepted and rejected."""

    accepted: int = 0
    rejected: int = 0


class CandidateInfo(Struct, frozen=True, kw_only=True):
    """A candidate of the run.

    Attributes:
        name: Name in the configuration.
        backend: Backend that runs it.
        version: Version of the framework.
        libraries: In an interpreter of its own: versions of Python and of the libraries with which the framework
            computes.
        mode: ``graph`` if each body runs as one graph, ``graph, forward only`` if such graphs have no gradients.
        device: Device on which it runs.
        available: Whether it could be used.
        reason: Why it was not available.
        replaces: Operators that it replaces.
        kernels: Definitions of replacements that are Python functions of the checkout, by operator; their files are
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


#: The one candidate of every test of a data loader.
LOADER_CANDIDATE: Final = "loader"
#: Name under which PyTorch itself is held against what tests expect.
REFERENCE_CANDIDATE: Final = "reference"


class OperatorStanding(Struct, frozen=True, kw_only=True):
    """Whether a candidate has an operator.

    Attributes:
        operator: Canonical operator.
        standing: ``supported``; ``unsupported`` if its table says why not; ``absent`` if its framework lacks the
            function that the table names; ``no_kernel`` if its device has no kernel; ``unmapped`` if its table has no
            row.
        reason: Why it is not supported.
    """

    operator: str
    standing: Literal["supported", "unsupported", "absent", "no_kernel", "unmapped"]
    reason: str = ""


#: Why no case of a test could have a profile.
NoProfile = Literal[
    "bounds", "dtype", "fixed_sizes", "no_drawn_tensor", "rejected", "stored_elements", "too_few_elements"
]


class XFail(Struct, frozen=True, kw_only=True):
    """The mark of a test that is expected to fail.

    Attributes:
        reason: Its reason.
        is_strict: Whether a pass fails the run.
    """

    reason: str
    is_strict: bool = False

    @property
    def sentence(self) -> str:
        """The reason as an accepted finding gives it."""
        return f"expected failure: {self.reason}"


class TestResult(Struct, frozen=True, kw_only=True):
    """The result of one test on one candidate.

    Attributes:
        test: Id of the test, ``path::name``.
        candidate: Name of the candidate.
        outcome: The worst outcome of its cases.
        cases: Number of cases by outcome.
        attempts: Number of attempts that the reference accepted and rejected.
        ordinary: The same for attempts of the ordinary profile, by which a test is weak.
        profiles: Accepted cases by profile.
        no_profile: Profiles that no case could have, and why: `bounds` (nothing of it is within `low=` and `high=`),
            `dtype` (it has no such values), `fixed_sizes` (the test gives every size), `too_few_elements` (one element
            has one layout), `no_drawn_tensor` (nothing is drawn by `random_tensor`), `stored_elements` (they
            come from a file), `rejected` (by the reference, three times).
        sizes: For each free dimension, by the site of its draw, whether its cases reached each class of sizes, or why
            not. The classes are `one`, `near_32` (31 to 33), `near_128` (127 to 129), `beyond_256` and `beyond_1024`.
            The reasons are `range` (the test draws the size from a range without it), `grid` (the cases of a grid have
            no profiles), `profiles` (the test leaves out `boundary`), `element_cap` (the tensor would be too large),
            `rejected` (by the reference, three times), `shapes` (the cases share too few sets of sizes) and
            `few_cases` (its turn is in a later case).
        duration_s: Seconds spent in its cases, on all workers.
        compile_s: How many of these seconds the candidate spent on compiling or exporting bodies, which each worker
            does once for a body and its sizes.
        findings: Ids of its findings.
        reason: Why it is not aligned, if no finding says so.
        unsupported: Why cases are unsupported, the most frequent reason first.
        weak: Whether the reference accepted fewer than one in ten ordinary attempts.
        refusal: The reference's error for one of the rejected attempts.
        undefined_gradients: Cases whose backward pass the reference refused, so that only values were compared.
        values_only: Cases of which only values were compared because the candidate has no backward pass there.
        probes: Its probes, in which the body of a case is called several times: planned, run, and left out.
        delegation: On a compiler: its cases by how much of them the compiler ran itself; zeros for any other candidate.
        errors: The greatest error of its aligned cases, by operator and dtype.
        rejected_cases: Cases of which the reference rejected every attempt; they are among ``cases.not_run``.
        left_alone: Whether the rest of a window was skipped after some of its cases had ended their worker.
        skip_reason: Why cases were skipped.
        xfail: The mark of a test that is expected to fail; null if it is not.
        location: Definition of the test.
    """

    test: str
    candidate: str
    outcome: Outcome
    cases: CaseCounts
    attempts: AttemptCounts = AttemptCounts()
    ordinary: AttemptCounts = AttemptCounts()
    profiles: dict[str, int] = msgspec.field(default_factory=dict)
    no_profile: dict[str, NoProfile] = msgspec.field(default_factory=dict)
    sizes: ReachedSizes = msgspec.field(default_factory=dict)
    duration_s: float = 0.0
    compile_s: float = 0.0
    findings: tuple[str, ...] = ()
    reason: str = ""
    unsupported: tuple[UnsupportedCases, ...] = ()
    weak: bool = False
    refusal: str = ""
    undefined_gradients: int = 0
    values_only: int = 0
    probes: ProbeCounts = ProbeCounts()
    delegation: DelegationCounts = DelegationCounts()
    errors: tuple[AlignedError, ...] = ()
    rejected_cases: int = 0
    left_alone: bool = False
    skip_reason: str = ""
    xfail: XFail | None = None
    location: Location | None = None

    @property
    def run(self) -> int:
        """Number of cases that were run: those with an outcome, and those that the reference rejected."""
        counts = self.cases
        return counts.compared + counts.unsupported + min(counts.not_run, self.rejected_cases)


#: Seconds of compiling in one test from which on they are shown beside its seconds.
LONG_COMPILING_S: Final = 0.5


class BrokenTest(Struct, frozen=True, kw_only=True):
    """A file that could not be imported, or a test whose body or declaration is wrong.

    Attributes:
        test: Id of the test, or the file.
        message: What is wrong and what to do.
        traceback: The traceback, if there is one.
        location: Definition of the test.
    """

    test: str
    message: str
    traceback: str = ""
    location: Location | None = None


class Environment(Struct, frozen=True, kw_only=True):
    """What ran.

    Attributes:
        ci_autotest: Version of ci-autotest.
        python: Version of Python.
        platform: Operating system and architecture.
        torch: Version of the reference.
        commit: Commit that was tested; empty outside a workflow.
        folder: The configuration's folder in the repository.
    """

    ci_autotest: str
    python: str
    platform: str
    torch: str = ""
    commit: str = ""
    folder: str = ""


class Summary(Struct, frozen=True, kw_only=True):
    """Number of (test, candidate) pairs by outcome.

    Attributes:
        reference_off: Pairs that differ only because the reference is wrong.
        known: Pairs that differ only in what a row of ``known`` accepts.
        broken: Number of broken tests.
        findings: Number of findings.
        cases: Number of cases that were compared.
    """

    aligned: int = 0
    misaligned: int = 0
    reference_off: int = 0
    known: int = 0
    unsupported: int = 0
    crashed: int = 0
    timed_out: int = 0
    flaky: int = 0
    not_run: int = 0
    skipped: int = 0
    broken: int = 0
    findings: int = 0
    cases: int = 0


#: What ends a run with 1.
FailOn: TypeAlias = Literal["misaligned", "new", "never", "flaky", "leniency", "slower"]
FAIL_ON: Final[tuple[FailOn, ...]] = get_args(FailOn)


class RunError(Struct, frozen=True):
    """An error that ended a run before its end, or kept a file of its report from being written.

    Attributes:
        message: What happened, in a sentence.
        status: The exit status that it gives.
        is_of_report: Whether the run went on, and only a file of its report could not be written.
    """

    message: str
    status: int
    is_of_report: bool = False


def one_error(errors: Sequence[RunError]) -> RunError | None:
    """Return errors as one, with the status of the first; ``None`` of none."""
    messages = dict.fromkeys(error.message for error in errors)
    return msgspec.structs.replace(errors[0], message=" ".join(messages)) if errors else None


class RunResult(Struct, frozen=True, kw_only=True):
    """A whole run: the content of ``report.json``.

    Attributes:
        schema: Version of this format.
        seed: Root seed; ``--seed`` with it replays the run exactly.
        environment: Versions, platform and commit.
        candidates: The candidates of the run.
        results: One result for each test and candidate.
        findings: Confirmed misalignments, crashes and timeouts.
        summary: Number of (test, candidate) pairs by outcome.
        broken: Files and tests that could not be run.
        shard: Index and number of shards; ``[1, 1]`` is the whole run.
        shapes: Number of sets of sizes and choices that the cases of a test shared; 0 if each had its own. A case is
            the same in another run if seed, test, case and this number are.
        interrupted: Whether the run was stopped before its end.
        notes: Sentences that a reader must see, for example rules that matched nothing.
        fixed: Findings of the baseline that were not seen again, as ``candidate operator kind``.
        new: Ids of findings that the baseline lacks; null without a baseline.
        duration_s: Seconds from start to end.
        calls: For candidates that replace operators, the number of replaced calls by operator.
        probed: For candidates that replace operators, those that a probe called.
        is_partial: Whether tests were selected by name or cases left out, so that an absent finding means nothing.
        plan: Hash of the plan, which all shards of one run share.
        coverage: Counts of torch's public operators by candidate.
        operators: How far each operator was exercised, with its arguments and dtypes.
        speed: Times of candidates with ``speed``, at larger sizes.
        power: How much the tests notice: mutants of the reference, tried on them by ``ci-autotest power``; null if it
            was not measured.
        fail_on: What ends the run with 1; null in a report of an earlier version.
        error: What ended the run before its end, or kept a file from being written; null if nothing did.
        exit_code: Exit status of the command.
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
    probed: dict[str, list[str]] = msgspec.field(default_factory=dict)
    is_partial: bool = False
    plan: str = ""
    coverage: tuple[CandidateCoverage, ...] = ()
    operators: tuple[OperatorCoverage, ...] = ()
    speed: tuple[SpeedResult, ...] = ()
    power: PowerResult | None = None
    fail_on: FailOn | None = None
    error: RunError | None = None
    exit_code: int = 0


def kernel_of(result: RunResult, finding: Finding) -> Location | None:
    """Return where the function is defined that replaces a finding's operator; its file is relative to the checkout."""
    named = (item for item in result.candidates if item.name == finding.candidate)
    return next((item.kernels[finding.operator] for item in named if finding.operator in item.kernels), None)


def is_all_skipped(result: RunResult) -> bool:
    """Whether a candidate's tests were skipped and nothing of it was compared; a shard may have only skipped ones."""
    skipped = {item.candidate for item in result.results if item.outcome == "skipped"}
    compared = {item.candidate for item in result.results if item.cases.compared}
    return result.shard == (1, 1) and bool(skipped - compared)


def uncalled(result: RunResult) -> dict[str, list[str]]:
    """Return the replacements that were never called, by candidate; empty unless the run is whole."""
    return {} if result.is_partial else not_called(result)


def not_called(result: RunResult) -> dict[str, list[str]]:
    """Return the replacements that this run or part of a run has not called; empty if it is not known."""
    if result.interrupted or result.broken or result.shard != (1, 1):
        return {}
    found = {}
    for candidate in result.candidates:
        if not candidate.replaces or not candidate.available:
            continue
        called = {name for name, count in result.calls.get(candidate.name, {}).items() if count}
        # A call that ended its worker was never counted, but its finding proves that it was made.
        called |= {item.operator for item in result.findings if item.candidate == candidate.name}
        missing = [name for name in candidate.replaces if name not in called]
        if missing:
            found[candidate.name] = missing
    return found


def unprobed(result: RunResult) -> dict[str, list[str]]:
    """Return the replaced operators that a whole run called and never probed, by candidate.

    Of an operator with a finding that nothing accepts, the finding says more.
    """
    if result.is_partial or result.interrupted or result.shard != (1, 1):
        return {}
    found = {}
    for name, counts in result.calls.items():
        called = {operator for operator, count in counts.items() if count}
        found_out = {item.operator for item in result.findings if item.candidate == name and item.known is None}
        if missing := called - set(result.probed.get(name, ())) - found_out:
            found[name] = sorted(missing)
    return found


def worst(counts: CaseCounts) -> Outcome:
    """Return the outcome of a test: the worst of its cases, ``not_run`` without cases."""
    for outcome in WORST_FIRST:
        if getattr(counts, outcome):
            # Cases in which nothing was compared take nothing from those that are aligned; the counts show both.
            return "aligned" if outcome in {"unsupported", "not_run", "skipped"} and counts.aligned else outcome
    return "not_run"

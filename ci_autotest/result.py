"""What a run found, as values: outcomes, misalignments, findings, results, the report.

Everything here is a frozen msgspec struct: it crosses processes and is written to ``report.json``,
whose JSON Schema is derived from ``RunResult``. The words are those of the README's glossary.
Differences that are not finite are ``None``.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

SCHEMA: Final = "ci-autotest/report/1"

Outcome: TypeAlias = Literal["aligned", "misaligned", "unsupported", "crashed", "timed_out", "flaky", "not_run"]
Kind: TypeAlias = Literal[
    "value", "gradient", "shape", "dtype", "metadata", "state", "aliasing", "mutation", "error", "leniency", "graph",
    "crash", "timeout", "nondeterminism",
]  # fmt: skip
Blame: TypeAlias = Literal["candidate", "reference", "both", "ill_conditioned", "unknown"]

#: Outcomes of a case, in the order in which the worst is chosen for a test (first is worst).
WORST_FIRST: Final[tuple[Outcome, ...]] = (
    "crashed", "timed_out", "misaligned", "flaky", "unsupported", "not_run", "aligned",
)  # fmt: skip


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value that leaves the process."""


class Difference(Struct, frozen=True, kw_only=True):
    """Say by how much a tensor departs from its counterpart.

    Attributes:
        mismatched: Elements outside the tolerance.
        total: Elements compared.
        greatest_absolute: In the unit of the elements; ``None`` when not finite.
        greatest_relative: A ratio to the reference; ``None`` when not finite or the reference is 0.
        greatest_ulp: Units in the last place; ``None`` for what has none.
        greatest_index: Where ``greatest_absolute`` is.
        first_index: The first element outside the tolerance, in row-major order.
        first_pair: Candidate's and reference's value there; hexadecimal for floating point.
        first_pair_decimal: The same, for reading.
        rtol: Ratio that was allowed.
        atol: Absolute difference that was allowed, in the unit of the elements.
    """

    mismatched: int
    total: int
    greatest_absolute: float | None
    greatest_relative: float | None
    greatest_ulp: int | None
    greatest_index: tuple[int, ...]
    first_index: tuple[int, ...]
    first_pair: tuple[str, str]
    first_pair_decimal: tuple[str, str]
    rtol: float
    atol: float


class Misalignment(Struct, frozen=True, kw_only=True):
    """Say how a candidate departs from the reference at one place of a program.

    Attributes:
        kind: What differs.
        step: Index of the step whose value, gradient or state it is; the refused step for ``error``
            and ``leniency``.
        what: The thing compared, for reading: ``value of softmax``, ``gradient of x``.
        candidate: What the candidate has, for reading.
        reference: What the reference has, for reading.
        difference: Numbers, where both sides are tensors of one shape.
        detail: One more line where needed, such as the candidate's exception.
    """

    kind: Kind
    step: int
    what: str
    candidate: str
    reference: str
    difference: Difference | None = None
    detail: str = ""


class StepError(Struct, frozen=True, kw_only=True):
    """Say how far the sides are apart after one step of a program whose error is accumulated.

    Attributes:
        step: Its index.
        what: The value's name.
        greatest_absolute: In the unit of the elements; ``None`` when not finite.
        greatest_ulp: Units in the last place; ``None`` for what has none.
    """

    step: int
    what: str
    greatest_absolute: float | None
    greatest_ulp: int | None


class Verdict(Struct, frozen=True, kw_only=True):
    """Say what a trial showed, once localized and blamed: what a shrinker must keep.

    Attributes:
        outcome: Of the trial.
        operator: The culprit's operator.
        target: As the test spelled it.
        kind: What differs.
        blame: Which side is wrong, by the float64 oracle.
        step: Index of the culprit in the program.
        accumulated: No step is misaligned alone.
        misalignment: Of the culprit alone, else of the whole program.
        oracle: The oracle's word, one sentence.
        oracle_value: The float64 value at ``first_index``, hexadecimal.
        growth: Of accumulated error, step by step.
    """

    outcome: Outcome
    operator: str = ""
    target: str = ""
    kind: Kind | None = None
    blame: Blame = "unknown"
    step: int = -1
    accumulated: bool = False
    misalignment: Misalignment | None = None
    oracle: str = ""
    oracle_value: str | None = None
    growth: tuple[StepError, ...] = ()

    @property
    def is_of_a_rejected_attempt(self) -> bool:
        """Whether the reference rejected the attempt: it is reported, and no case."""
        found = self.misalignment
        return self.kind == "leniency" and (found is None or found.what != BACKWARD)


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


class Variant(Struct, frozen=True, kw_only=True):
    """Hold another smallest program of one identity: a sub-entry of its finding.

    Attributes:
        test: Id of the test that it was shrunk from.
        case: Its number.
        headline: One sentence.
        program: The smallest program as Python text.
    """

    test: str
    case: int
    headline: str
    program: str


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
        cases: Cases in which this identity was seen; ``of_cases`` were planned.
        tests: Ids of the tests that hit it.
        known: Reason, where the configuration accepts this difference.
        repro: Path of ``repro.py`` in the output folder, ``None`` where there is none.
        replay: One line that runs it again.
        growth: Of accumulated error, step by step.
        layer: Of a compiled candidate, the layer at fault: ``dynamo``, ``aot_autograd`` or ``inductor``.
        hits: Cases that hit this identity, by test.
        versions: Of the frameworks and the platform.
        variants: Other smallest programs, from other tests that hit it.
        attempt: Number of the accepted attempt at the case.
        output: For a crash or a timeout, the end of what its process printed, with the fault handler's stack.
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
    greatest_absolute_difference: float | None = None
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
    attempt: int = 0
    output: str = ""

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
    """

    name: str
    backend: str
    version: str = ""
    libraries: dict[str, str] = {}
    mode: str = ""
    device: str = "cpu"
    available: bool = True
    reason: str = ""
    replaces: tuple[str, ...] = ()


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
        weak: Fewer than one ordinary attempt in ten was accepted.
        undefined_gradients: Cases whose backward pass the reference refused: their values alone were compared.
    """

    test: str
    candidate: str
    outcome: Outcome
    cases: CaseCounts
    attempts: AttemptCounts = AttemptCounts()
    profiles: dict[str, int] = {}
    duration_s: float = 0.0
    findings: tuple[str, ...] = ()
    reason: str = ""
    weak: bool = False
    undefined_gradients: int = 0
    location: Location | None = None


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
NAMES_TOLD: Final = 64


def joined(one: Exercised, other: Exercised) -> Exercised:
    """Return how far an operator was exercised in two sets of cases."""
    arguments, dtypes = {*one.arguments, *other.arguments}, {*one.dtypes, *other.dtypes}
    return Exercised(
        cases=one.cases + other.cases, aligned=one.aligned + other.aligned,
        arguments=tuple(sorted(arguments)[:NAMES_TOLD]), dtypes=tuple(sorted(dtypes)[:NAMES_TOLD]),
    )  # fmt: skip


class OperatorCoverage(Struct, frozen=True, kw_only=True):
    """Say how far an operator was exercised: ``recorded`` on the reference, then by candidate that compared it.

    Attributes:
        family: Of torch's public operators; empty for an operator that is none of them.
    """

    operator: str
    family: str = ""
    recorded: Exercised
    candidates: dict[str, Exercised] = {}


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
    families: dict[str, CoverageCounts] = {}


class RunResult(Struct, frozen=True, kw_only=True):
    """Hold a whole run: what ``report.json`` is.

    Attributes:
        seed: Root seed; replays exactly with ``--seed``.
        shard: ``(K, N)``; ``(1, 1)`` is everything.
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
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    new: tuple[str, ...] | None = None
    duration_s: float = 0.0
    calls: dict[str, dict[str, int]] = {}
    is_partial: bool = False
    plan: str = ""
    coverage: tuple[CandidateCoverage, ...] = ()
    operators: tuple[OperatorCoverage, ...] = ()
    exit_code: int = 0


#: Kinds that never fail a run by themselves, but for a misuse of autograd.
TOLERATED_KINDS: Final = frozenset({"leniency"})
#: Blames that never fail the candidate.
TOLERATED_BLAMES: Final = frozenset({"reference", "ill_conditioned"})


#: What a backward pass is called where it is compared as one thing.
BACKWARD: Final = "backward pass"
#: What autograd says to the three misuses after which a gradient would be silently wrong: a value that the gradient
#: needs was overwritten, a leaf that requires grad was written to, a leaf was moved into the graph. Source: the
#: messages of PyTorch 2.13.
_MISUSES: Final = (
    "has been modified by an inplace operation",
    "a leaf Variable that requires grad is being used in an in-place operation",
    "a view of a leaf Variable that requires grad is being used in an in-place operation",
    "leaf variable has been moved into the graph interior",
)


def is_misuse(refusal: str) -> bool:
    """Whether the reference refused a misuse of autograd: a candidate that accepts it computes a wrong gradient."""
    return any(text in refusal for text in _MISUSES)


def counts_against(finding: Finding) -> bool:
    """Whether a finding fails the run under ``--fail-on misaligned``."""
    if finding.known is not None or finding.outcome == "flaky":
        return False
    is_tolerated = finding.kind in TOLERATED_KINDS and not is_misuse(finding.detail)
    return not is_tolerated and finding.blame not in TOLERATED_BLAMES


def worst(counts: CaseCounts) -> Outcome:
    """Return the outcome of a test from the outcomes of its cases: the worst that happened, ``not_run`` if none did."""
    for outcome in WORST_FIRST:
        if getattr(counts, outcome):
            return "aligned" if outcome in {"unsupported", "not_run"} and counts.aligned else outcome
    return "not_run"

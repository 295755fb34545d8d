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
from ci_autotest.values.finding import Finding, Location
from ci_autotest.values.verdict import WORST_FIRST, Outcome, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA: Final = "ci-autotest/report/1"


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

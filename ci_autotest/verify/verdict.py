"""The verdict of a verification: one JSON document, made of the run's result and of what both files have."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from ci_autotest.values.finding import counts_against
from ci_autotest.values.result import CaseCounts
from ci_autotest.values.schema import schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.values.finding import Finding
    from ci_autotest.values.result import RunResult

#: Name of the format.
SCHEMA: Final = "ci-autotest/verify/1"
Answer = Literal["accepted", "rejected", "undecided"]
#: Exit statuses by verdict; 2 is a wrong command line, 4 a system without a sandbox.
STATUSES: Final[dict[str, int]] = {"accepted": 0, "rejected": 1, "undecided": 3}
#: What no verification asks.
NEVER_CHECKED: Final = (
    "NaN, infinities and numbers beyond the range of the example's inputs",
    "inputs that are not contiguous",
    "speed",
    "writes to inputs that the candidate hides by changing the functions of its own process",
    "operators of torch that the candidate calls only after its first call",
    "devices other than the CPU",
)


class Authenticity(msgspec.Struct, frozen=True, kw_only=True):
    """Which operators of torch the candidate calls by itself, as its own process says.

    Attributes:
        authentic: Whether it calls none of those that the reference calls; null if that was not asked, or not seen.
        calls: Operators of torch that its first call runs.
        shared: Those of them that the reference calls too, and that were not allowed.
        is_unseen: Whether it was asked and could not be seen.
    """

    authentic: bool | None = None
    calls: list[str] = []
    shared: list[str] = []
    is_unseen: bool = False


class FailingProgram(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest program that shows why a candidate is rejected.

    Attributes:
        kind: What differs: ``value``, ``gradient``, ``shape``, ``dtype``, ``stateful``, ``crash`` and so on.
        headline: One sentence.
        blame: Which side is wrong, by the run in float64.
        where: Which value differs.
        candidate: What the candidate has.
        reference: What the reference has.
        pattern: Which elements are wrong.
        program: The program with its data; empty with ``--public``.
        message: The whole message; empty with ``--public``.
    """

    kind: str
    headline: str
    blame: str
    where: str = ""
    candidate: str = ""
    reference: str = ""
    pattern: str = ""
    program: str = ""
    message: str = ""


class VerifyVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a verification says of a candidate.

    Attributes:
        schema: Name and version of this format.
        verdict: ``accepted``: it is right in each case, and its own work. ``rejected``: it is wrong, or calls the
            reference's operators. ``undecided``: the reference or the time did not allow a judgement.
        reason: Why, in one sentence.
        correct: Whether no case shows a fault of the candidate; null if that cannot be told.
        authenticity: Which operators of torch it calls by itself.
        cases: Number of cases by outcome.
        profiles: Aligned cases by profile.
        probes: Number of cases that were run many times, with other values, addresses and orders.
        finding: The smallest failing program; null if there is none.
        not_checked: What this verdict does not say.
        reference_sha256: Digest of the reference's file.
        candidate_sha256: Digest of the candidate's file, as it was run.
        options: How it was asked: what else than the defaults.
        hidden: Whether the candidate could not know the seed: it was drawn after the candidate's file was read.
        seed: The seed of the cases, as text; empty with ``--public``.
        sandbox: What held the candidate; empty if nothing did.
        versions: Versions of Python, torch and ci-autotest.
        duration_s: Seconds in all.
        signature: HMAC-SHA256 of this document without this field; empty without a key.
    """

    schema: Literal["ci-autotest/verify/1"] = SCHEMA
    verdict: Answer
    reason: str
    correct: bool | None = None
    authenticity: Authenticity = Authenticity()
    cases: dict[str, int] = {}
    profiles: dict[str, int] = {}
    probes: int = 0
    finding: FailingProgram | None = None
    not_checked: list[str] = []
    reference_sha256: str = ""
    candidate_sha256: str = ""
    options: dict[str, str] = {}
    hidden: bool = False
    seed: str = ""
    sandbox: str = ""
    versions: dict[str, str] = {}
    duration_s: float = 0.0
    signature: str = ""


def undecided(reason: str, **facts: Any) -> VerifyVerdict:
    """Return the verdict that there is none."""
    return VerifyVerdict(verdict="undecided", reason=reason, not_checked=["everything"], **facts)


def rejected(reason: str, **facts: Any) -> VerifyVerdict:
    """Return the verdict on a candidate that cannot be run at all."""
    return VerifyVerdict(verdict="rejected", reason=reason, not_checked=["everything else"], **facts)


def judged(result: RunResult, authenticity: Authenticity, unchecked: Sequence[str], **facts: Any) -> VerifyVerdict:
    """Return the verdict on a candidate whose cases were run.

    Args:
        result: The run.
        authenticity: Which operators of torch it calls.
        unchecked: What else than always was not checked.
        facts: Further fields of the verdict.
    """
    counts = dict.fromkeys(CaseCounts.__struct_fields__, 0)
    for item in result.results:
        for name in counts:
            counts[name] += getattr(item.cases, name)
    failing = next((item for item in result.findings if counts_against(item) or item.outcome == "flaky"), None)
    answer, reason = _answer(result, authenticity, counts, failing)
    compared = sum(count for name, count in counts.items() if name not in {"unsupported", "not_run", "skipped"})
    all_unchecked = [
        *NEVER_CHECKED,
        *unchecked,
        *(f"{item.headline} (blame: {item.blame})" for item in result.findings if item is not failing),
        *(["some cases, for which there was no time"] if counts["not_run"] else ()),
    ]
    return VerifyVerdict(
        verdict=answer,
        reason=reason,
        correct=None if answer == "undecided" or not compared else failing is None,
        authenticity=authenticity,
        cases={name: count for name, count in counts.items() if count},
        profiles=dict(sorted(_profiles(result).items())),
        probes=sum(item.probes.run for item in result.results),
        finding=None if failing is None else _program_of(failing),
        not_checked=all_unchecked,
        **facts,
    )


def _answer(
    result: RunResult, authenticity: Authenticity, counts: dict[str, int], failing: Finding | None
) -> tuple[Answer, str]:
    if failing is not None:
        return "rejected", failing.headline or f"it is {failing.outcome.replace('_', ' ')}"
    if authenticity.shared:
        names = ", ".join(f"aten::{name}" for name in authenticity.shared)
        return "rejected", f"it calls {names}, as the reference does"
    if counts["crashed"] or counts["timed_out"] or counts["flaky"]:
        return "rejected", "it ends its process, hangs, or gives other values in another run"
    doubt = _doubt(result, counts)
    if not doubt and authenticity.is_unseen:
        doubt = "who did the work could not be seen: its first call raises, or takes too long"
    return ("undecided", doubt) if doubt else ("accepted", f"{counts['aligned']} cases are aligned")


def _doubt(result: RunResult, counts: dict[str, int]) -> str:
    """Return why a run without a fault of the candidate does not accept it; empty if it does."""
    # Of a difference for which the reference is to blame, or rounding, the candidate is free.
    if result.findings and counts["aligned"] <= counts["misaligned"] + counts["reference_off"]:
        return f"the reference is at fault, or cannot be judged: {result.findings[0].headline}"
    if result.broken or result.error is not None:
        message = result.broken[0].message if result.broken else result.error.message if result.error else ""
        return message.splitlines()[0]
    if not counts["aligned"]:
        reasons = [item.reason or item.refusal for item in result.results if item.reason or item.refusal]
        return "nothing could be compared" + (f": {reasons[0]}" if reasons else "")
    if counts["unsupported"]:
        return f"{counts['unsupported']} cases could not be compared"
    if result.interrupted or 2 * counts["not_run"] > counts["aligned"]:
        return "the time was over before half of the cases had run"
    return ""


def _profiles(result: RunResult) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in result.results:
        for name, count in item.profiles.items():
            found[name] = found.get(name, 0) + count
    return found


def _program_of(finding: Finding) -> FailingProgram:
    return FailingProgram(
        kind=finding.kind, headline=finding.headline, blame=finding.blame, where=finding.where,
        candidate=finding.candidate_seen, reference=finding.reference_seen,
        pattern=str(finding.pattern) if finding.pattern is not None else "",
        program=finding.program, message=finding.message,
    )  # fmt: skip


def public(verdict: VerifyVerdict) -> VerifyVerdict:
    """Return a verdict without anything of the hidden cases: no data, no seed."""
    found = verdict.finding
    shown = None
    if found is not None:
        shown = FailingProgram(kind=found.kind, headline="", blame=found.blame, where=found.where)
    # Reasons and what was not checked may name numbers behind a colon.
    reason = f"the {found.kind} of a case differs" if found is not None else verdict.reason.partition(": ")[0]
    kept = [each for each in verdict.not_checked if "(blame: " not in each]
    return msgspec.structs.replace(verdict, finding=shown, seed="", reason=reason, not_checked=kept)


def signed(verdict: VerifyVerdict, key: str) -> VerifyVerdict:
    """Return a verdict with its signature; without a key as it is."""
    if not key:
        return verdict
    text = msgspec.json.encode(msgspec.structs.replace(verdict, signature=""), order="sorted")
    return msgspec.structs.replace(verdict, signature=hmac.new(key.encode(), text, hashlib.sha256).hexdigest())


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a verdict."""
    schema = schema_of(VerifyVerdict)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}

"""Make a finding of a verdict, with its headline and message: what the command and pytest print."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.program.note import Note, SubstituteNote
from ci_autotest.report.document import plain_line
from ci_autotest.report.finding_facts import earlier_sentence, facts
from ci_autotest.report.standing import word_of
from ci_autotest.values.amounts import amount_of
from ci_autotest.values.finding import TOLERATED_BLAMES, Finding, Location, counts_against
from ci_autotest.values.verdict import NO_TENSOR, Call, State, Value, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.values.finding import Hit
    from ci_autotest.values.verdict import Verdict


#: What is said of a kind if nothing was seen but that it is one.
_UNSEEN: Final[Mapping[str, str]] = {"crash": "it ends its process", "timeout": "it does not return"}
#: Facts that are in the first line, or that are shown beside the message.
_ELSEWHERE: Final = frozenset({"operator", "kernel", "seen", "status", "files"})
#: Lines of an exception that a terminal shows; the others are on the page.
_DETAIL_LINES: Final = 3
_NOT_FINITE: Final = frozenset({"nan", "inf"})
#: How the detail of a finding begins whose candidate gives a tensor without a gradient.
_NO_GRADIENT: Final = "requires_grad: candidate False, reference True"
#: What PyTorch says where a kernel asks a tensor with a gradient for its NumPy array.
_NUMPY_OF_GRADIENT: Final = "numpy() on Tensor that requires grad"


class About(NamedTuple):
    """The test, case and candidate that a verdict belongs to.

    Attributes:
        name: Used as the operator if no step is to blame.
        seed: Root seed.
        cases: Number of cases that show the finding.
        of_cases: Number of cases that were run.
        tests: Ids of the tests that hit the finding.
        location: Definition of the test.
        attempt: Number of the accepted attempt.
    """

    candidate: str
    test: str
    name: str
    case: int
    seed: int
    profile: str = "ordinary"
    cases: int = 1
    of_cases: int = 1
    tests: tuple[str, ...] = ()
    location: Location | None = None
    hits: tuple[Hit, ...] = ()
    attempt: int = 0


def finding_of(verdict: Verdict, about: About) -> Finding:
    """Return a verdict as a finding, without its program."""
    found = verdict.misalignment
    difference = found.difference if found is not None else None
    operator = verdict.operator or about.name
    kind = verdict.kind or "value"
    finding = Finding(
        id=_identity_id(about.candidate, operator, kind), candidate=about.candidate, operator=operator,
        target=verdict.target or operator, kind=kind, blame=verdict.blame,
        outcome=verdict.outcome if verdict.outcome != "not_run" else "misaligned",
        test=about.test, case=about.case, attempt=about.attempt, seed=about.seed, profile=about.profile,
        greatest_absolute_difference=difference.greatest_absolute if difference else None,
        greatest_relative_difference=difference.greatest_relative if difference else None,
        greatest_ulp_difference=difference.greatest_ulp if difference else None,
        first_index=difference.first_index if difference else None,
        first_pair=difference.first_pair if difference else None,
        where=found.what if found else "", at=printable(found.at) if found else None,
        candidate_seen=found.candidate if found else "",
        lacks_gradient=found is not None and found.lacks_gradient,
        reference_seen=found.reference if found else "", detail=found.detail if found else "", difference=difference,
        oracle=verdict.oracle, oracle_value=verdict.oracle_value, accumulated=verdict.accumulated,
        cases=about.cases, of_cases=max(about.cases, about.of_cases), tests=about.tests, location=about.location,
        growth=verdict.growth, hits=about.hits, demanded=verdict.is_demanded, pattern=verdict.pattern,
        notes=verdict.notes, known=verdict.known or None,
    )  # fmt: skip
    lines = message_lines(finding)
    return msgspec.structs.replace(finding, headline=headline(finding), message="\n".join(lines))


def _identity_id(candidate: str, operator: str, kind: str) -> str:
    # The id is also the name of a folder, so only letters and digits of ASCII are kept.
    name = (
        "".join(c if c.isascii() and c.isalnum() else "_" for c in operator.rpartition(".")[2].lower()).strip("_")
        or "case"
    )
    # Different operators may have the same short name, and each of their findings needs an id of its own.
    digest = blake2b(f"{candidate}\0{operator}\0{kind}".encode(), digest_size=3).hexdigest()
    return f"{name[:60]}-{digest}"


def headline(finding: Finding) -> str:
    """Return one sentence that names the operator, the candidate and what is wrong."""
    # The operator of a loader's finding begins with the test, which the line below names.
    subject = f"{finding.target if finding.kind == 'randomness' else finding.operator} on {finding.candidate}"
    difference = finding.difference
    if not finding.where and not finding.candidate_seen:
        return f"{subject}: {_UNSEEN.get(finding.kind, f'{finding.kind} differs')}"
    if finding.kind in {"value", "gradient", "state"} and difference is not None:
        amount = (
            _unlike(finding)
            if difference.greatest_absolute is None
            else f"off by up to {amount_of(difference.greatest_absolute, '.2g')}"
        )
        whose = "the reference's " if finding.blame == "reference" else ""
        return f"{subject}: {whose}{finding.where} is {amount}"
    sentences = {
        "crash": f"{subject}: {finding.candidate_seen}",
        "timeout": f"{subject}: {finding.candidate_seen}",
        "error": f"{subject}: {finding.candidate_seen} where the reference returns",
        "leniency": f"{subject}: accepts what the reference rejects",
        "aliasing": f"{subject}: {finding.where}: the candidate {finding.candidate_seen}, the reference "
        f"{finding.reference_seen}",
        "nondeterminism": f"{subject}: the {finding.blame} differs from itself on the same inputs",
        "gradient": f"{subject}: {finding.where} is {finding.candidate_seen}, not {finding.reference_seen}",
        "randomness": f"{subject}: {finding.candidate_seen}",
        "rank": f"{subject}: {finding.where}: {finding.candidate_seen}",
        "stateful": f"{subject}: {finding.detail.partition('. ')[0] or f'{finding.where} differs after other calls'}",
        "mutation": f"{subject}: {finding.where} differs: one side wrote to memory that the other left alone",
    }
    if finding.kind in {"mutation", "metadata"} and isinstance(finding.at, Call):
        return f"{subject}: {finding.candidate_seen}"
    if finding.kind == "mutation" and difference is None:
        return f"{subject}: {finding.where} is {finding.candidate_seen}, not {finding.reference_seen}"
    if finding.kind == "shape" and NO_TENSOR in {finding.candidate_seen, finding.reference_seen}:
        return f"{subject}: {_subject(finding)} is {finding.candidate_seen}, not {finding.reference_seen}"
    if finding.lacks_gradient:
        return f"{subject}: {_subject(finding)} has the right values and no gradient"
    otherwise = (
        f"{subject}: {finding.kind} of {_subject(finding)} is {finding.candidate_seen}, not {finding.reference_seen}"
    )
    return sentences.get(finding.kind, otherwise)


def _unlike(finding: Finding) -> str:
    """Return how a tensor differs of which one side is not finite."""
    pair = finding.difference.first_pair_decimal if finding.difference is not None else ("", "")
    if pair[1].lstrip("-") not in _NOT_FINITE:
        return "not finite"
    is_of_reference = finding.blame == "reference"  # Then the reference is the subject.
    return (
        f"{pair[1]} where the candidate is {pair[0]}"
        if is_of_reference
        else f"{pair[0]} where the reference is {pair[1]}"
    )


def _subject(finding: Finding) -> str:
    """Return the name of the value or parameter whose shape, dtype or other kind the headline states."""
    at = finding.at
    if isinstance(at, Value) and at.aspect not in {"memory", "end"}:
        return finding.where.removeprefix(f"{at.aspect} of ")
    return finding.where.removeprefix("state ") if isinstance(at, State) and at.name else finding.where


def message_lines(finding: Finding, folder: str = "") -> list[str]:
    """Return the message: what differs, where, got and allowed, which side is wrong, and how to replay it.

    Args:
        finding: Any.
        folder: The finding's folder; the replay line is left out without it.
    """
    if finding.kind == "randomness":
        lines = [f"{word_of(finding)}: {headline(finding)}", f"  {finding.test}, seed {finding.seed}"]
        # The first line of the detail repeats the sentence that the message begins with.
        return [*lines, *(f"  {line}" for line in finding.detail.splitlines()[1:]), *_replay_line(finding, folder)]
    told = facts(finding)
    if finding.outcome in {"crashed", "timed_out"}:
        verb = "timed out" if finding.outcome == "timed_out" else "crashed"
        where = f"{finding.where}, case {finding.case} of {finding.test}, seed {finding.seed}"
        lines = [f"{verb}: {finding.operator} on {finding.candidate}: {finding.candidate_seen} {where}"]
        lines += [f"  {name}: {plain_line(told[name])}" for name in ("notes", "blame") if name in told]
    else:
        lines = [f"{word_of(finding)}: {headline(finding)}"]
        lines += [f"  {name}: {plain_line(fact)}" for name, fact in told.items() if name not in _ELSEWHERE]
    lines += [f"  {line[:300]}" for line in _telling_lines(finding.detail)]
    if finding.earlier:
        lines.append(f"  {earlier_sentence(finding)}")
    if finding.growth:
        grown = [f"{item.what} {_amount(item.greatest_absolute)}" for item in finding.growth]
        lines.append(f"  accumulated error: no step is misaligned on its own; it grows over {', '.join(grown)}")
    if not counts_against(finding) and finding.blame in TOLERATED_BLAMES:
        whose = "the reference is off" if finding.blame == "reference" else "both sides round as they may"
        lines.append(f"  accepted: {whose}, so this fails no run")
    return [*lines, *_replay_line(finding, folder)]


def _telling_lines(detail: str) -> list[str]:
    """Return the first lines of a detail: a compiler's own error stands below that of torch, which only wraps it."""
    return [line for line in detail.splitlines() if line.strip()][:_DETAIL_LINES]


def advice(finding: Finding, note: Note) -> list[str]:
    """Return the row to write for a kernel that has no backward pass.

    Args:
        finding: Any.
        note: That of its program.
    """
    if (
        not isinstance(note.side, SubstituteNote)
        and finding.kind == "metadata"
        and finding.detail.startswith(_NO_GRADIENT)
    ):
        return ["If this candidate has no backward pass, write forward_only: true in its row: then only values count."]
    lacks_gradient = finding.lacks_gradient or (finding.kind == "error" and _NUMPY_OF_GRADIENT in finding.detail)
    if not lacks_gradient or not isinstance(note.side, SubstituteNote):
        return []
    return [
        "If this kernel has no backward pass by design, put that into its row: then only values count.",
        f"  - {{name: {finding.candidate}, …, forward_only: [{finding.operator}]}}",
    ]


def _replay_line(finding: Finding, folder: str) -> list[str]:
    if not folder:
        return []
    return [f"  replay: {f'python {folder}/repro.py' if finding.repro is not None else finding.replay}"]


def _amount(number: float | None) -> str:
    return "not finite" if number is None else amount_of(number, ".2g")

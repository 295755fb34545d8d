"""The message of a finding: headline, facts, program. The command and pytest print the same."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.program.codegen import body_statements, named_outside
from ci_autotest.program.ir import HOST_DEVICE, PLACEHOLDER, cotangent_key, output_refs
from ci_autotest.program.python_names import is_path
from ci_autotest.program.repro.snippet import made_lines, snippet, tensor_expression
from ci_autotest.program.repro.snippet_checks import Facts
from ci_autotest.values.result import Finding, Location
from ci_autotest.values.tolerance import tolerance_for
from ci_autotest.values.verdict import Call, Cotangent, Gradient, State, Value, is_of_backward, place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ci_autotest.program.ir import Program, Recording
    from ci_autotest.values.result import Hit
    from ci_autotest.values.verdict import Place, Verdict


#: The symbol of a device where printed code reads it, and not a keyword of that name.
_READS_DEVICE: Final = re.compile(r"(?<![\w.'\"])device(?![\w'\"]|=)")
#: A folder below this one.
_FOLDER: Final = re.compile(r"[\w.-]+(?:/[\w.-]+){0,20}", re.ASCII)
#: Characters of a function's name that is told.
_PATH_CHARS: Final = 200


class About(NamedTuple):
    """Say which case of which test a verdict is about.

    Attributes:
        candidate: Name.
        test: Id.
        name: What stands for the operator where no step is to blame.
        case: Its number.
        seed: Root seed.
        profile: What the case was about.
        cases: Cases in which it was seen.
        of_cases: Cases that were run.
        tests: Ids of the tests that hit it.
        location: Where the test is defined.
        hits: What hit it.
        attempt: Number of its accepted attempt.
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
        where=found.what if found else "", candidate_seen=found.candidate if found else "",
        reference_seen=found.reference if found else "", detail=found.detail if found else "", difference=difference,
        oracle=verdict.oracle, oracle_value=verdict.oracle_value, accumulated=verdict.accumulated,
        cases=about.cases, of_cases=max(about.cases, about.of_cases), tests=about.tests, location=about.location,
        growth=verdict.growth, hits=about.hits, demanded=verdict.is_demanded,
    )  # fmt: skip
    lines = message_lines(finding)
    return msgspec.structs.replace(finding, headline=headline(finding), message="\n".join(lines))


def _identity_id(candidate: str, operator: str, kind: str) -> str:
    name = (
        "".join(c if c.isascii() and c.isalnum() else "_" for c in operator.rpartition(".")[2].lower()).strip("_")
        or "case"
    )
    digest = blake2b(f"{candidate}\0{operator}\0{kind}".encode(), digest_size=3).hexdigest()
    return f"{name[:60]}-{digest}"


def headline(finding: Finding) -> str:
    """Return the one sentence that names operator, candidate and what is wrong."""
    subject = f"{finding.operator} on {finding.candidate}"
    difference = finding.difference
    if finding.kind in {"value", "gradient", "state"} and difference is not None:
        amount = (
            "not finite"
            if difference.greatest_absolute is None
            else f"off by up to {amount_of(difference.greatest_absolute, '.2g')}"
        )
        return f"{subject}: {finding.where} is {amount}"
    sentences = {
        "crash": f"{subject}: {finding.candidate_seen}",
        "timeout": f"{subject}: {finding.candidate_seen}",
        "error": f"{subject}: {finding.candidate_seen} where the reference returns",
        "leniency": f"{subject}: accepts what the reference rejects",
        "aliasing": f"{subject}: {finding.where}: the candidate {finding.candidate_seen}, the reference "
        f"{finding.reference_seen}",
        "nondeterminism": f"{subject}: the {finding.blame} differs from itself on the same inputs",
        "gradient": f"{subject}: {finding.where} is {finding.candidate_seen}, not {finding.reference_seen}",
        "stateful": f"{subject}: {finding.detail.partition('. ')[0]}",
        "mutation": f"{subject}: {finding.where} differs: one side wrote to memory that the other left alone",
    }
    if finding.kind == "mutation" and difference is None:
        return f"{subject}: {finding.where} is {finding.candidate_seen}, not {finding.reference_seen}"
    otherwise = (
        f"{subject}: {finding.kind} of {_subject(finding)} is {finding.candidate_seen}, not {finding.reference_seen}"
    )
    return sentences.get(finding.kind, otherwise)


def _subject(finding: Finding) -> str:
    """Return what it is whose kind is told: a value, or a parameter after the run, by its name alone."""
    at = place_of(finding.where)
    if isinstance(at, Value) and at.aspect not in {"memory", "end"}:
        return finding.where.removeprefix(f"{at.aspect} of ")
    return finding.where.removeprefix("state ") if isinstance(at, State) and at.name else finding.where


def message_lines(finding: Finding, folder: str = "") -> list[str]:
    """Return the message: what, where, got and allowed, who is wrong, what to do."""
    if finding.outcome in {"crashed", "timed_out"}:
        verb = "timed out" if finding.outcome == "timed_out" else "crashed"
        where = f"{finding.where}, case {finding.case} of {finding.test}, seed {finding.seed}"
        lines = [f"{verb}: {finding.operator} on {finding.candidate}: {finding.candidate_seen} {where}"]
    else:
        origin = f"case {finding.case} of {finding.test}, seed {finding.seed}, profile {finding.profile}"
        lines = [f"misaligned: {finding.operator} on {finding.candidate}, {finding.where}", f"  {origin}"]
        lines += _numbers(finding)
        candidate, reference = sides(finding.kind)
        lines.append(f"  {candidate} {finding.candidate_seen}; {reference} {finding.reference_seen}")
    if finding.detail:
        lines.append(f"  {finding.detail.splitlines()[0][:300]}")
    if finding.earlier:
        lines.append(f"  {earlier(finding)}")
    if finding.growth:
        grown = [f"{item.what} {_amount(item.greatest_absolute)}" for item in finding.growth]
        lines.append(f"  accumulated, no step is misaligned alone; the error grows: {', '.join(grown)}")
    if finding.layer:
        lines.append(f"  the layer at fault is {finding.layer}")
    lines.append(f"  blame: {finding.blame}; {finding.oracle}")
    if folder:
        lines.append(f"  replay: {f'python {folder}/repro.py' if finding.repro is not None else finding.replay}")
    return lines


def sides(kind: str | None) -> tuple[str, str]:
    """Return what is held against what: two runs of one side, where it differs from itself."""
    return ("second run", "first run") if kind == "nondeterminism" else ("candidate", "reference")


def earlier(finding: Finding) -> str:
    """Return the sentence of a finding that only an earlier run's cases have shown, and how it is forgotten."""
    return (
        f"no case of this run shows it: an earlier run found it, and its program still does, kept in "
        f".autotest/findings/{finding.id} (delete that folder if its test no longer means it)"
    )


def amount_of(number: float, form: str) -> str:
    """Return a difference for a reader: that of integers with all its digits."""
    return f"{number:,}" if isinstance(number, int) else f"{number:{form}}"


def _amount(number: float | None) -> str:
    return "not finite" if number is None else amount_of(number, ".2g")


def _numbers(finding: Finding) -> list[str]:
    difference = finding.difference
    if difference is None:
        return []
    share = 100 * difference.mismatched / max(difference.total, 1)
    allowed = f"up to {difference.atol:g} + {difference.rtol:g} * |reference| allowed"
    absolute = "not finite" if difference.greatest_absolute is None else amount_of(difference.greatest_absolute, ".2e")
    ulp = "" if difference.greatest_ulp is None else f", {difference.greatest_ulp:,} ULP"
    pair, (candidate, reference) = difference.first_pair_decimal, sides(finding.kind)
    mismatched = f"  mismatched elements: {difference.mismatched} / {difference.total} ({share:.3g} %)"
    greatest = f"greatest absolute difference {absolute} at {_index(difference.greatest_index)}"
    return [
        f"{mismatched}, {greatest} ({allowed}){ulp}",
        f"  first bad element at {_index(difference.first_index)}: {candidate} {pair[0]}, {reference} {pair[1]}",
    ]


def _index(index: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, index))})"


def display_program(recording: Recording, finding: Finding, named: Collection[str] | None = None) -> str:
    """Return the program for a reader: what fails when it is pasted, else the reference's side with what is at fault.

    Args:
        recording: The smallest program; tensors are exact literals when small and there.
        finding: What is told of it.
        named: Modules and functions that it may name, where it comes from outside; ``None``: any.
    """
    if failing := snippet(recording, facts_of(recording, finding, named)):
        return failing
    statements = list(body_statements(recording.program))
    calls = [line for _, lines in statements for line in lines]
    if calls:
        culprit = culprit_of(recording.program, finding)
        before = next((at for at, (index, _) in enumerate(statements) if index == culprit), len(statements) - 1)
        at = _marked(calls, finding, sum(len(lines) for _, lines in statements[: before + 1]) - 1)
        calls[at] = f"{calls[at]}  # {mark(finding)}"
    after = _backward_lines(recording, finding) if has_backward(finding) else []
    answers = _answers(recording, finding)
    return "\n".join([*_head(recording, answers, [*calls, *after]), *calls, *after])


def culprit_of(program: Program, finding: Finding) -> int | None:
    """Return the index of the step that is misaligned: the last that bears the finding's target, else the last call."""
    calls = program.calls
    named = [index for index, step in calls if finding.target and step.target == finding.target]
    found = named or [index for index, _ in calls]
    return found[-1] if found else None


def facts_of(recording: Recording, finding: Finding, named: Collection[str] | None = None) -> Facts:
    """Return what a snippet must know of a finding; the rest is as for ``display_program``."""
    at = place_of(finding.where)
    difference, rules = finding.difference, recording.note.get("rules")
    dtypes = [spec.dtype for spec in recording.expected.values()] or ["float32"]
    default = tolerance_for(dtypes[0])
    return Facts(
        kind=finding.kind,
        aspect=_aspect(at),
        name=at.name if isinstance(at, Value | Gradient | Call) else "",
        element=at.element if isinstance(at, Value) else None,
        parameter=at.parameter if isinstance(at, Gradient) else "",
        position=at.position if isinstance(at, Cotangent) else 0,
        has_backward=has_backward(finding),
        is_absent=difference is None,
        of_reference=finding.blame == "reference",
        rtol=difference.rtol if difference else default.rtol,
        atol=difference.atol if difference else default.atol,
        check_dtype=not (isinstance(rules, dict) and rules.get("check_dtype") is False),
        is_strict=recording.note.get("strictness", "tolerance") != "tolerance",
        mark=mark(finding),
        named=named,
        folders=_folders(recording),
    )


def _folders(recording: Recording) -> tuple[str, ...]:
    """Return the folders of the checkout that the import path must have; no others, whatever a note says."""
    told = recording.note.get("folders")
    texts = [folder for folder in told if isinstance(folder, str)] if isinstance(told, list) else []
    return tuple(folder for folder in texts if _FOLDER.fullmatch(folder) and ".." not in folder.split("/"))


def _aspect(at: Place | None) -> str:
    match at:
        case Value(aspect=("metadata" | "memory" | "end") as aspect):
            return aspect
        case Gradient():
            return "gradient"
        case Cotangent():
            return "cotangent"
        case State():
            return "state"
        case Call():
            return "call"
        case _:
            return "value"


def _head(recording: Recording, answers: Sequence[str], rest: Sequence[str]) -> list[str]:
    """Return what stands above the body: imports, the device, the inputs and the setup, so that the whole can be run.

    Args:
        recording: The program and its data; those that are not there are read from the file.
        answers: Comments on what the candidate does with it.
        rest: The lines that follow.
    """
    made = made_lines(recording)
    lines = [*made, *rest]
    is_stored = any("stored[" in line for line in lines)
    return [
        "import torch",
        *(["from safetensors.torch import load_file"] if is_stored else ()),
        "",
        *([f"device = torch.device({HOST_DEVICE!r})"] if any(_READS_DEVICE.search(line) for line in lines) else ()),
        *(['stored = load_file("tensors.safetensors")  # the file beside the repro'] if is_stored else ()),
        *answers,
        *made,
    ]


def _backward_lines(recording: Recording, finding: Finding) -> list[str]:
    """Return the backward pass, and the line that reads the gradient that is misaligned."""
    program, named = recording.program, named_outside(recording.program)
    told = "differs from run to run" if finding.kind == "nondeterminism" else "misaligned"
    put_in = {
        named[ref.index]: tensor_expression(recording, cotangent_key(i), spec, grad=False)
        for i, (ref, spec) in enumerate(zip(output_refs(program), program.cotangents, strict=False))
        if spec is not None
    }
    lines = [f"{name}.backward({weight})" for name, weight in put_in.items()]
    if len(put_in) > 1:  # One pass: a second one finds no graph.
        lines = [f"torch.autograd.backward([{', '.join(put_in)}], [{', '.join(put_in.values())}])"]
    at = place_of(finding.where)
    if not isinstance(at, Gradient):
        return lines
    index = next((i for i, step in enumerate(program.steps) if step.name == at.name), None)
    if index is None:
        return lines
    if at.parameter:
        return [*lines, f"{named[index]}.get_parameter({at.parameter!r}).grad  # {told}"]
    kept = [f"{named[index]}.retain_grad()"] if program.steps[index].op != PLACEHOLDER else []
    return [*kept, *lines, f"{named[index]}.grad  # {told}"]


def has_backward(finding: Finding) -> bool:
    """Whether it takes the backward pass to see what differs."""
    return finding.kind == "gradient" or is_of_backward(place_of(finding.where))


def _answers(recording: Recording, finding: Finding) -> list[str]:
    """Return the line that says which function of the user's answers the operator, or that the body is exported.

    Of a module that hides what it calls, each replacement is named: one of them may be called inside.
    """
    if recording.note.get("backend") == "onnxruntime":
        return ["# what follows is exported by torch.onnx.export and run by onnxruntime"]
    spellings = recording.note.get("spellings")
    said = spellings.items() if isinstance(spellings, dict) else ()
    pairs = [
        (path, [name for name in spelled if is_path(name)])
        for path, spelled in said
        if is_path(path) and len(path) <= _PATH_CHARS and isinstance(spelled, list)
    ]
    own = [(path, [finding.operator]) for path, spelled in pairs if finding.operator in spelled]
    return [f"# {spelled[0]} is answered by {path}" for path, spelled in own[:1] or pairs[:3] if spelled]


def mark(finding: Finding) -> str:
    """Return what is written beside the line that is at fault."""
    if finding.kind == "nondeterminism":
        return "its gradient differs from run to run" if has_backward(finding) else "differs from run to run"
    if finding.kind == "leniency" and not has_backward(finding):
        return "is accepted; the reference rejects it"
    at = place_of(finding.where)
    if finding.kind == "stateful" and isinstance(at, Value) and at.aspect == "end":
        return f"changes {at.name}"
    if finding.kind == "stateful" and isinstance(at, State):
        return f"changes state {at.name}".rstrip()
    what = finding.outcome.replace("_", " ") if finding.kind in {"crash", "timeout"} else "misaligned"
    if not has_backward(finding):
        return what
    return f"its backward pass is {what}" if what == "misaligned" else f"its backward pass {what}"


def _marked(calls: list[str], finding: Finding, culprit: int) -> int:
    """Return the position of the line at fault: the culprit's, a tuple's element, or what is to be refused."""
    if finding.kind == "leniency" and "try:" in calls:
        return len(calls) - calls[::-1].index("except Exception as error:") - 2
    place = place_of(finding.where)
    element = place.element if isinstance(place, Value) else None
    found = [at for at, line in enumerate(calls) if element is not None and line.endswith(f"[{element}]")]
    return found[-1] if found else culprit

"""What a finding says: its headline, its message, its program as text. The command and pytest say the same."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ci_autotest.judgement import BACKWARD
from ci_autotest.program.codegen import body_lines, function_text, inputs, names, setup_lines
from ci_autotest.program.ir import PLACEHOLDER, TensorSpec, cotangent_key, output_refs
from ci_autotest.program.literals import INLINE_ELEMENTS, tensor_text
from ci_autotest.result import Finding, Location

if TYPE_CHECKING:
    from ci_autotest.judgement import Verdict
    from ci_autotest.program.ir import Recording, Step
    from ci_autotest.result import Hit


#: Where a worker was lost that ended while it went back.
ENDED_IN_BACKWARD: Final = "in its backward pass"
_GRADIENT: Final = "gradient of "


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
        growth=verdict.growth, hits=about.hits,
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
            "not finite" if difference.greatest_absolute is None else f"off by up to {difference.greatest_absolute:.2g}"
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
    what = finding.where.removeprefix("value of ").removeprefix("state ")
    otherwise = f"{subject}: {finding.kind} of {what} is {finding.candidate_seen}, not {finding.reference_seen}"
    return sentences.get(finding.kind, otherwise)


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
        lines.append(f"  replay: python {folder}/repro.py")
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


def _amount(number: float | None) -> str:
    return "not finite" if number is None else f"{number:.2g}"


def _numbers(finding: Finding) -> list[str]:
    difference = finding.difference
    if difference is None:
        return []
    share = 100 * difference.mismatched / max(difference.total, 1)
    allowed = f"up to {difference.atol:g} + {difference.rtol:g} * |reference| allowed"
    absolute = "not finite" if difference.greatest_absolute is None else f"{difference.greatest_absolute:.2e}"
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


def display_program(recording: Recording, finding: Finding) -> str:
    """Return the program for a reader: tensors inline when small, else by name; the gradient put in, if it matters."""
    program = recording.program
    named = names(program)
    lines = ["import torch", ""]
    if any(spec.storage_size > INLINE_ELEMENTS for spec in _input_specs(recording)):
        lines = ["import torch  # stored(): read from tensors.safetensors beside the repro", ""]
    lines += [*_device(recording), *_answers(recording, finding)]
    for index, step in enumerate(program.steps):
        spec = step.args[0] if step.op == PLACEHOLDER else None
        if isinstance(spec, TensorSpec):
            lines.append(f"{named[index]} = {_tensor(recording, step.target, spec)}")
    lines += setup_lines(program)
    if recording.note.get("backend") == "torch.compile":
        return "\n".join([*lines, *_compiled(recording, finding)])
    calls = body_lines(program)
    if calls:
        at = _marked(calls, finding.where)
        lines += [*calls[:at], f"{calls[at]}  # {mark(finding)}", *calls[at + 1 :]]
    if goes_back(finding):
        for position, ref in enumerate(output_refs(program)):
            spec = program.cotangents[position] if position < len(program.cotangents) else None
            if spec is not None:
                weight = _tensor(recording, cotangent_key(position), spec, grad=False)
                lines.append(f"{named[ref.index]}.backward({weight})")
    if finding.where.startswith(_GRADIENT):
        name = finding.where.removeprefix(_GRADIENT).partition(",")[0]  # Of a graph it says so behind the name.
        lines.append(f"{name}.grad  # {finding.headline}")
    return "\n".join(lines)


def goes_back(finding: Finding) -> bool:
    """Whether it takes the backward pass to see what differs."""
    return finding.kind == "gradient" or finding.where.startswith((_GRADIENT, BACKWARD, ENDED_IN_BACKWARD))


def _compiled(recording: Recording, finding: Finding) -> list[str]:
    """Return the lines that hold the compiled body against the body itself."""
    program = recording.program
    options = recording.note.get("options")
    given = "".join(f", {key}={value!r}" for key, value in options.items()) if isinstance(options, dict) else ""
    takes = ", ".join(name for name, _ in inputs(program))
    lines = ["", "", *function_text(program).splitlines(), "", "", f"compiled = torch.compile(program{given})"]
    if not goes_back(finding):
        return [*lines, f"torch.testing.assert_close(compiled({takes}), program({takes}))  # {mark(finding)}"]
    named = names(program)
    leaves = [named[i] for i, step in enumerate(program.steps) if _wants_gradient(step)]
    weights = [
        _tensor(recording, cotangent_key(i), spec, grad=False) if spec is not None else "None"
        for i, spec in enumerate(program.cotangents)
    ]
    outputs = [i for i, weight in enumerate(weights) if weight != "None"]
    roots = f"[function({takes})[i] for i in {outputs}]"
    told = f"[{', '.join(weights[i] for i in outputs)}]"
    gradients = f"torch.autograd.grad({roots}, [{', '.join(leaves)}], {told}, allow_unused=True)"
    lines.append(f"found, expected = ({gradients} for function in (compiled, program))")
    return [*lines, f"torch.testing.assert_close(found, expected)  # {mark(finding)}"]


def _wants_gradient(step: Step) -> bool:
    return step.op == PLACEHOLDER and isinstance(step.args[0], TensorSpec) and step.args[0].requires_grad


def _answers(recording: Recording, finding: Finding) -> list[str]:
    """Return the line that says which function of the user's answers the operator, or that the body is exported.

    Of a module that hides what it calls, each replacement is named: one of them may be called inside.
    """
    if recording.note.get("backend") == "onnxruntime":
        return [f"# on {finding.candidate}, what follows is exported by torch.onnx.export and run by onnxruntime"]
    spellings = recording.note.get("spellings")
    pairs = list(spellings.items()) if isinstance(spellings, dict) else []
    for path, spelled in pairs:
        if finding.operator in spelled:
            return [f"# on {finding.candidate}, {finding.operator} is answered by {path}"]
    return [f"# on {finding.candidate}, {spelled[0]} is answered by {path}" for path, spelled in pairs[:3] if spelled]


def _device(recording: Recording) -> list[str]:
    """Return the lines that say where a candidate with a device runs: the program shows no copies."""
    device, module = recording.note.get("device"), recording.note.get("device_module")
    if not module or not isinstance(module, str) or not all(part.isidentifier() for part in module.split(".")):
        return []
    return [f"import {module}", f"# runs on device {str(device)[:60]!r}", ""]


def _input_specs(recording: Recording) -> list[TensorSpec]:
    specs = [step.args[0] for step in recording.program.steps if step.op == PLACEHOLDER]
    return [spec for spec in (*specs, *recording.program.cotangents) if isinstance(spec, TensorSpec)]


def mark(finding: Finding) -> str:
    """Return what is written beside the line that is at fault."""
    if finding.kind == "nondeterminism":
        return "its gradient differs from run to run" if goes_back(finding) else "differs from run to run"
    if finding.kind == "stateful" and finding.where.endswith(" after the run"):
        return f"changes {finding.where.removesuffix(' after the run')}"
    what = finding.outcome.replace("_", " ") if finding.kind in {"crash", "timeout"} else "misaligned"
    if not goes_back(finding):
        return what
    return f"its backward pass is {what}" if what == "misaligned" else f"its backward pass {what}"


def _marked(calls: list[str], where: str) -> int:
    """Return the position of the line that is misaligned: the last, or that of the element of a tuple that is named."""
    element = re.fullmatch(r"value of .*(\[\d+\])", where)
    found = [at for at, line in enumerate(calls) if element is not None and line.endswith(element[1])]
    return found[-1] if found else len(calls) - 1


def _tensor(recording: Recording, key: str, spec: TensorSpec, *, grad: bool = True) -> str:
    shape = spec.shape if spec.is_contiguous else (spec.storage_size,)
    text = f"stored({key!r}).reshape({shape})"
    if spec.storage_size <= INLINE_ELEMENTS:
        text = tensor_text(recording.tensors[key], spec.dtype, shape)
    if not spec.is_contiguous:
        text += f".as_strided({spec.shape}, {spec.strides}, {spec.offset})"
    return f"{text}.requires_grad_()" if grad and spec.requires_grad else text

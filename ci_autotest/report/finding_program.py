"""A finding's program as text: one that fails when it is pasted, or the reference's side for reading, and why."""

from __future__ import annotations

import math
import re
from textwrap import wrap
from typing import TYPE_CHECKING, Final

import msgspec

from ci_autotest.program.codegen import body_statements, named_outside, names
from ci_autotest.program.ir import HOST_DEVICE, PLACEHOLDER, cotangent_key, output_refs
from ci_autotest.program.note import DTensorNote, ExportNote, OnnxRuntimeNote, SubstituteNote, TrainingNote
from ci_autotest.program.python_names import is_path
from ci_autotest.program.repro.module_ranks import share_lines
from ci_autotest.program.repro.operator_modules import import_lines
from ci_autotest.program.repro.plain_program import is_plain_program
from ci_autotest.program.repro.rank_processes import global_lines
from ci_autotest.program.repro.ranks import rank_lines
from ci_autotest.program.repro.snippet import Snippet, has_known_operators, made_lines, snippet, tensor_expression
from ci_autotest.program.repro.snippet_checks import Facts
from ci_autotest.program.repro.snippet_sides import own_names
from ci_autotest.report.finding_folders import FINDINGS
from ci_autotest.values.finding import TOLERATED_BLAMES
from ci_autotest.values.tolerance import tolerance_for
from ci_autotest.values.verdict import Call, Cotangent, Gradient, State, Value, is_of_backward

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.program.ir import Program
    from ci_autotest.program.recording import Recording
    from ci_autotest.program.repro.permissions import Permissions
    from ci_autotest.values.finding import Finding, NoProgram
    from ci_autotest.values.verdict import Place

#: Why a finding has no program that fails when it is pasted.
_WHY: Final[Mapping[NoProgram, str]] = {
    "unconfirmed": "it was not run again in a fresh process",
    "flaky": "it did not show again",
    "calls": "it shows only in a later call of the body, and a program of several calls would be another body",
    "cases": "it shows only after other cases, and no sequence of their calls shows it",
    "loader": "the fault is in how a data loader draws its numbers",
    "elsewhere": "a few lines cannot run this candidate",
    "bands": "guard bands around what the kernel allocates show it",
    "checks": "torch checks an operator that is called inside another call",
    "tensors": "its tensors are too large to print",
    "unnamed": "the configuration here does not name what the candidate is made of",
    "unrecorded": "no program that shows it could be recorded",
    "passes": "the lines that compare both sides pass in a fresh process",
    "stops": "the lines that compare both sides end with another error in a fresh process",
}
#: Reasons that only a run tells, and not the program itself.
_OF_A_RUN: Final = frozenset({"flaky", "calls", "cases", "passes", "stops"})
_COMMENT_CHARS: Final = 112
#: A use of the name ``device`` in printed code, but not as a keyword argument.
_READS_DEVICE: Final = re.compile(r"(?<![\w.'\"])device(?![\w'\"]|=)")
#: Most and fewest seconds that a reader waits for the program of a hang.
_WAIT_S: Final = (60, 5)
#: A relative folder inside the checkout.
_FOLDER: Final = re.compile(r"[\w.-]+(?:/[\w.-]+){0,20}", re.ASCII)
#: Longest path of a replacement that a comment names.
_PATH_CHARS: Final = 200


def display_program(recording: Recording, finding: Finding, permissions: Permissions | None = None) -> str:
    """Return the text of ``shown_program``."""
    return shown_program(recording, finding, permissions).text


def shown_program(
    recording: Recording, finding: Finding, permissions: Permissions | None = None, known: NoProgram = ""
) -> Snippet:
    """Return a program that fails when it is pasted; if there is none, the reference's side for reading, and why.

    Args:
        recording: The smallest program; small tensors whose data is present become exact literals.
        finding: The finding of that program.
        permissions: What the text may name; ``None`` allows all, for a program of this machine.
        known: Why no program fails, if that is known already.
    """
    if permissions is not None:  # A stranger's script is not to be run.
        finding = msgspec.structs.replace(finding, repro=None)
    found = Snippet(reason=known)
    if not known:
        found = snippet(recording, facts_of(recording, finding, permissions))
    if found.reason == "tensors":  # Then there is no file that the other lines could read either.
        return found._replace(text="\n".join(_comment(finding, found.reason)))
    if found.text:
        return found
    text = _outline(recording, finding, found.reason)
    is_known = permissions is None or (
        has_known_operators(recording, permissions) and own_names(recording.note) <= {*permissions.names}
    )
    # What is only to be read may be pasted all the same.
    return found._replace(text=text if is_known or is_plain_program(text) else "")


def program_or_reason(finding: Finding) -> str:
    """Return the program of a finding; if it has none, a comment that says why."""
    return finding.program or "\n".join(_comment(finding, finding.no_program))


def missing_program(finding: Finding) -> str:
    """Return why a finding has no program to paste, in one sentence; empty if it has one."""
    return _sentence(finding, finding.no_program) if finding.no_program else ""


def reason_of_run(finding: Finding) -> NoProgram:
    """Return why a finding has no program if the run found that out; the program itself does not tell."""
    return finding.no_program if finding.no_program in _OF_A_RUN else ""


def _sentence(finding: Finding, reason: NoProgram) -> str:
    again = "; repro.py runs it" if finding.repro is not None else ""
    return f"no program to paste: {_WHY[reason]}{again}"


def _comment(finding: Finding, reason: NoProgram) -> list[str]:
    return [f"# {line}" for line in wrap(_sentence(finding, reason), _COMMENT_CHARS)] if reason else []


def _outline(recording: Recording, finding: Finding, reason: NoProgram) -> str:
    """Return the reference's side with the line at fault marked, below the comment that it is for reading only."""
    statements = list(body_statements(recording.program))
    calls = [line for _, lines in statements for line in lines]
    if calls:
        culprit = culprit_of(recording.program, finding)
        before = next((at for at, (index, _) in enumerate(statements) if index == culprit), len(statements) - 1)
        at = _marked(calls, finding, sum(len(lines) for _, lines in statements[: before + 1]) - 1)
        calls[at] = f"{calls[at]}  # {mark(finding)}"
    after = _backward_lines(recording, finding) if has_backward(finding) else []
    answers = _answers(recording, finding)
    head = _head(recording, finding, answers, [*calls, *after])
    return "\n".join([*_comment(finding, reason), *head, *calls, *after])


def culprit_of(program: Program, finding: Finding) -> int | None:
    """Return the index of the misaligned step: the last one with the finding's target, else the last call."""
    calls = program.calls
    named = [index for index, step in calls if finding.target and step.target == finding.target]
    found = named or [index for index, _ in calls]
    return found[-1] if found else None


def facts_of(recording: Recording, finding: Finding, permissions: Permissions | None = None) -> Facts:
    """Return the facts of a finding that its snippet needs; ``permissions`` as for ``display_program``."""
    at = finding.at
    difference, rules = finding.difference, recording.note.rules
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
        check_dtype=rules is None or rules.check_dtype,
        is_strict=recording.note.strictness != "tolerance",
        mark=mark(finding),
        permissions=permissions,
        folders=_folders(recording, permissions),
        file=_tensor_file(recording, finding, permissions),
        timeout_s=_timeout_s(recording),
    )


def _timeout_s(recording: Recording) -> int:
    """Return how many seconds the program of a hang waits: as long as a case may take, at most a minute."""
    most, least = _WAIT_S
    limit = recording.note.case_timeout_s
    # The note may come from outside: it may hold infinity.
    return max(least, math.ceil(limit)) if limit is not None and 0 <= limit <= most else most


def _folders(recording: Recording, permissions: Permissions | None) -> tuple[str, ...]:
    """Return the folders of the checkout that the import path needs; from outside, only configured ones."""
    texts = recording.note.folders
    if permissions is not None:
        return tuple(folder for folder in texts if folder in permissions.folders)
    # A note of this machine may name a folder outside of the checkout: the text is the same for every reader.
    return tuple(folder for folder in texts if _FOLDER.fullmatch(folder) and ".." not in folder.split("/"))


def _tensor_file(recording: Recording, finding: Finding, permissions: Permissions | None) -> str:
    """Return the path of the finding's tensors from where the run was started; empty if it has no folder."""
    # A saved program does not say where the run wrote it.
    output = recording.note.output if permissions is None else permissions.report
    return "" if not output else f"{output}/{FINDINGS}/{finding.id}/tensors.safetensors"


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


def _head(recording: Recording, finding: Finding, answers: Sequence[str], rest: Sequence[str]) -> list[str]:
    """Return the lines above the body: imports, device, inputs and setup.

    Args:
        recording: The program; tensors that it lacks are read from ``tensors.safetensors``.
        finding: The finding of that program.
        answers: Comments on how the candidate runs the program.
        rest: The lines that follow.
    """
    made = made_lines(recording)
    lines = [*made, *rest]
    is_stored = any("stored[" in line for line in lines)
    file = _tensor_file(recording, finding, None) or "tensors.safetensors"
    return [
        "import torch",
        *import_lines(recording),
        *(["from safetensors.torch import load_file"] if is_stored else ()),
        "",
        *([f"device = torch.device({HOST_DEVICE!r})"] if any(_READS_DEVICE.search(line) for line in lines) else ()),
        *([f"stored = load_file({file!r})  # the file beside the repro"] if is_stored else ()),
        *answers,
        *made,
    ]


def _backward_lines(recording: Recording, finding: Finding) -> list[str]:
    """Return the backward pass and a line that reads the misaligned gradient."""
    program, named = recording.program, named_outside(recording.program)
    fault = "differs from run to run" if finding.kind == "nondeterminism" else "misaligned"
    put_in = {
        named[ref.index]: tensor_expression(recording, cotangent_key(i), spec, grad=False)
        for i, (ref, spec) in enumerate(zip(output_refs(program), program.cotangents, strict=False))
        if spec is not None
    }
    lines = [f"{name}.backward({weight})" for name, weight in put_in.items()]
    if len(put_in) > 1:  # One call for all outputs: after a first one the graph is freed.
        lines = [f"torch.autograd.backward([{', '.join(put_in)}], [{', '.join(put_in.values())}])"]
    at = finding.at
    if not isinstance(at, Gradient):
        return lines
    index = next((i for i, name in enumerate(names(program)) if name == at.name), None)
    if index is None:
        return lines
    if at.parameter:
        return [*lines, f"{named[index]}.get_parameter({at.parameter!r}).grad  # {fault}"]
    kept = [f"{named[index]}.retain_grad()"] if program.steps[index].op != PLACEHOLDER else []
    return [*kept, *lines, f"{named[index]}.grad  # {fault}"]


def has_backward(finding: Finding) -> bool:
    """Whether the difference only shows in the backward pass."""
    return finding.kind == "gradient" or is_of_backward(finding.at)


def _answers(recording: Recording, finding: Finding) -> list[str]:
    """Return comments on how the candidate runs the program: its ranks, its export, or the user's replacement."""
    host = recording.note.host
    if host is not None and host.ranks:
        return global_lines(recording, host.ranks)
    match recording.note.side:
        case DTensorNote():
            return rank_lines(recording)
        case TrainingNote():
            return share_lines(recording)
        case OnnxRuntimeNote():
            return ["# the code below is exported by torch.onnx.export and run by onnxruntime"]
        case ExportNote(transform=path) if path:
            return [f"# the code below is exported by torch.export and run by what {path} makes of it"]
        case SubstituteNote(spellings=spellings):
            return _replacements(spellings, finding)
        case _:
            return []


def _replacements(spellings: Mapping[str, Sequence[str]], finding: Finding) -> list[str]:
    pairs = [
        (path, [name for name in spelled if is_path(name)])
        for path, spelled in spellings.items()
        if len(path) <= _PATH_CHARS
    ]
    own = [(path, [finding.operator]) for path, spelled in pairs if finding.operator in spelled]
    # A module such as nn.MultiheadAttention hides which operators it calls: then each replacement is named.
    return [f"# {spelled[0]} is replaced by {path}" for path, spelled in own[:1] or pairs[:3] if spelled]


def mark(finding: Finding) -> str:
    """Return the comment beside the line at fault."""
    if finding.kind == "nondeterminism":
        return "its gradient differs from run to run" if has_backward(finding) else "differs from run to run"
    if finding.kind == "leniency" and not has_backward(finding):
        return "is accepted; the reference rejects it"
    at = finding.at
    if finding.kind == "stateful" and isinstance(at, Value) and at.aspect == "end":
        return f"changes {at.name}"
    if finding.kind == "stateful" and isinstance(at, State):
        return f"changes state {at.name}".rstrip()
    if finding.kind in {"crash", "timeout"}:
        what = finding.outcome.replace("_", " ")
    elif finding.blame in TOLERATED_BLAMES:
        what = "differs"  # and not by the fault of the candidate
    else:
        return "its backward pass is misaligned" if has_backward(finding) else "misaligned"
    return f"its backward pass {what}" if has_backward(finding) else what


def _marked(calls: list[str], finding: Finding, culprit: int) -> int:
    """Return the position of the line at fault: the culprit's, that of a tuple's element, or the one to be refused."""
    if finding.kind == "leniency" and "try:" in calls:
        return len(calls) - calls[::-1].index("except Exception as error:") - 2
    place = finding.at
    element = place.element if isinstance(place, Value) else None
    found = [at for at, line in enumerate(calls) if element is not None and line.endswith(f"[{element}]")]
    return found[-1] if found else culprit

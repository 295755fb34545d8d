"""The candidate of a repro as code: the user's kernels, a compiled or rewritten program, or an export.

An exported one needs torch, onnx and onnxruntime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.program.codegen import GRAPH_OPTIONS, body_statements, output_text
from ci_autotest.program.ir import RESULT_BANDS, operator_check_of, result_bands_of
from ci_autotest.program.note import (
    CompileNote,
    DTensorNote,
    ExportNote,
    FxNote,
    OnnxRuntimeNote,
    SubstituteNote,
    TrainingNote,
)
from ci_autotest.program.repro.graph_pass import fx_body
from ci_autotest.program.repro.module_ranks import module_body
from ci_autotest.program.repro.ranks import rank_candidate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ci_autotest.program.ir import Program
    from ci_autotest.program.note import Note
    from ci_autotest.program.recording import Recording


def candidate_text(recording: Recording, takes: Sequence[str]) -> str:
    """Return the function ``candidate`` of a repro.

    Args:
        recording: The program, with the candidate's note.
        takes: Names of what the program takes, in order.
    """
    program, note = recording.program, recording.note
    match note.side:
        case CompileNote():
            return f"candidate = {compiled_text(note, 'reference')}"
        case FxNote():
            return "\n".join(fx_body(program, "reference", note.side, "candidate")) + "\n"
        case DTensorNote():
            return rank_candidate(program, takes)
        case TrainingNote():
            return module_body(recording)
        case OnnxRuntimeNote() | ExportNote():
            return f"def candidate(*_):\n    return {_exported_text(note.side, takes)}"
        case _:
            return _with_functions(recording, takes)


def _with_functions(recording: Recording, takes: Sequence[str]) -> str:
    """Return the function ``candidate`` of a program that calls the user's functions, or PyTorch's."""
    program = recording.program
    rename, mode = _spellings(recording)
    check = next(filter(None, map(operator_check_of, program.steps)), "")
    if check and rename is not None:
        plain = rename
        rename, mode = (
            lambda target: target if plain(target) == target else f"checked({plain(target)}, {check!r})",
            {f"checked({path}, {check!r})": known for path, known in mode.items()},
        )
    head = f"def candidate({', '.join(takes)}):"
    lines = [*_banded_lines(program, rename), f"return {output_text(program)}"]
    if recording.note.kind == "graph":
        options = "".join(f", {key}={value!r}" for key, value in GRAPH_OPTIONS)
        return f"{head}\n{block(lines)}\n\n\ncandidate = torch.compile(candidate{options})"
    if not mode:
        return f"{head}\n{block(lines)}"
    table = "".join(f"    {spelled}: {path},\n" for path, known in sorted(mode.items()) for spelled in known)
    inner = block(["with Replace(REPLACED):", *(f"    {line}" for line in lines)])
    return f"REPLACED = {{\n{table}}}\n\n\n{head}\n{inner}"


def _banded_lines(program: Program, rename: Callable[[str], str] | None) -> list[str]:
    """Return the statements of the body, with guard bands around what a call allocates where its step has them."""
    found = []
    for index, lines in body_statements(program, rename=rename):
        bands = result_bands_of(program.steps[index])
        head = [f"with ResultBands(has_zeros={bands == RESULT_BANDS[1]}):"] if bands else []
        found += [*head, *(f"    {line}" if bands else line for line in lines)]
    return found


def _spellings(recording: Recording) -> tuple[Callable[[str], str] | None, dict[str, list[str]]]:
    """Return how a candidate's calls are spelled, and the spellings that a mode must catch inside other calls."""
    side = recording.note.side
    if not isinstance(side, SubstituteNote):
        return None, {}
    renames, spellings = side.renames, side.spellings
    # A kernel that a printed call names already needs no mode.
    hidden = {path: known for path, known in spellings.items() if path not in renames.values()}
    # Without modules and methods every call is printed with its kernel, and none is hidden in another.
    used = bool(recording.program.setup) or any(step.op == "call_method" for step in recording.program.body)
    return (lambda target: renames.get(target, target)), (hidden if used else {})


def block(lines: Sequence[str]) -> str:
    """Return lines as the body of a function."""
    return "\n".join(f"    {line}" for text in lines for line in text.split("\n"))


def _exported_text(side: OnnxRuntimeNote | ExportNote, takes: Sequence[str]) -> str:
    """Return the expression of what the export of the body gives."""
    given = f"lambda: {{name: inputs()[name] for name in {list(takes)}}}"
    if isinstance(side, OnnxRuntimeNote):
        own = {name: value for name, value in side.options.items() if name in {"dynamo", "opset_version"}}
        return f"through_onnx(reference, {given}, { ({'dynamo': False, **own})!r})"
    form = "module" if side.takes == "module" else "dynamic" if side.dynamic else "static"
    options = "".join(f", {name}={value!r}" for name, value in side.options.items())
    made = f"lambda *body: {side.transform}(*body{options})" if options else side.transform
    return f"through_export(reference, {given}, {made}, {form!r})"


def is_exported(note: Note) -> bool:
    """Whether the candidate is an export of the body, which runs forward only and cannot write to an input."""
    return isinstance(note.side, OnnxRuntimeNote | ExportNote)


def compiled_text(note: Note, function: str) -> str:
    """Return the expression of a function compiled as the candidate does, called without gradients if it does so."""
    options = "".join(f", {key}={value!r}" for key, value in compile_options(note).items())
    compiled = f"torch.compile({function}{options})"
    return compiled if is_trained(note) else f"{_AROUND[note.run_mode]}()({compiled})"


def is_trained(note: Note) -> bool:
    """Whether the candidate runs bodies with gradients; a row of a compiler may say otherwise."""
    return note.run_mode not in _AROUND


#: How such a body is called.
_AROUND: Final = {"forward_only": "torch.no_grad", "inference": "torch.inference_mode"}


def compile_options(note: Note) -> dict[str, Any]:
    """Return the arguments of ``torch.compile``."""
    return note.side.options if isinstance(note.side, CompileNote) else {}


def environment_lines(note: Note) -> list[str]:
    """Return the line that sets the candidate's environment variables, which must precede its imports."""
    return [f"os.environ.update({note.env!r})"] if note.env else []

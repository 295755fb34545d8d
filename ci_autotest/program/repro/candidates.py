"""The candidate of a repro as code: the user's kernels, a compiled or rewritten program, or an export.

An exported one needs torch, onnx and onnxruntime.
"""

from __future__ import annotations

import re
from importlib.resources import files
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


#: An exported model returns tensors only; other outputs are those of torch.
_BODY: Final = """class Body(torch.nn.Module):
    def __init__(self, given, kept):
        super().__init__()
        self.given, self.kept = given, kept
        for name, value in given.items():
            if isinstance(value, torch.nn.Module):
                self.add_module(name, value)
        self.training = any(module.training for module in self.children())

    def forward(self, *tensors):
        names = iter(tensors)
        given = [next(names) if isinstance(value, torch.Tensor) else value for value in self.given.values()]
        outputs = reference(*given)
        return tuple(outputs[i] for i in self.kept)
"""
_ONNX: Final = """def candidate(*_):
    \"\"\"Export the body to ONNX, and return what ONNX Runtime makes of it.\"\"\"
    outputs = list(reference(*[inputs()[name] for name in TAKES]))
    kept = [i for i, value in enumerate(outputs) if isinstance(value, torch.Tensor)]
    given = {{name: inputs()[name] for name in TAKES}}
    tensors = {{name: value.detach().clone() for name, value in given.items() if isinstance(value, torch.Tensor)}}
    arrays = {{name: value.clone(memory_format=torch.contiguous_format).numpy() for name, value in tensors.items()}}
    body, file, options = Body(given, kept), io.BytesIO(), {options}
    mode = torch.onnx.TrainingMode.PRESERVE if body.training else torch.onnx.TrainingMode.EVAL
    program = torch.onnx.export(
        body, tuple(tensors.values()), None if options["dynamo"] else file,
        input_names=list(tensors), training=mode, **options,
    )
    if program is not None:
        program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    found = session.run(None, {{item.name: arrays[item.name] for item in session.get_inputs()}})
    for place, array in zip(kept, found):
        outputs[place] = torch.from_numpy(array)
    return outputs
"""


_EXPORT: Final = """def candidate(*_):
    \"\"\"Export the body, and return what {function} makes of it.\"\"\"
    outputs = list(reference(*[inputs()[name] for name in TAKES]))
    kept = [i for i, value in enumerate(outputs) if isinstance(value, torch.Tensor)]
    given = {{name: inputs()[name] for name in TAKES}}
    tensors = tuple(value.detach().clone() for value in given.values() if isinstance(value, torch.Tensor))
    body, before = Body(given, kept), [tensor.clone() for tensor in tensors]
    with torch.no_grad():
        {export}
        found = {function}({argument})(*tensors)
    found = list(found.values()) if isinstance(found, dict) else found
    found = list(found) if isinstance(found, (tuple, list)) else [found]
    assert len(found) == len(kept), f"the callable returns {{len(found)}} values, the body {{len(kept)}}"
    torch.testing.assert_close(list(tensors), before, rtol=0, atol=0, equal_nan=True)  # it writes to no input
    for place, value in zip(kept, found):
        outputs[place] = value.detach()
    return outputs
"""
#: How the body is exported for it, by whether that is for all sizes.
_EXPORTS: Final = {
    False: "program = torch.export.export(body, tensors, strict=False)",
    True: (
        "sizes = tuple({dim: torch.export.Dim.AUTO for dim in range(each.dim())} for each in tensors)\n"
        "        program = torch.export.export(body, tensors, strict=False, dynamic_shapes=(sizes,))"
    ),
}


#: Hands calls to the user's kernels however they are spelled, also from inside a module.
_MODE: Final = """#: In-place spellings: the receiver is given the result.
WRITTEN = {
    getattr(torch.Tensor, name): g
    for f, g in REPLACED.items()
    for name in (f'{f.__name__}_', f'__i{f.__name__}__')
    if hasattr(torch.Tensor, name)
}


class Replace(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in WRITTEN:
            return args[0].copy_(WRITTEN[func](*args, **kwargs))
        function = REPLACED.get(func, func)
        if function is not func and kwargs and inspect.isfunction(function):
            # torch's wrappers add keywords of their own, `_stacklevel=3` and `dtype=None`
            takes = inspect.signature(function).parameters
            kwargs = {k: v for k, v in kwargs.items() if k in takes or not (k[0] == '_' or v is None)}
        return function(*args, **kwargs)


"""


#: Modes and modules may pass calls to other functions of the candidate too.
_CHECKED: Final = """def checked(function):
    \"\"\"Return a function that `torch.library.opcheck` checks at each call if it is an operator of a library.\"\"\"

    def call(*args, **kwargs):
        torch.library.opcheck(function, args, kwargs, test_utils="{check}")
        return function(*args, **kwargs)

    kinds = torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._library.custom_ops.CustomOpDef
    return call if isinstance(function, kinds) else function"""


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
            return f"TAKES = {list(takes)}\n\n\n{_BODY}\n\n{_exported_text(note.side)}"
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
            lambda target: target if plain(target) == target else f"checked({plain(target)})",
            {f"checked({path})": known for path, known in mode.items()},
        )
    head = f"def candidate({', '.join(takes)}):"
    lines = [*_banded_lines(program, rename), f"return {output_text(program)}"]
    if recording.note.kind == "graph":
        options = "".join(f", {key}={value!r}" for key, value in GRAPH_OPTIONS)
        return f"{head}\n{block(lines)}\n\n\ncandidate = torch.compile(candidate{options})"
    if not mode:
        return f"{head}\n{block(lines)}"
    table = "".join(f"    {spelled}: {path},\n" for path, known in sorted(mode.items()) for spelled in known)
    inner = block(["with Replace():", *(f"    {line}" for line in lines)])
    return f"REPLACED = {{\n{table}}}\n{_MODE}{head}\n{inner}"


def _banded_lines(program: Program, rename: Callable[[str], str] | None) -> list[str]:
    """Return the statements of the body, with guard bands around what a call allocates where its step has them."""
    found = []
    for index, lines in body_statements(program, rename=rename):
        bands = result_bands_of(program.steps[index])
        head = [f"with ResultBands(has_zeros={bands == RESULT_BANDS[1]}):"] if bands else []
        found += [*head, *(f"    {line}" if bands else line for line in lines)]
    return found


def operator_checks_text(program: Program) -> str:
    """Return the function ``checked`` of a repro; empty if no step has a check of operators."""
    check = next(filter(None, map(operator_check_of, program.steps)), "")
    return _CHECKED.format(check=check) if check else ""


def result_bands_text(program: Program) -> str:
    """Return the class of guard bands around results as a repro defines it; empty if no step has such bands."""
    if not any(map(result_bands_of, program.steps)):
        return ""
    text = files("ci_autotest.backends").joinpath("result_bands.py").read_text("utf-8")
    _, _, text = text.partition("from __future__ import annotations\n")
    return re.sub(r"  # (type: ignore|noqa|fmt:).*", "", text)  # for type checkers and linters


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


def _exported_text(side: OnnxRuntimeNote | ExportNote) -> str:
    """Return the function that exports the body and runs it."""
    if isinstance(side, OnnxRuntimeNote):
        own = {name: value for name, value in side.options.items() if name in {"dynamo", "opset_version"}}
        return _ONNX.format(options=repr({"dynamo": False, **own}))
    takes_module = side.takes == "module"
    return _EXPORT.format(
        function=side.transform,
        argument=("body, tensors" if takes_module else "program")
        + "".join(f", {name}={value!r}" for name, value in side.options.items()),
        export="pass" if takes_module else _EXPORTS[side.dynamic],
    )  # fmt: skip


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

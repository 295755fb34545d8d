"""The candidate of a repro if it is not the same program: a pass over its graph, or an export.

An exported one needs torch, onnx and onnxruntime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ci_autotest.errors import ProgramError
from ci_autotest.program.codegen import inputs
from ci_autotest.program.python_names import is_module, is_name, is_path, is_pythons

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Program


#: An output that is no tensor is not the model's, and is torch's own.
_TEXT: Final = """class Body(torch.nn.Module):
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


def candidate(*_):
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


def is_exported(note: Mapping[str, Any]) -> bool:
    """Whether a recording's candidate is a body's export: forward only, and it writes to no input."""
    return note.get("backend") == "onnxruntime"


def exported_candidate(note: Mapping[str, Any]) -> str:
    """Return the text of the candidate, from the note of its recording."""
    return _TEXT.format(options=repr(_options(note)))


def _options(note: Mapping[str, Any]) -> dict[str, bool | int]:
    """Return the arguments of the exporter, whole numbers and flags alone: a note comes from outside."""
    options = note.get("options")
    given = options if isinstance(options, dict) else {}
    found = {name: given[name] for name in ("dynamo", "opset_version") if isinstance(given.get(name), int)}
    return {"dynamo": False, **found}


def fx_body(program: Program, function: str, path: str) -> list[str]:
    """Return the lines of ``transformed``: a function of the body traced by torch.fx and put through a pass.

    Args:
        program: The body.
        function: Name of the function that is the body.
        path: Dotted name of the pass, empty for none.
    """
    count = len(program.setup)
    modules = ", ".join(name for name, index in inputs(program) if index < count)
    values = ", ".join(name for name, index in inputs(program) if index >= count)
    held = ", ".join(f"self.{name}" if index < count else name for name, index in inputs(program))
    return [
        "class Body(torch.nn.Module):",
        f"    def __init__({', '.join(filter(None, ['self', modules]))}):",
        "        super().__init__()",
        *(f"        self.{name} = {name}" for name in filter(None, modules.split(", "))),
        "",
        f"    def forward({', '.join(filter(None, ['self', values]))}):",
        f"        return {function}({held})",
        "",
        "",
        f"def transformed({', '.join(name for name, _ in inputs(program))}):",
        f"    return {path}(torch.fx.symbolic_trace(Body({modules})))({values})",
    ]


def fx_candidate(program: Program, note: Mapping[str, Any]) -> str:
    """Return the body traced by torch.fx and put through the candidate's pass."""
    lines = fx_body(program, "reference", transform_of(note))
    return "\n".join(lines).replace("def transformed(", "def candidate(") + "\n"


def compile_options(note: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``torch.compile``.

    Raises:
        ProgramError: One is no name.
    """
    options = note.get("options") or {}
    if not isinstance(options, dict) or not all(map(is_name, options)):
        message = f"the note gives torch.compile {str(options)[:60]!r}: no arguments, and never printed as code."
        raise ProgramError(message)
    return options


def transform_of(note: Mapping[str, Any]) -> str:
    """Return the dotted name of the candidate's pass, empty where it has none.

    Raises:
        ProgramError: It is no dotted name.
    """
    path = note.get("transform") or ""
    if path and not is_path(path):
        message = f"the note names {str(path)[:60]!r} as a pass: it is no dotted name and is never printed as code."
        raise ProgramError(message)
    return path


def device_module(note: Mapping[str, Any]) -> str:
    """Return the module that registers the candidate's device, empty where torch has it.

    Raises:
        ProgramError: It is no dotted name.
    """
    name = note.get("device_module") or ""
    if name and (not is_module(name) or is_pythons(name)):
        message = f"the note names {str(name)[:60]!r} as a device's module: it is none and never printed as code."
        raise ProgramError(message)
    return name

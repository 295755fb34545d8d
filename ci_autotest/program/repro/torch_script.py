"""The repro: a script that shows a misalignment with the candidate alone.

It needs torch and, for kernels or a device, the module that holds them; never this package. Tensors of up to 64
elements are exact literals; larger ones come from the file beside it. Exit status: 1 while
misaligned, 0 when fixed, 2 when it cannot run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ci_autotest.errors import ProgramError
from ci_autotest.program.codegen import GRAPH_OPTIONS, body_lines, inputs, literal, names, output_text, setup_lines
from ci_autotest.program.ir import PLACEHOLDER, Mapping_, Ref, TensorSpec, cotangent_key, is_unpacking, output_refs
from ci_autotest.program.literals import INLINE_ELEMENTS, tensor_text
from ci_autotest.program.python_names import is_path
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro import torch_template as template
from ci_autotest.program.repro.candidates import (
    compile_options,
    device_module,
    exported_candidate,
    fx_candidate,
    is_exported,
    transform_of,
)
from ci_autotest.program.repro.entry_points import LAYERS, LEAVE, REPEATED, WATCH
from ci_autotest.program.repro.script_parts import needs_of, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ci_autotest.program.ir import Program, Recording
    from ci_autotest.program.repro.script_parts import Needs

_Key = TypeVar("_Key", int, str)
_READER: Final = '''
def stored(name, dtype):
    """Read one flat tensor of tensors.safetensors: a JSON head, then the bytes."""
    data = (HERE / "tensors.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    first, last = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return torch.frombuffer(bytearray(data[8 + size + first : 8 + size + last]), dtype=dtype).clone()

'''


def repro_text(recording: Recording, told: Mapping[str, Any]) -> str:
    """Return the script.

    Args:
        recording: The smallest program, with what the reference gives and the candidate's note.
        told: ``title``, ``lines`` (of the message), ``kind``, ``rtol``, ``atol``, ``check_dtype``,
            ``folders`` (where the candidate's modules are, relative to the script), ``versions``,
            ``timeout_s`` (seconds that it may take), ``has_backward`` (whether it takes the backward pass to see it).
    """
    recording = _without_clashes(recording)
    program = recording.program
    named = names(program)
    renames, mode = _candidate(recording)
    takes = [name for name, _ in inputs(program)]
    literals = {**_placeholders(recording), **_expected(recording), **_cotangents(recording)}
    has_file = any("stored(" in text for text in literals.values())
    libraries = [*(["inspect"] if mode else ()), *(["json"] if has_file else ()), "os", "sys"]
    needs = needs_of(recording, told)
    return template.TEMPLATE.format(
        title=told["title"],
        message="\n".join(f"  {line}" if line else "" for line in told["lines"]),
        libraries="\n".join([*(f"import {library}" for library in libraries), "from pathlib import Path\n"]),
        imports=_imports(recording, told),
        reader=_READER if has_file else "",
        **_devices(recording.note),
        setup=_block([*_bindings(program, literals, named), *setup_lines(program), _returned(takes, program, named)]),
        takes=", ".join(takes), taken=takes,
        body=_block([*body_lines(program), f"return {output_text(program)}"]),
        candidate=_candidate_function(program, takes, renames, mode, recording.note),
        layers=_layers(recording),
        outputs=_mapping(_outputs(recording, literals)),
        carried=_carried(recording, told, literals, needs),
        names=[named[ref.index] for ref in output_refs(program)],
        versions=repr(told["versions"]),
        **parts_of(told, needs),
        **_entry(told, recording.note),
        rtol=told["rtol"], atol=told["atol"],
    )  # fmt: skip


def _carried(recording: Recording, told: Mapping[str, Any], literals: Mapping[str, str], needs: Needs) -> str:
    """Return what else the reference gave, and what goes into the backward pass."""
    program, named = recording.program, names(recording.program)
    given = {i: literals[cotangent_key(i)] for i, spec in enumerate(program.cotangents) if spec is not None}
    flags = carried_flags(recording, "output_", range(len(output_refs(program))))
    lines = [
        *([f"COTANGENTS = {_mapping(given)}  # what goes into the backward pass"] if needs.backward else ()),
        *([f"GRADIENTS = {_mapping(_by_name(recording, 'gradient_', literals, named))}"] if needs.backward else ()),
        *([f"FLAGS = {_mapping(flags)}", f"IS_BITWISE = {told['strictness'] == 'bitwise'}"] if needs.flags else ()),
        *([f"AFTER = {_mapping(_by_name(recording, 'after_', literals, named))}  # what the run has changed",
           f"AFTER_FLAGS = {_mapping(carried_flags(recording, 'after_', named))}"] if needs.after else ()),
        *([f"REFUSED = {refused_outputs(program)!r}  # how a step was refused"] if needs.refused else ()),
    ]  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


def _entry(told: Mapping[str, Any], note: Mapping[str, Any]) -> dict[str, str]:
    """Return what the script begins with, by the kind of finding, and how it ends."""
    found = {"watch": "", "entry": "main"}
    if told["kind"] in {"crash", "timeout"}:
        found = {"watch": WATCH.format(timeout_s=told["timeout_s"]), "entry": "watched"}
    elif told["kind"] == "nondeterminism":
        found = {"watch": REPEATED.replace("{{", "{").replace("}}", "}"), "entry": "repeated"}
    ends = "sys.exit(ended({entry}()))\n" if _devices(note)["device"] == "'cpu'" else LEAVE
    watched = ' and not os.environ.get("REPRO_WATCHED")' if told["kind"] in {"crash", "timeout"} else ""
    return {"watch": found["watch"], "end": ends.format(entry=found["entry"]), "watched": watched}


def _layers(recording: Recording) -> str:
    """Return what is asked of a report against a compiler: its layers, and which outputs are indices of extremes."""
    if recording.note.get("backend") != "torch.compile":
        return ""
    program = recording.program
    indices = tuple(i for i, ref in enumerate(output_refs(program)) if _holds_indices(program, ref.index))
    text = LAYERS.replace("{{", "{").replace("}}", "}").replace("{options}", repr(compile_options(recording.note)))
    return f"{text}\nINDICES = {indices!r}  # outputs that are not compared\n"


def _holds_indices(program: Program, index: int) -> bool:
    """Whether a value is the indices of extremes."""
    step = program.steps[index]
    if is_unpacking(step) and isinstance(step.args[0], Ref):
        maker = program.steps[step.args[0].index].target.rpartition(".")[2]
        return maker in {"max", "min", "topk", "sort", "median", "mode", "kthvalue"} and step.args[1] == 1
    return step.target.rpartition(".")[2] in {"argmax", "argmin", "argsort"}


def _without_clashes(recording: Recording) -> Recording:
    """Return the recording with no value named as a module that the script imports."""
    spellings, renames = recording.note.get("spellings"), recording.note.get("renames")
    paths = list(spellings) if isinstance(spellings, dict) else []
    for path in [*paths, *(renames.values() if isinstance(renames, dict) else ())]:
        if not is_path(path):
            message = (
                f"the note names {str(path)[:60]!r} as a function: it is no dotted name and never printed as code."
            )
            raise ProgramError(message)
    own = [transform_of(recording.note), device_module(recording.note)]
    roots = {path.partition(".")[0] for path in [*paths, *own]} | {
        "inspect",
        "json",
        "os",
        "sys",
        "inputs",
        "reference",
        "candidate",
    }
    parts = [
        tuple(step._replace(name=f"{step.name}_0") if step.name in roots else step for step in part)
        for part in (recording.program.setup, recording.program.body)
    ]
    return replace(recording, program=replace(recording.program, setup=parts[0], body=parts[1]))


def _block(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for text in lines for line in text.split("\n"))


def _mapping(items: Mapping[Any, str]) -> str:
    return "{" + "".join(f"\n    {key!r}: {text}," for key, text in items.items()) + ("\n}" if items else "}")


def _bindings(program: Program, literals: Mapping[str, str], named: Sequence[str]) -> list[str]:
    found = []
    for index, step in enumerate(program.steps):
        spec = step.args[0] if step.op == PLACEHOLDER else None
        if isinstance(spec, TensorSpec):
            place = "" if spec.device == "cpu" else ".to(device)"
            grad = ".requires_grad_()" if spec.requires_grad else ""
            found.append(f"{named[index]} = {literals[step.target]}{place}{_layout(spec)}{grad}")
    return found


def _returned(takes: Sequence[str], program: Program, named: Sequence[str]) -> str:
    leaves = [named[i] for i, step in enumerate(program.steps) if step.op == PLACEHOLDER and not step.in_setup]
    return f"return {{{', '.join(f'{name!r}: {name}' for name in dict.fromkeys([*takes, *leaves]))}}}"


def _placeholders(recording: Recording) -> dict[str, str]:
    specs = {step.target: step.args[0] for step in recording.program.steps if step.op == PLACEHOLDER}
    return {
        key: _literal(recording, key, spec, in_shape=spec.is_contiguous)
        for key, spec in specs.items()
        if isinstance(spec, TensorSpec)
    }


def _expected(recording: Recording) -> dict[str, str]:
    return {key: _literal(recording, key, spec, in_shape=True) for key, spec in recording.expected.items()}


def _cotangents(recording: Recording) -> dict[str, str]:
    specs = {cotangent_key(i): spec for i, spec in enumerate(recording.program.cotangents) if spec is not None}
    return {
        key: f"{_literal(recording, key, spec, in_shape=spec.is_contiguous)}{_layout(spec)}"
        for key, spec in specs.items()
    }


def _layout(spec: TensorSpec) -> str:
    """Return the call that gives a storage its layout, nothing where it has it."""
    return "" if spec.is_contiguous else f".as_strided({spec.shape}, {spec.strides}, {spec.offset})"


def _literal(recording: Recording, key: str, spec: TensorSpec, *, in_shape: bool) -> str:
    shape = spec.shape if in_shape else (spec.storage_size,)
    if spec.storage_size <= INLINE_ELEMENTS:
        return tensor_text(recording.tensors[key], spec.dtype, shape)
    return f"stored({key!r}, torch.{spec.dtype}).reshape({shape})"


def _outputs(recording: Recording, literals: Mapping[str, str]) -> dict[int, str]:
    """Return the text of each output that is carried: a tensor's, else a plain value's."""
    found = {}
    for i, _ in enumerate(output_refs(recording.program)):
        key = f"output_{i}"
        if key in recording.expected:
            found[i] = literals[key]
        elif key in recording.facts and not isinstance(recording.facts[key], Mapping_):
            found[i] = literal(recording.facts[key], ())
    return found


def carried_flags(recording: Recording, prefix: str, named: Sequence[_Key]) -> dict[_Key, str]:
    """Return the text of the flags of each tensor under a prefix, by what its number stands for in the script."""
    facts = ((key, recording.facts.get(f"{prefix}{i}")) for i, key in enumerate(named))
    return {key: literal(fact, ()) for key, fact in facts if isinstance(fact, Mapping_)}


def _by_name(recording: Recording, prefix: str, literals: Mapping[str, str], named: Sequence[str]) -> dict[str, str]:
    """Return the tensors under a prefix by the name that the script has for them; ``None`` for one that is missing."""
    found = {}
    for key in [*recording.expected, *(key for key, fact in recording.facts.items() if fact is None)]:
        if key.startswith(prefix):
            index, _, parameter = key.removeprefix(prefix).partition(".")
            name = named[int(index)]
            found[f"{name}.{parameter}" if parameter else name] = literals.get(key, "None")
    return found


def _candidate(recording: Recording) -> tuple[Callable[[str], str] | None, dict[str, list[str]]]:
    """Return how a candidate's calls are spelled, and the spellings that a mode must catch inside other calls."""
    note = recording.note
    renames = note.get("renames")
    spellings = note.get("spellings")
    if not isinstance(renames, dict) or not isinstance(spellings, dict):
        return None, {}
    hidden = {path: known for path, known in spellings.items() if path not in renames.values()}
    used = bool(recording.program.setup) or any(step.op == "call_method" for step in recording.program.body)
    return (lambda target: renames.get(target, target)), (hidden if used else {})


def _candidate_function(
    program: Program,
    takes: Sequence[str],
    rename: Callable[[str], str] | None,
    mode: Mapping[str, list[str]],
    note: Mapping[str, Any],
) -> str:
    head = f"def candidate({', '.join(takes)}):\n"
    if note.get("backend") == "torch.compile":
        options = "".join(f", {key}={value!r}" for key, value in compile_options(note).items())
        return f"candidate = torch.compile(reference{options})\n"
    if note.get("backend") == "fx":
        return fx_candidate(program, note)
    if is_exported(note):
        return exported_candidate(note)
    lines = [*body_lines(program, rename=rename), f"return {output_text(program)}"]
    if note.get("kind") == "graph":
        options = "".join(f", {key}={value!r}" for key, value in GRAPH_OPTIONS)
        return f"{head}{_block(lines)}\n\n\ncandidate = torch.compile(candidate{options})\n"
    if not mode:
        return head + _block(lines) + "\n"
    table = "".join(f"    {spelled}: {path},\n" for path, known in sorted(mode.items()) for spelled in known)
    return (
        f"REPLACED = {{\n{table}}}\n"
        "#: In-place spellings: the receiver is given the result.\n"
        "WRITTEN = {\n"
        "    getattr(torch.Tensor, name): g\n"
        "    for f, g in REPLACED.items()\n"
        "    for name in (f'{f.__name__}_', f'__i{f.__name__}__')\n"
        "    if hasattr(torch.Tensor, name)\n"
        "}\n\n\n"
        "class Replace(torch.overrides.TorchFunctionMode):\n"
        "    def __torch_function__(self, func, types, args=(), kwargs=None):\n"
        "        kwargs = kwargs or {}\n"
        "        if func in WRITTEN:\n"
        "            return args[0].copy_(WRITTEN[func](*args, **kwargs))\n"
        "        function = REPLACED.get(func, func)\n"
        "        if function is not func and kwargs and inspect.isfunction(function):\n"
        "            # torch's wrappers add keywords of their own, `_stacklevel=3` and `dtype=None`\n"
        "            takes = inspect.signature(function).parameters\n"
        "            kwargs = {k: v for k, v in kwargs.items() if k in takes or not (k[0] == '_' or v is None)}\n"
        "        return function(*args, **kwargs)\n\n\n"
        + head
        + _block(["with Replace():", *(f"    {line}" for line in lines)])
        + "\n"
    )


def _devices(note: Mapping[str, Any]) -> dict[str, str]:
    """Return where the candidate runs, and where the reference does."""
    return {key: repr(str(note.get(key, "cpu")).replace("auto", "cpu")) for key in ("device", "reference_device")}


def _environment(recording: Recording) -> list[str]:
    """Return the line that sets the variables of the candidate's row, before anything of it is imported."""
    env = recording.note.get("env")
    if not isinstance(env, dict) or not env:
        return []
    return [f"os.environ.update({ {str(name): str(value) for name, value in env.items()}!r})"]


def _imports(recording: Recording, told: Mapping[str, Any]) -> str:
    spellings = recording.note.get("spellings")
    paths = sorted(spellings) if isinstance(spellings, dict) else []
    paths += [path for path in [transform_of(recording.note)] if path]
    modules = sorted({path.rpartition(".")[0] for path in paths} | ({device_module(recording.note)} - {""}))
    lines = _environment(recording)
    if modules:
        folders = ", ".join(f"HERE / {folder!r}" for folder in told["folders"])
        lines.append(f"sys.path += [str(folder) for folder in ({folders}, Path.cwd())]")
    if is_exported(recording.note):
        modules = ["io", "onnxruntime"]
    lines += ["try:", "    import torch", *(f"    import {module}" for module in modules)]
    if device_module(recording.note):
        lines.append(f"    torch.device({_devices(recording.note)['device']})")
    lines += [
        f"except {'Exception' if device_module(recording.note) else 'ImportError'} as error:",
        '    print(f"cannot run: {error}. Set PYTHONPATH to the folder that holds it.")',
        "    sys.exit(2)",
    ]
    return "\n".join(lines)

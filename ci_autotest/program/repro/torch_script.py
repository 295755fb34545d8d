"""The repro: a script that shows a misalignment with the candidate alone.

It needs torch and, for kernels or a device, the module that holds them; never this package. Tensors of up to 64
elements are exact literals; larger ones come from the file beside it. Exit status: 1 while
misaligned, 0 when fixed, 2 when it cannot run.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ci_autotest.errors import ProgramError
from ci_autotest.program.codegen import body_lines, inputs, literal, names, output_text, setup_lines
from ci_autotest.program.ir import (
    HOST_DEVICE,
    PLACEHOLDER,
    Mapping_,
    Ref,
    TensorSpec,
    cotangent_key,
    is_unpacking,
    output_refs,
)
from ci_autotest.program.literals import INLINE_ELEMENTS, tensor_text
from ci_autotest.program.python_names import is_path
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro import torch_template as template
from ci_autotest.program.repro.candidates import (
    block,
    candidate_text,
    compile_options,
    device_module,
    is_exported,
    transform_of,
)
from ci_autotest.program.repro.entry_points import LAYER_GRADIENTS, LAYER_KERNEL, LAYERS, REPEATED, WATCH
from ci_autotest.program.repro.script_parts import comparison_texts, layer_arguments, main_text, needs_of, run_text
from ci_autotest.program.repro.snippet_checks import LOST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.program.ir import Program, Recording
    from ci_autotest.program.repro.script_parts import Needs

_Key = TypeVar("_Key", int, str)


def repro_text(recording: Recording, told: Mapping[str, Any]) -> str:
    """Return the script.

    Args:
        recording: The smallest program, with what the reference gives and the candidate's note.
        told: ``title``, ``lines`` (of the message), ``kind``, ``rtol``, ``atol``, ``check_dtype``,
            ``folders`` (where the candidate's modules are, relative to the script), ``versions``,
            ``timeout_s`` (seconds that it may take), ``has_backward`` (whether it takes the backward pass to see it).
    """
    recording = _without_clashes(recording)
    program, needs = recording.program, needs_of(recording, told)
    takes = [name for name, _ in inputs(program)]
    given = list(dict.fromkeys([*takes, *_leaves(program)]))
    literals = {**_placeholders(recording), **_expected(recording), **_cotangents(recording)}
    setup = [*_bindings(program, literals, needs), *setup_lines(program), _returned(given)]
    body = [*body_lines(program), f"return {output_text(program)}"]
    blocks = [
        _head(recording, told, needs, literals),
        *([f"device = torch.device({HOST_DEVICE!r})"] if not needs.devices and _names_device([*setup, *body]) else ()),
        f"def inputs():\n{block(setup)}",
        f"def reference({', '.join(takes)}):\n{block(body)}",
        candidate_text(recording, takes),
        *([template.READER] if _has_file(literals) else ()),
        _values(recording, told, literals, needs),
        run_text(needs, takes, given),
        *comparison_texts(told, needs),
        *([_layers(recording, needs)] if needs.indices else ()),
        *_entries(told, needs),
        _end(told, needs),
    ]
    return "\n\n\n".join(text.strip("\n") for text in blocks) + "\n"


def _head(recording: Recording, told: Mapping[str, Any], needs: Needs, literals: Mapping[str, str]) -> str:
    has_folder = _has_file(literals) or bool(_modules(recording))
    libraries = [
        *(["inspect"] if "inspect." in candidate_text(recording, []) else ()),
        *(["json"] if _has_file(literals) else ()),
        "os",
        "sys",
    ]
    paths = ["from pathlib import Path"] if has_folder or told["kind"] in LOST else []
    return template.HEAD % {
        "title": told["title"],
        "message": "\n".join(f"  {line}" if line else "" for line in told["lines"]),
        "libraries": "\n".join([*(f"import {library}" for library in libraries), *paths]),
        "here": "HERE = Path(__file__).resolve().parent\n" if has_folder else "",
        "imports": _imports(recording, told),
        "devices": template.DEVICES % _devices(recording.note) if needs.devices else "",
    }


def _names_device(lines: Sequence[str]) -> bool:
    return any(re.search(r"\bdevice\b", line) for line in lines)


def _has_file(literals: Mapping[str, str]) -> bool:
    return any("stored(" in text for text in literals.values())


def _values(recording: Recording, told: Mapping[str, Any], literals: Mapping[str, str], needs: Needs) -> str:
    """Return what the reference gave, what goes into the backward pass, and how values are compared."""
    settings = template.SETTINGS % {"rtol": told["rtol"], "atol": told["atol"], "versions": told["versions"]}
    if told["kind"] == "nondeterminism":  # The candidate is compared with itself.
        return f"{_carried(recording, literals, needs)}{settings}"
    program, named = recording.program, names(recording.program)
    return (
        "# What the reference gave when this was found, by position and by name.\n"
        f"OUTPUTS = {_mapping(_outputs(recording, literals))}\n"
        f"NAMES = {[named[ref.index] for ref in output_refs(program)]}\n"
        f"{_carried(recording, literals, needs)}{settings}"
    )


def _carried(recording: Recording, literals: Mapping[str, str], needs: Needs) -> str:
    """Return what else the reference gave, and what goes into the backward pass."""
    program, named = recording.program, names(recording.program)
    given = {i: literals[cotangent_key(i)] for i, spec in enumerate(program.cotangents) if spec is not None}
    flags = carried_flags(recording, "output_", range(len(output_refs(program))))
    lines = [
        *([f"COTANGENTS = {_mapping(given)}  # what goes into the backward pass"] if needs.backward else ()),
        *([f"GRADIENTS = {_mapping(_by_name(recording, 'gradient_', literals, named))}"] if needs.backward else ()),
        *([f"FLAGS = {_mapping(flags)}"] if needs.flags else ()),
        *([f"AFTER = {_mapping(_by_name(recording, 'after_', literals, named))}  # what the run has changed",
           f"AFTER_FLAGS = {_mapping(carried_flags(recording, 'after_', named))}"] if needs.after else ()),
        *([f"REFUSED = {refused_outputs(program)!r}  # how a step was refused"] if needs.refused else ()),
    ]  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


def _entries(told: Mapping[str, Any], needs: Needs) -> list[str]:
    """Return the functions that the script may begin with, by the kind of finding."""
    if told["kind"] == "nondeterminism":
        results = "[*outputs, *gradients.values(), raised]" if needs.backward else "outputs"
        return [REPEATED % {"outputs": ", ".join(needs.observed), "results": results}]
    return [main_text(needs), *([WATCH % {"timeout_s": told["timeout_s"]}] if told["kind"] in LOST else ())]


def _end(told: Mapping[str, Any], needs: Needs) -> str:
    entry = "repeated" if told["kind"] == "nondeterminism" else "watched" if told["kind"] in LOST else "main"
    return template.END % {
        "usable": template.USABLE if needs.devices else "",
        "entry": entry,
        "said": template.SAID_BY_WATCHER if entry == "watched" else template.SAID,
        "leave": template.LEAVE_AT_ONCE if needs.devices else template.LEAVE,
    }


def _layers(recording: Recording, needs: Needs) -> str:
    """Return what a report to a compiler's maintainers must say: the layer at fault."""
    program = recording.program
    found = [name if name == "gradients" else "_" for name in needs.observed[1:]]
    return LAYERS % {
        "takes": layer_arguments(needs),
        "found": ", ".join(["found", *(f"found_{name}" if name == "gradients" else name for name in found)]),
        "gradients": LAYER_GRADIENTS if needs.backward else "",
        "kernel": LAYER_KERNEL if needs.devices else "",
        "or_kernel": "{own}" if needs.devices else "",
        "options": repr(compile_options(recording.note)),
        "indices": tuple(i for i, ref in enumerate(output_refs(program)) if _holds_indices(program, ref.index)),
    }


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


def _mapping(items: Mapping[Any, str]) -> str:
    return "{" + "".join(f"\n    {key!r}: {text}," for key, text in items.items()) + ("\n}" if items else "}")


def _bindings(program: Program, literals: Mapping[str, str], needs: Needs) -> list[str]:
    found, named = [], names(program)
    for index, step in enumerate(program.steps):
        spec = step.args[0] if step.op == PLACEHOLDER else None
        if isinstance(spec, TensorSpec):
            place = "" if spec.device == HOST_DEVICE or not needs.devices else ".to(device)"
            grad = ".requires_grad_()" if spec.requires_grad else ""
            found.append(f"{named[index]} = {literals[step.target]}{place}{_layout(spec)}{grad}")
    return found


def _leaves(program: Program) -> list[str]:
    named = names(program)
    return [named[i] for i, step in enumerate(program.steps) if step.op == PLACEHOLDER and not step.in_setup]


def _returned(given: Sequence[str]) -> str:
    return f"return {{{', '.join(f'{name!r}: {name}' for name in given)}}}"


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


def _devices(note: Mapping[str, Any]) -> dict[str, str]:
    """Return where the candidate runs, and where the reference does."""
    return {key: repr(str(note.get(key, "cpu")).replace("auto", "cpu")) for key in ("device", "reference_device")}


def _environment(recording: Recording) -> list[str]:
    """Return the line that sets the variables of the candidate's row, before anything of it is imported."""
    env = recording.note.get("env")
    if not isinstance(env, dict) or not env:
        return []
    return [f"os.environ.update({ {str(name): str(value) for name, value in env.items()}!r})"]


def _modules(recording: Recording) -> list[str]:
    """Return the user's modules that the candidate needs."""
    spellings = recording.note.get("spellings")
    paths = [*(spellings if isinstance(spellings, dict) else ()), transform_of(recording.note)]
    return sorted({*(path.rpartition(".")[0] for path in paths if path), device_module(recording.note)} - {""})


def _imports(recording: Recording, told: Mapping[str, Any]) -> str:
    modules, device = _modules(recording), device_module(recording.note)
    lines = _environment(recording)
    if modules:
        folders = ", ".join([*(f"HERE / {folder!r}" for folder in told["folders"]), "Path.cwd()"])
        lines.append(f"sys.path += map(str, [{folders}])")
    if is_exported(recording.note):
        modules = ["io", "onnxruntime"]
    if not modules:
        return "\n".join([*lines, "import torch"])
    lines += ["try:", "    import torch", *(f"    import {module}" for module in modules)]
    if device:
        lines.append(f"    torch.device({_devices(recording.note)['device']})")
    lines += [
        f"except {'Exception' if device else 'ImportError'} as error:",
        '    print(f"cannot run: {error}. Set PYTHONPATH to the folder that holds it.")',
        "    sys.exit(2)",
    ]
    return "\n".join(lines)

"""The repro: a script that shows a misalignment without this package.

It needs torch and, for kernels or a device, the module that provides them. Tensors of up to 64 elements are exact
literals; larger ones are read from the file beside it. Its exit status is 1 while misaligned, 0 when fixed, and 2 when
it cannot run.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ci_autotest.program.codegen import body_lines, inputs, names, output_text
from ci_autotest.program.ir import (
    HOST_DEVICE,
    SAVE,
    cotangent_key,
    is_unpacking,
    output_refs,
)
from ci_autotest.program.note import Note, OnnxRuntimeNote, SubstituteNote
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro import torch_template as template
from ci_autotest.program.repro.candidates import (
    block,
    candidate_text,
    compile_options,
    environment_lines,
    operator_checks_text,
    result_bands_text,
)
from ci_autotest.program.repro.carried_values import (
    carried_flags,
    layout_text,
    leaves,
    mapping_text,
    output_texts,
    returned,
    tensor_texts,
    texts_by_name,
)
from ci_autotest.program.repro.entry_points import LAYER_GRADIENTS, LAYER_KERNEL, LAYERS, REPEATED, WATCH
from ci_autotest.program.repro.module_ranks import module_head, module_imports
from ci_autotest.program.repro.operator_modules import import_lines
from ci_autotest.program.repro.rank_launcher import LIBRARIES, launcher_text
from ci_autotest.program.repro.ranks import is_on_gpus, rank_head, rank_imports
from ci_autotest.program.repro.replaced_classes import IS_CANDIDATE, class_modules, classes_of, setup_of
from ci_autotest.program.repro.script_parts import comparison_texts, layer_arguments, main_text, needs_of, run_text
from ci_autotest.program.repro.snippet_checks import LOST
from ci_autotest.program.targets import OPS, last_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.program.ir import Program
    from ci_autotest.program.recording import Recording
    from ci_autotest.program.repro.script_facts import ScriptFacts
    from ci_autotest.program.repro.script_parts import Needs


def repro_text(recording: Recording, facts: ScriptFacts) -> str:
    """Return the script.

    Args:
        recording: The smallest program, with what the reference gives and the candidate's note.
        facts: What it says of the finding.
    """
    # Before anything is named, because all parts of the script use the same names.
    recording = _without_clashes(recording)
    program, needs = recording.program, needs_of(recording, facts)
    takes = [name for name, _ in inputs(program)]
    given = list(dict.fromkeys([*takes, *leaves(program)]))
    literals = tensor_texts(recording)
    setup = [*_bindings(program, literals, needs), *setup_of(recording), returned(given)]
    body = [*body_lines(program), f"return {output_text(program)}"]
    blocks = [
        _head(recording, facts, needs, literals),
        *([f"device = torch.device({HOST_DEVICE!r})"] if not needs.devices and _names_device([*setup, *body]) else ()),
        f"def inputs({f'{IS_CANDIDATE}=False' if classes_of(recording) else ''}):\n{block(setup)}",
        f"def reference({', '.join(takes)}):\n{block(body)}",
        *filter(None, [operator_checks_text(program)]),
        candidate_text(recording, takes),
        *filter(None, [result_bands_text(program)]),
        *([rank_head(recording)] if needs.ranks else ()),
        *([module_head(recording, needs.observed)] if needs.sharing else ()),
        *([launcher_text(facts.timeout_s, on_gpus=is_on_gpus(recording.note))] if needs.processes else ()),
        *([template.READER] if _has_file(literals) else ()),
        _values(recording, facts, literals, needs),
        run_text(needs, takes, given),
        *comparison_texts(facts, needs),
        *([_layers(recording, needs)] if needs.indices else ()),
        *_entries(facts, needs),
        _end(facts, needs),
    ]
    return "\n\n\n".join(text.strip("\n") for text in blocks) + "\n"


def _head(recording: Recording, facts: ScriptFacts, needs: Needs, literals: Mapping[str, str]) -> str:
    has_folder = _has_file(literals) or bool(_modules(recording)) or bool(import_lines(recording))
    libraries = [
        *(["copy"] if needs.layouts else ()),
        *(["inspect"] if "inspect." in candidate_text(recording, []) else ()),
        *(["io"] if any(step.target == SAVE for step in recording.program.body) else ()),
        *(["json"] if _has_file(literals) else ()),
        "os",
        "sys",
        *(LIBRARIES if needs.processes else ()),
    ]
    paths = ["from pathlib import Path"] if has_folder or _entry(facts, needs) == "watched" else []
    return template.HEAD % {
        "title": facts.title,
        "message": "\n".join(f"  {line}" if line else "" for line in facts.lines),
        "libraries": "\n".join([*(f"import {library}" for library in sorted(libraries)), *paths]),
        "here": "HERE = Path(__file__).resolve().parent\n" if has_folder else "",
        "imports": _imports(recording, facts),
        "devices": template.DEVICES % _devices(recording.note) if needs.devices else "",
    }


def _names_device(lines: Sequence[str]) -> bool:
    return any(re.search(r"\bdevice\b", line) for line in lines)


def _has_file(literals: Mapping[str, str]) -> bool:
    return any("stored(" in text for text in literals.values())


def _values(recording: Recording, facts: ScriptFacts, literals: Mapping[str, str], needs: Needs) -> str:
    """Return the results of the reference, and the tolerance."""
    settings = template.SETTINGS % {"rtol": facts.rtol, "atol": facts.atol, "versions": facts.versions}
    if facts.kind == "nondeterminism":  # The candidate is compared with itself.
        return f"{_carried(recording, literals, needs)}{settings}"
    program, named = recording.program, names(recording.program)
    given = "test expects" if needs.expected else "reference gave when this was found"
    return (
        f"# What the {given}, by position and by name.\n"
        f"OUTPUTS = {mapping_text(output_texts(recording, literals))}\n"
        f"NAMES = {[named[ref.index] for ref in output_refs(program)]}\n"
        f"{_carried(recording, literals, needs)}{settings}"
    )


def _carried(recording: Recording, literals: Mapping[str, str], needs: Needs) -> str:
    """Return the other results of the reference, and the gradients from which the backward pass starts."""
    program, named = recording.program, names(recording.program)
    given = {i: literals[cotangent_key(i)] for i in program.cotangent_specs}
    flags = carried_flags(recording, "output_", range(len(output_refs(program))))
    gradients = texts_by_name(recording, "gradient_", literals, named)
    lines = [
        *([f"COTANGENTS = {mapping_text(given)}  # what goes into the backward pass"] if needs.backward else ()),
        *([f"GRADIENTS = {mapping_text(gradients)}"] if needs.backward else ()),
        *([f"FLAGS = {mapping_text(flags)}"] if needs.flags else ()),
        *([f"AFTER = {mapping_text(texts_by_name(recording, 'after_', literals, named))}  # what the run has changed",
           f"AFTER_FLAGS = {mapping_text(carried_flags(recording, 'after_', named))}"] if needs.after else ()),
        *([f"REFUSED = {refused_outputs(program)!r}  # how a step was refused"] if needs.refused else ()),
    ]  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


def _entries(facts: ScriptFacts, needs: Needs) -> list[str]:
    """Return the function with which the script starts, and ``main`` if that calls it."""
    entry = _entry(facts, needs)
    if entry == "repeated":
        results = "[*outputs, *gradients.values(), raised]" if needs.backward else "outputs"
        return [REPEATED % {"outputs": ", ".join(needs.observed), "results": results}]
    return [main_text(needs), *([WATCH % {"timeout_s": facts.timeout_s}] if entry == "watched" else ())]


def _entry(facts: ScriptFacts, needs: Needs) -> str:
    """Return the name of the function with which the script starts; ranks in processes are watched already."""
    if facts.kind == "nondeterminism":
        return "repeated"
    return "watched" if facts.kind in LOST and not needs.processes else "main"


def _end(facts: ScriptFacts, needs: Needs) -> str:
    entry = _entry(facts, needs)
    return template.END % {
        "usable": template.USABLE if needs.devices else "",
        "entry": entry,
        "said": template.SAID_BY_WATCHER if entry == "watched" else template.SAID,
        "leave": template.LEAVE_AT_ONCE if needs.devices else template.LEAVE,
    }


def _layers(recording: Recording, needs: Needs) -> str:
    """Return the function that finds a compiler's layer at fault, which its maintainers ask for in reports."""
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
    """Whether a value is indices of extremes, which are not unique if there are ties."""
    step = program.steps[index]
    if is_unpacking(step) and step.receiver is not None:
        maker = last_name(program.steps[step.receiver].target)
        # Of what these return the second element is the indices.
        return maker in {"max", "min", "topk", "sort", "median", "mode", "kthvalue"} and step.args[1] == 1
    return last_name(step.target) in {"argmax", "argmin", "argsort"}


def _without_clashes(recording: Recording) -> Recording:
    """Return the recording with values renamed whose names are those of modules and functions in the script."""
    side = recording.note.side
    paths = {*side.functions, *(side.renames.values() if isinstance(side, SubstituteNote) else ())}
    roots = {path.partition(".")[0] for path in {*paths, side.device_module}} | {
        "inspect",
        "io",
        "json",
        "os",
        "sys",
        "inputs",
        "reference",
        "candidate",
    }
    # A value of such a name would hide a module or function that later lines use.
    parts = [
        tuple(step._replace(name=f"{step.name}_0") if step.name in roots else step for step in part)
        for part in (recording.program.setup, recording.program.body)
    ]
    return replace(recording, program=replace(recording.program, setup=parts[0], body=parts[1]))


def _bindings(program: Program, literals: Mapping[str, str], needs: Needs) -> list[str]:
    found, named = [], names(program)
    for index, step in enumerate(program.steps):
        spec = step.spec
        if spec is not None:
            place = "" if spec.device == HOST_DEVICE or not needs.devices else ".to(device)"
            grad = ".requires_grad_()" if spec.requires_grad else ""
            found.append(f"{named[index]} = {literals[step.target]}{place}{layout_text(spec)}{grad}")
    return found


def _devices(note: Note) -> dict[str, str]:
    """Return the devices of the candidate and of the reference."""
    own = {"device": note.device, "reference_device": note.reference_device}
    return {key: repr(device.replace("auto", "cpu")) for key, device in own.items()}


def _registered(recording: Recording) -> list[str]:
    """Return the entries of torch.ops that the script calls: torch looks each up when it is first named."""
    return sorted({step.target for step in recording.program.steps if step.target.startswith(OPS)})


def _modules(recording: Recording) -> list[str]:
    """Return the user's modules that the candidate needs."""
    side = recording.note.side
    own = set(side.classes.values()) | set(side.state.values()) if isinstance(side, SubstituteNote) else set()
    paths = [path for path in side.functions if path not in own]
    modules = {path.rpartition(".")[0] for path in paths if not path.startswith(OPS)}
    return sorted({*modules, *class_modules(recording), side.device_module} - {""})


def _imports(recording: Recording, facts: ScriptFacts) -> str:
    modules, device = _modules(recording), recording.note.side.device_module
    lines, operators = environment_lines(recording.note), import_lines(recording)
    modules = [module for module in modules if f"import {module}" not in operators]
    if modules or operators:
        folders = ", ".join([*(f"HERE / {folder!r}" for folder in facts.folders), "Path.cwd()"])
        lines.append(f"sys.path += map(str, [{folders}])")
    if isinstance(recording.note.side, OnnxRuntimeNote):
        modules = ["io", "onnxruntime"]
    operators = [*operators, *rank_imports(recording.note), *module_imports(recording.note)]
    if not modules and not operators:
        return "\n".join([*lines, "import torch"])
    lines += ["try:", "    import torch", *(f"    {line}" for line in operators)]
    lines += [f"    import {module}" for module in modules]
    lines += [f"    {target}" for target in _registered(recording)]
    if device:
        lines.append(f"    torch.device({_devices(recording.note)['device']})")
    lines += [
        # An unknown device raises a RuntimeError and no ImportError.
        f"except {'Exception' if device or operators or _registered(recording) else 'ImportError'} as error:",
        '    print(f"cannot run: {error}. Set PYTHONPATH to the folder that holds it.")',
        "    sys.exit(2)",
    ]
    return "\n".join(lines)

"""The repro for a candidate in its own interpreter: the program in that framework's API.

It needs numpy and the framework; never torch, never this package. What the reference gave is carried.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ci_autotest.errors import ProgramError
from ci_autotest.program.check import OWN_NAMED
from ci_autotest.program.codegen import body_lines, inputs, literal, names, output_text, setup_lines
from ci_autotest.program.function_source import definitions
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    PLACEHOLDER,
    Mapping_,
    Program,
    TensorSpec,
    cotangent_key,
    output_refs,
)
from ci_autotest.program.json_values import program_of
from ci_autotest.program.literals import INLINE_ELEMENTS, array_of, nested
from ci_autotest.program.python_names import is_module, is_pythons
from ci_autotest.program.refusal import refused_as, refused_outputs
from ci_autotest.program.repro import host_template as template
from ci_autotest.program.repro.candidates import block
from ci_autotest.program.repro.entry_points import WATCH
from ci_autotest.program.repro.framework_code import OF_FUNCTIONS, code_of
from ci_autotest.program.repro.host_parts import (
    framework_texts,
    host_comparison_texts,
    host_entry,
    host_last_line,
    host_main_text,
    host_needs_of,
    observed_text,
)
from ci_autotest.program.repro.host_template import READER
from ci_autotest.program.repro.torch_script import carried_flags
from ci_autotest.program.repro.torch_template import END, LEAVE
from ci_autotest.program.targets import is_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.program.ir import Recording
    from ci_autotest.program.repro.host_parts import HostNeeds

#: Where a framework keeps its dtypes and constants, where that is not the module itself.
NAMESPACES: Final = {"jax": "jax.numpy"}
#: numpy's dtype of what lies in the tensor file; bfloat16 is widened.
_WIDENED: Final = "float32"
_ADAPTERS: Final = "adapters."
#: What the script itself binds.
_OWN_NAMES: Final = frozenset({
    "np", "json", "os", "sys", "Path", "inputs", "candidate", "tensor", "elements", "run", "stored", "differs", "shown",
    "main", "watched", "repeated", "graphed", "as_graph", "eagerly", "Body", "device", "flags", "members", "observed",
    "plain", "unlike", "is_array", "is_own", "flags_differ", "written_to",
})  # fmt: skip


def host_repro_text(recording: Recording, told: Mapping[str, Any]) -> str:
    """Return the script.

    Args:
        recording: The smallest program, with what the reference gives and the candidate's note: under ``host`` the
            program in the framework's words, and where its values are.
        told: As for ``repro_text``.

    Raises:
        ProgramError: The note holds no such program, or names what is never printed as code.
    """
    host = host_of(recording)
    module = host["module"]
    adapters = adapters_text(module, host["program"])
    program = without_clashes(host["program"], adapters, module)
    host = {**host, "program": program}
    needs = host_needs_of(recording, told, module)
    namespace = NAMESPACES.get(module, module)
    takes = [name for name, _ in inputs(program)]
    given = list(dict.fromkeys([*takes, *_leaves(program)]))
    setup = [*_bindings(recording, program), *setup_lines(program, namespace), _returned(given)]
    body = [*body_lines(program, namespace=namespace), f"return {output_text(program)}"]
    framework, entry = framework_texts(needs, module), host_entry(needs)
    uses_device = any(re.search(r"\bdevice\b", text) for text in [*setup, *body, *framework])
    blocks = [
        _head(recording, told, host, has_adapters=bool(adapters)),
        *([f"device = {_device(module, recording)}"] if uses_device else ()),
        f"def inputs():\n{block(setup)}",
        f"def candidate({', '.join(takes)}):\n{block(body)}",
        *([READER] if _has_file(recording) else ()),
        _values(recording, told, host, needs),
        *([adapters] if adapters else ()),
        *framework,
        *([observed_text(needs, takes, given)] if entry != "graphed" else ()),
        *host_comparison_texts(told, needs),
        host_main_text(needs, module),
        *([WATCH % {"timeout_s": told["timeout_s"]}] if entry == "watched" else ()),
        END % {"usable": "", "entry": entry, "said": host_last_line(needs), "leave": LEAVE},
    ]
    return "\n\n\n".join(text.strip("\n") for text in blocks if text) + "\n"


def _head(recording: Recording, told: Mapping[str, Any], host: Mapping[str, Any], *, has_adapters: bool) -> str:
    module, paths = host["module"], _paths(host["module"], told)
    libraries = [
        *(["from __future__ import annotations", ""] if has_adapters else ()),
        *(["import json"] if _has_file(recording) else ()),
        "import os",
        "import sys",
        "from pathlib import Path",
    ]
    return template.HEAD % {
        "title": told["title"],
        "message": "\n".join(f"  {line}" if line else "" for line in told["lines"]),
        "module": module,
        "libraries": "\n".join(libraries),
        "here": "HERE = Path(__file__).resolve().parent\n" if paths or _has_file(recording) else "",
        "python": str(host["python"]),
        "paths": paths,
        "version": _in_text(host["version"]),
        "first": code_of(module).first,
    }


def _values(recording: Recording, told: Mapping[str, Any], host: Mapping[str, Any], needs: HostNeeds) -> str:
    """Return what the reference gave, what goes into the backward pass, and how values are compared."""
    program = host["program"]
    named = names(program)
    takes = [name for name, _ in inputs(program)]
    cotangents = enumerate(recording.program.cotangents) if needs.backward else ()
    flags = carried_flags(recording, "output_", range(len(output_refs(program))))
    after_flags = carried_flags(recording, "after_", [named[place] for place in host["moved"]])
    reference = f"torch {_in_text(recording.note.get('torch', 'of unknown version'))}"
    weights = {i: _tensor(recording, cotangent_key(i), spec) for i, spec in cotangents if spec is not None}
    lines = [
        f"# What the reference, {reference}, gave when this was found.",
        *([f"OUTPUTS = {_mapping(_outputs(recording))}"] if needs.kind not in {"nondeterminism", "graph"} else ()),
        *([f"REFUSED = {refused_outputs(program)!r}  # how a step was refused"] if needs.refused else ()),
        *([f"GRADIENTS = {_mapping(carried_by_name(recording, 'gradient_', host, named))}",
           f"COTANGENTS = {_mapping(weights)}  # what goes into the backward pass"] if needs.backward else ()),
        *(["COTANGENTS = {}"] if needs.graph and not needs.backward else ()),
        *([f"FLAGS = {_mapping(flags)}"] if needs.flags else ()),
        *([f"AFTER = {_mapping(carried_by_name(recording, 'after_', host, named))}  # what the run has changed",
           f"AFTER_FLAGS = {_mapping(after_flags)}"] if needs.after else ()),
        f"TAKES, NAMES = {takes!r}, {[named[ref.index] for ref in output_refs(program)]!r}",
    ]  # fmt: skip
    settings = template.SETTINGS % {"rtol": told["rtol"], "atol": told["atol"], "versions": told["versions"]}
    return "\n".join([*lines, settings])


def host_of(recording: Recording) -> dict[str, Any]:
    """Return the candidate's part of the note, its program read and every name in it checked.

    Raises:
        ProgramError: It is not what a worker writes down, or names what is never printed as code.
    """
    host = recording.note.get("host")
    module = host.get("module") if isinstance(host, dict) else None
    if not isinstance(host, dict) or not isinstance(module, str) or not is_module(module):
        message = "the note names no module of a host: there is nothing to print as code."
        raise ProgramError(message)
    root = module.partition(".")[0]
    if is_pythons(root):
        message = f"the note names {module!r} as a framework: Python's own modules are never printed as code for one."
        raise ProgramError(message)
    try:
        program = program_of(host["program"])
        moved = [int(place) for place in host["moved"]]
        if len(moved) != len(recording.program.steps) or max(moved, default=-1) >= len(program.steps):
            raise IndexError("moved")  # noqa: EM101, TRY301 - told below, with the others
        parameters = [(int(index), str(name), int(place)) for index, name, place in host["parameters"]]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        message = f"the note's program for {module} is damaged ({type(error).__name__}: {error})."
        raise ProgramError(message) from error
    for step in program.steps:
        owner = step.target.partition(".")[0]
        is_own = owner in {root, "adapters"} or is_function(step.target)
        if step.op == CALL_FUNCTION and not is_own:
            message = f"target {step.target[:60]!r} is not of {module} and is never printed as code."
            raise ProgramError(message)
    return {**host, "program": program, "moved": moved, "parameters": parameters}


def without_clashes(program: Program, adapters: str, module: str) -> Program:
    """Return the program with no value named as something else in the script."""
    taken = {module.partition(".")[0], *_OWN_NAMES}
    for node in ast.parse(adapters).body:
        taken |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        taken |= {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
        taken |= {(a.asname or a.name).partition(".")[0] for a in getattr(node, "names", [])}
    parts = [
        tuple(step._replace(name=f"{step.name}_0") if step.name in taken else step for step in part)
        for part in (program.setup, program.body)
    ]
    return replace(program, setup=parts[0], body=parts[1])


def _in_text(version: object) -> str:
    """Return a version as it can stand in a comment or a string: a host's own word is not printed as code."""
    return re.sub(r"[^\w.+ -]", "?", str(version), flags=re.ASCII)[:80]


def _paths(module: str, told: Mapping[str, Any]) -> str:
    """Return the line that makes the user's own modules importable; a framework's needs none."""
    if module in {"torch", "oneflow", *OWN_NAMED}:
        return ""
    folders = ", ".join(f"HERE / {folder!r}" for folder in told["folders"])
    return f"sys.path += map(str, [{folders}, Path.cwd()])\n" if folders else ""


def _device(module: str, recording: Recording) -> str:
    device = repr(str(recording.note.get("device", "cpu")).replace("auto", "cpu"))
    return device if module in OWN_NAMED else f"{module}.device({device})"


def adapters_text(module: str, program: Program) -> str:
    """Return the text of the adapters that the program calls."""
    called = [
        step.target.removeprefix(_ADAPTERS)
        for step in program.steps
        if step.op == CALL_FUNCTION and step.target.startswith(_ADAPTERS)
    ]
    return definitions(f"ci_autotest.host.adapters.{module}", list(dict.fromkeys(called))) if called else ""


def _bindings(recording: Recording, program: Program) -> list[str]:
    found, named = [], names(program)
    for index, step in enumerate(program.steps):
        spec = step.args[0] if step.op == PLACEHOLDER else None
        if isinstance(spec, TensorSpec):
            grad = ", requires_grad=True" if spec.requires_grad else ""
            found.append(f"{named[index]} = tensor(*{_tensor(recording, step.target, spec)}{grad})")
    return found


def _leaves(program: Program) -> list[str]:
    named = names(program)
    return [named[i] for i, step in enumerate(program.steps) if step.op == PLACEHOLDER and not step.in_setup]


def _returned(given: Sequence[str]) -> str:
    return f"return {{{', '.join(f'{name!r}: {name}' for name in given)}}}"


def _tensor(recording: Recording, key: str, spec: TensorSpec) -> str:
    """Return the text of an array in the shape of ``spec`` and the name of its dtype."""
    return f"({array_expression(recording, key, spec)}, {spec.dtype!r})"


def array_expression(recording: Recording, key: str, spec: TensorSpec) -> str:
    """Return the text of an array in the shape of ``spec``; bfloat16 as the float32 of the same values."""
    dtype = _WIDENED if spec.dtype == "bfloat16" else spec.dtype
    if _is_stored(spec):
        kind = "<u2" if spec.dtype == "bfloat16" else dtype
        flat = f"stored({key!r}, {kind!r})"
        flat = f"({flat}.astype('<u4') << 16).view('<f4')" if spec.dtype == "bfloat16" else flat
    elif spec.is_contiguous:
        array = array_of(recording.tensors[key], spec.dtype, spec.shape)
        again = "" if array.size else f".reshape({spec.shape})"
        return f"np.array({nested(array)}, {dtype!r}){again}"
    else:
        flat = f"np.array({nested(array_of(recording.tensors[key], spec.dtype, (spec.storage_size,)))}, {dtype!r})"
    if spec.is_contiguous:
        return f"{flat}.reshape({spec.shape})"
    strides = tuple(stride * np.dtype(dtype).itemsize for stride in spec.strides)
    return f"np.lib.stride_tricks.as_strided({flat}[{spec.offset}:], {spec.shape}, {strides})"


def _is_stored(spec: TensorSpec) -> bool:
    return spec.storage_size > INLINE_ELEMENTS


def _has_file(recording: Recording) -> bool:
    return any(_is_stored(spec) for spec in _specs(recording).values())


def _specs(recording: Recording) -> dict[str, TensorSpec]:
    """Return every tensor that the script holds, by key."""
    found = {step.target: step.args[0] for step in recording.program.steps if step.op == PLACEHOLDER}
    cotangents = {cotangent_key(i): spec for i, spec in enumerate(recording.program.cotangents)}
    every = {**found, **cotangents, **recording.expected}
    return {key: spec for key, spec in every.items() if isinstance(spec, TensorSpec)}


def _outputs(recording: Recording) -> dict[int, str]:
    """Return the text of each output that is carried: a tensor's, a plain value's, of a refusal what was raised."""
    found = {}
    for i, ref in enumerate(output_refs(recording.program)):
        key, kind = f"output_{i}", refused_as(recording.program.steps[ref.index])
        if kind is not None:
            found[i] = repr(kind)
        elif key in recording.expected:
            found[i] = _tensor(recording, key, recording.expected[key])
        elif key in recording.facts and not isinstance(recording.facts[key], Mapping_):
            found[i] = literal(recording.facts[key], ())
    return found


def carried_by_name(recording: Recording, prefix: str, host: Mapping[str, Any], named: Sequence[str]) -> dict[str, str]:
    """Return the tensors under a prefix by the name that the script has for them; ``None`` for one that is missing.

    A framework that differentiates functions gives zeros for what no output depends on: there nothing is missing.
    """
    parameters = {(index, name): place for index, name, place in host["parameters"]}
    missing = [] if host["module"] in OF_FUNCTIONS else [key for key, fact in recording.facts.items() if fact is None]
    found = {}
    for key in [*recording.expected, *missing]:
        if key.startswith(prefix):
            text, _, parameter = key.removeprefix(prefix).partition(".")
            index = int(text)
            place = parameters.get((index, parameter), host["moved"][index])
            if place >= 0:
                is_inside = parameter and (index, parameter) not in parameters
                spec = recording.expected.get(key)
                name = f"{named[place]}.{parameter}" if is_inside else named[place]
                found[name] = "None" if spec is None else _tensor(recording, key, spec)
    return found


def _mapping(items: Mapping[Any, str]) -> str:
    return "{" + "".join(f"\n    {key!r}: {text}," for key, text in items.items()) + ("\n}" if items else "}")

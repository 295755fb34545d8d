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
from ci_autotest.program.repro.entry_points import WATCH
from ci_autotest.program.repro.framework_code import JAX, MINDSPORE, PADDLE, PADDLE_GRAPHED
from ci_autotest.program.repro.host_template import GRAPHED, READER, REPEATED, TEMPLATE, TORCH_LIKE
from ci_autotest.program.repro.torch_script import carried_flags
from ci_autotest.program.targets import is_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.program.ir import Recording

#: Where a framework keeps its dtypes and constants, where that is not the module itself.
NAMESPACES: Final = {"jax": "jax.numpy"}
_GLUES: Final = {"paddle": PADDLE, "jax": JAX, "mindspore": MINDSPORE}
#: What is added to the glue where a body is run as one graph; for others ``GRAPHED``, without gradients.
_GRAPHS_WITH_GRADIENTS: Final = {"paddle": PADDLE_GRAPHED}
#: numpy's dtype of what lies in the tensor file; bfloat16 is widened.
_WIDENED: Final = "float32"
_ADAPTERS: Final = "adapters."
#: Frameworks that differentiate functions, and not values.
_OF_FUNCTIONS: Final = frozenset({"jax", "mindspore"})
#: What the script itself binds.
_OWN_NAMES: Final = frozenset({
    "np", "json", "os", "sys", "Path", "inputs", "candidate", "tensor", "elements", "run", "stored", "differs", "shown",
    "main", "watched", "repeated", "graphed", "as_graph", "eagerly", "Body", "device", "flags", "members", "observed",
    "plain", "unlike", "is_array", "flags_differ",
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
    is_graph = host.get("graph") is True or told["kind"] == "graph"
    is_forward = is_graph and module not in _GRAPHS_WITH_GRADIENTS
    named = names(program)
    namespace = NAMESPACES.get(module, module)
    takes = [name for name, _ in inputs(program)]
    return TEMPLATE.format(
        title=told["title"],
        message="\n".join(f"  {line}" if line else "" for line in told["lines"]),
        module=module, version=_in_text(host["version"]), python=str(host["python"]),
        kind=told["kind"], versions=told["versions"],
        reference=f"torch {_in_text(recording.note.get('torch', 'of unknown version'))}",
        paths=_paths(module, told), device=_device(module, recording),
        rtol=told["rtol"], atol=told["atol"], check_dtype=told["check_dtype"],
        reader=READER if any(_is_stored(spec) for spec in _specs(recording).values()) else "",
        glue=f"TAKES = {takes!r}\n{_glue(module, is_graph=is_graph)}",
        setup=_block(
            [*_bindings(recording, program, named), *setup_lines(program, namespace), _returned(program, named)]
        ),
        adapters=f"{adapters}\n\n\n" if adapters else "", strictness=told["strictness"], takes=", ".join(takes),
        body=_block([*body_lines(program, namespace=namespace), f"return {output_text(program)}"]),
        cotangents=_mapping({
            i: _tensor(recording, cotangent_key(i), spec)
            for i, spec in enumerate(recording.program.cotangents)
            if spec is not None and not is_forward
        }),
        outputs=_mapping(_outputs(recording)),
        refused=repr(refused_outputs(program)),
        flags=_mapping(carried_flags(recording, "output_", range(len(output_refs(program))))),
        gradients=_mapping({} if is_forward else carried_by_name(recording, "gradient_", host, named)),
        after=_mapping(carried_by_name(recording, "after_", host, named)),
        after_flags=_mapping(carried_flags(recording, "after_", [named[place] for place in host["moved"]])),
        names=repr([named[ref.index] for ref in output_refs(program)]),
        **_entry(told),
    )  # fmt: skip


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


def _glue(module: str, *, is_graph: bool) -> str:
    """Return how tensors are made and read, and the candidate run, in the framework."""
    glue = _GLUES.get(module) or TORCH_LIKE.format(m=module)
    if is_graph and module in _GRAPHS_WITH_GRADIENTS:
        return f"{glue}\n{_GRAPHS_WITH_GRADIENTS[module]}"
    return f"{glue}\n{GRAPHED.format(m=module)}" if is_graph and module not in _GLUES else glue


def _entry(told: Mapping[str, Any]) -> dict[str, str]:
    """Return what the script begins with, by the kind of finding."""
    if told["kind"] in {"crash", "timeout"}:
        return {"watch": WATCH.format(timeout_s=told["timeout_s"]), "entry": "watched"}
    if told["kind"] == "nondeterminism":
        return {"watch": REPEATED, "entry": "repeated"}
    return {"watch": "", "entry": "graphed" if told["kind"] == "graph" else "main"}


def _paths(module: str, told: Mapping[str, Any]) -> str:
    """Return the line that makes the user's own modules importable; a framework's needs none."""
    if module in {"torch", *_GLUES, "oneflow"}:
        return ""
    folders = ", ".join(f"HERE / {folder!r}" for folder in told["folders"])
    return f"sys.path += [str(folder) for folder in ({folders}, Path.cwd())]\n" if folders else ""


def _device(module: str, recording: Recording) -> str:
    device = repr(str(recording.note.get("device", "cpu")).replace("auto", "cpu"))
    return device if module in _GLUES else f"{module}.device({device})"


def adapters_text(module: str, program: Program) -> str:
    """Return the text of the adapters that the program calls."""
    called = [
        step.target.removeprefix(_ADAPTERS)
        for step in program.steps
        if step.op == CALL_FUNCTION and step.target.startswith(_ADAPTERS)
    ]
    return definitions(f"ci_autotest.host.adapters.{module}", list(dict.fromkeys(called))) if called else ""


def _bindings(recording: Recording, program: Program, named: Sequence[str]) -> list[str]:
    found = []
    for index, step in enumerate(program.steps):
        spec = step.args[0] if step.op == PLACEHOLDER else None
        if isinstance(spec, TensorSpec):
            grad = ", requires_grad=True" if spec.requires_grad else ""
            found.append(f"{named[index]} = tensor(*{_tensor(recording, step.target, spec)}{grad})")
    return found


def _returned(program: Program, named: Sequence[str]) -> str:
    """Return what the function of the inputs gives: what the body takes, and every leaf."""
    leaves = [named[i] for i, step in enumerate(program.steps) if step.op == PLACEHOLDER and not step.in_setup]
    given = dict.fromkeys([*(name for name, _ in inputs(program)), *leaves])
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
    missing = [] if host["module"] in _OF_FUNCTIONS else [key for key, fact in recording.facts.items() if fact is None]
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


def _block(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for text in lines for line in text.split("\n"))


def _mapping(items: Mapping[Any, str]) -> str:
    return "{" + "".join(f"\n    {key!r}: {text}," for key, text in items.items()) + ("\n}" if items else "}")

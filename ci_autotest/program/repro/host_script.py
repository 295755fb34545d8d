"""The repro for a candidate in its own interpreter: the program in that framework's API.

It needs numpy and the framework, but neither torch nor this package, because it carries the results of the reference.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ci_autotest.errors import ProgramError
from ci_autotest.program.check import OWN_NAMED
from ci_autotest.program.codegen import body_lines, inputs, names, output_text, setup_lines
from ci_autotest.program.function_source import definitions
from ci_autotest.program.ir import (
    CALL_FUNCTION,
    PLACEHOLDER,
    Program,
    cotangent_key,
    output_refs,
)
from ci_autotest.program.json_values import program_of
from ci_autotest.program.python_names import is_module, is_pythons
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro import host_template as template
from ci_autotest.program.repro.candidates import block, environment_lines
from ci_autotest.program.repro.carried_values import carried_flags, mapping_text
from ci_autotest.program.repro.entry_points import WATCH
from ci_autotest.program.repro.framework_code import code_of
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
from ci_autotest.program.repro.host_values import array_pair, carried_by_name, has_stored, host_output_texts
from ci_autotest.program.repro.rank_processes import lies_text, rank_body_lines, rank_setup_lines, start_text
from ci_autotest.program.repro.torch_template import END, LEAVE
from ci_autotest.program.targets import is_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ci_autotest.program.ir import Recording
    from ci_autotest.program.repro.host_parts import HostNeeds

#: The module of a framework's dtypes and constants, if it is not the framework's own.
NAMESPACES: Final = {"jax": "jax.numpy"}
_ADAPTERS: Final = "adapters."
#: Names that the script binds itself.
_OWN_NAMES: Final = frozenset({
    "np", "json", "os", "sys", "Path", "inputs", "candidate", "tensor", "elements", "run", "stored", "differs", "shown",
    "main", "watched", "repeated", "graphed", "as_graph", "eagerly", "Body", "device", "flags", "members", "observed",
    "plain", "unlike", "is_array", "is_own", "flags_differ", "written_to", "wide", "on_ranks", "started", "printed",
    "group", "free", "until", "statuses", "rank", "output", "text", "ends", "socket", "subprocess", "tempfile", "time",
})  # fmt: skip


def host_repro_text(recording: Recording, details: Mapping[str, Any]) -> str:
    """Return the script.

    Args:
        recording: The smallest program, with the results of the reference. Its note has, under ``host``, the program in
            the framework's words and the places of its values.
        details: As for ``repro_text``.

    Raises:
        ProgramError: The note has no such program, or a name that is never printed as code.
    """
    host = host_of(recording)
    module = host["module"]
    # Before the values get names, because the adapters bind names of their own.
    adapters = adapters_text(module, host["program"])
    program = without_clashes(host["program"], adapters, module)
    host = {**host, "program": program}
    needs = host_needs_of(recording, details, host)
    namespace = NAMESPACES.get(module, module)
    takes = [name for name, _ in inputs(program)]
    given = list(dict.fromkeys([*takes, *_leaves(program)]))
    made = rank_setup_lines(program) if needs.ranks else setup_lines(program, namespace)
    calls = rank_body_lines(program) if needs.ranks else body_lines(program, namespace=namespace)
    setup = [*_bindings(recording, program), *made, _returned(given)]
    body = [*calls, f"return {output_text(program)}"]
    framework, entry = framework_texts(needs, module), host_entry(needs)
    uses_device = any(re.search(r"\bdevice\b", text) for text in [*setup, *body, *framework])
    blocks = [
        _head(recording, details, host, needs.ranks, has_adapters=bool(adapters)),
        *([f"device = {_device(module, recording)}"] if uses_device else ()),
        f"def inputs():\n{block(setup)}",
        f"def candidate({', '.join(takes)}):\n{block(body)}",
        *([READER] if has_stored(recording) else ()),
        _values(recording, details, host, needs),
        *([adapters] if adapters else ()),
        *framework,
        *([observed_text(needs, takes, given)] if entry != "graphed" else ()),
        *host_comparison_texts(details, needs),
        host_main_text(needs, module),
        *([WATCH % {"timeout_s": details["timeout_s"]}] if entry == "watched" else ()),
        END % {"usable": "", "entry": entry, "said": host_last_line(needs), "leave": LEAVE},
    ]
    return "\n\n\n".join(text.strip("\n") for text in blocks if text) + "\n"


def _head(
    recording: Recording, details: Mapping[str, Any], host: Mapping[str, Any], ranks: int, *, has_adapters: bool
) -> str:
    module, paths = host["module"], _paths(host["module"], details)
    libraries = [
        *(["from __future__ import annotations", ""] if has_adapters else ()),
        *(["import json"] if has_stored(recording) else ()),
        "import os",
        "import sys",
        "from pathlib import Path",
    ]
    return template.HEAD % {
        "title": details["title"],
        "message": "\n".join(f"  {line}" if line else "" for line in details["lines"]),
        "module": module,
        "libraries": "\n".join(libraries),
        "here": "HERE = Path(__file__).resolve().parent\n" if paths or has_stored(recording) else "",
        "python": str(host["python"]),
        "environment": "".join(f"{line}\n" for line in environment_lines(recording.note)),
        "paths": paths + (start_text(ranks, details["timeout_s"]) if ranks else ""),
        "version": _in_text(host["version"]),
        "first": code_of(module).first,
    }


def _values(recording: Recording, details: Mapping[str, Any], host: Mapping[str, Any], needs: HostNeeds) -> str:
    """Return the results of the reference, and the tolerance."""
    program = host["program"]
    named = names(program)
    takes = [name for name, _ in inputs(program)]
    cotangents = enumerate(recording.program.cotangents) if needs.backward else ()
    flags = carried_flags(recording, "output_", range(len(output_refs(program))))
    after_flags = carried_flags(recording, "after_", [named[place] for place in host["moved"]])
    reference = f"torch {_in_text(recording.note.get('torch', 'of unknown version'))}"
    weights = {i: array_pair(recording, cotangent_key(i), spec) for i, spec in cotangents if spec is not None}
    outputs = [
        f"# What the reference, {reference}, gave when this was found.",
        f"OUTPUTS = {mapping_text(host_output_texts(recording))}",
    ]
    lines = [
        # A repeated run and a graph are compared with the candidate's own results.
        *(outputs if needs.kind not in {"nondeterminism", "graph"} else ()),
        *([f"REFUSED = {refused_outputs(program)!r}  # how a step was refused"] if needs.refused else ()),
        *([f"GRADIENTS = {mapping_text(carried_by_name(recording, 'gradient_', host, named))}",
           f"COTANGENTS = {mapping_text(weights)}  # what goes into the backward pass"] if needs.backward else ()),
        *(["COTANGENTS = {}"] if needs.graph and not needs.backward else ()),
        *([f"FLAGS = {mapping_text(flags)}"] if needs.flags else ()),
        *([f"AFTER = {mapping_text(carried_by_name(recording, 'after_', host, named))}  # what the run has changed",
           f"AFTER_FLAGS = {mapping_text(after_flags)}"] if needs.after else ()),
        f"TAKES, NAMES = {takes!r}, {[named[ref.index] for ref in output_refs(program)]!r}",
    ]  # fmt: skip
    settings = template.SETTINGS % {"rtol": details["rtol"], "atol": details["atol"], "versions": details["versions"]}
    return "\n".join([*lines, settings])


def host_of(recording: Recording) -> dict[str, Any]:
    """Return the candidate's part of the note, with its program decoded and every name in it checked.

    Raises:
        ProgramError: It is damaged, or has a name that is never printed as code.
    """
    host = recording.note.get("host")
    module = host.get("module") if isinstance(host, dict) else None
    if not isinstance(host, dict) or not isinstance(module, str) or not is_module(module):
        message = "the note names no module of a host: there is nothing to print as code."
        raise ProgramError(message)
    root = module.partition(".")[0]
    if is_pythons(root):
        message = (
            f"the note names {module!r} as a framework: modules of Python's standard library are never printed as code."
        )
        raise ProgramError(message)
    try:
        program = program_of(host["program"])
        moved = [int(place) for place in host["moved"]]
        # The note may come from outside, and these places are used as indices while the script is printed.
        if len(moved) != len(recording.program.steps) or max(moved, default=-1) >= len(program.steps):
            raise IndexError("moved")  # noqa: EM101, TRY301 - raised below, with the others
        parameters = [(int(index), str(name), int(place)) for index, name, place in host["parameters"]]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        message = f"the note's program for {module} is damaged ({type(error).__name__}: {error})."
        raise ProgramError(message) from error
    for step in program.steps:
        owner = step.target.partition(".")[0]
        # Python's own operators are on torch's allow list as well.
        is_own = owner in {root, "adapters"} or is_function(step.target)
        if step.op == CALL_FUNCTION and not is_own:
            message = f"target {step.target[:60]!r} does not belong to {module} and is never printed as code."
            raise ProgramError(message)
    return {**host, "program": program, "moved": moved, "parameters": parameters}


def without_clashes(program: Program, adapters: str, module: str) -> Program:
    """Return the program with values renamed whose names the script uses for something else."""
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
    """Return a version that is safe in a comment or a string, because a host can report any text."""
    return re.sub(r"[^\w.+ -]", "?", str(version), flags=re.ASCII)[:80]


def _paths(module: str, details: Mapping[str, Any]) -> str:
    """Return the line that makes the user's own modules importable; installed frameworks need none."""
    if module in {"torch", "oneflow", *OWN_NAMED}:
        return ""
    folders = ", ".join(f"HERE / {folder!r}" for folder in details["folders"])
    return f"sys.path += map(str, [{folders}, Path.cwd()])\n" if folders else ""


def _device(module: str, recording: Recording) -> str:
    device = repr(str(recording.note.get("device", "cpu")).replace("auto", "cpu"))
    return device if module in OWN_NAMED else f"{module}.device({device})"


def adapters_text(module: str, program: Program) -> str:
    """Return the source of the adapters that the program calls."""
    called = [
        step.target.removeprefix(_ADAPTERS)
        for step in program.steps
        if step.op == CALL_FUNCTION and step.target.startswith(_ADAPTERS)
    ]
    return definitions(f"ci_autotest.host.adapters.{module}", list(dict.fromkeys(called))) if called else ""


def _bindings(recording: Recording, program: Program) -> list[str]:
    found, named = [], names(program)
    for index, step in enumerate(program.steps):
        spec = step.spec
        if spec is not None:
            grad = ", requires_grad=True" if spec.requires_grad else ""
            lies = lies_text(spec)
            found.append(f"{named[index]} = tensor(*{array_pair(recording, step.target, spec)}{grad}{lies})")
    return found


def _leaves(program: Program) -> list[str]:
    named = names(program)
    return [named[i] for i, step in enumerate(program.steps) if step.op == PLACEHOLDER and not step.in_setup]


def _returned(given: Sequence[str]) -> str:
    return f"return {{{', '.join(f'{name!r}: {name}' for name in given)}}}"

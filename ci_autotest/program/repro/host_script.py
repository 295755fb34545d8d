"""The repro for a candidate in its own interpreter: the program in that framework's API.

It needs numpy and the framework, but neither torch nor this package, because it carries the results of the reference.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ci_autotest.errors import ProgramError
from ci_autotest.program.check import OWN_NAMED
from ci_autotest.program.codegen import body_lines, inputs, names, output_text, setup_lines
from ci_autotest.program.function_source import definitions
from ci_autotest.program.ir import ARRAY, CALL_FUNCTION, Program, cotangent_key, output_refs
from ci_autotest.program.json_values import program_of
from ci_autotest.program.python_names import is_module, is_pythons
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro import host_template as template
from ci_autotest.program.repro.candidates import block, environment_lines
from ci_autotest.program.repro.carried_values import carried_flags, leaves, mapping_text, returned
from ci_autotest.program.repro.entry_points import WATCH
from ci_autotest.program.repro.framework_code import code_of
from ci_autotest.program.repro.host_template import READER
from ci_autotest.program.repro.host_values import array_pair, carried_by_name, has_stored, host_output_texts
from ci_autotest.program.repro.rank_processes import (
    lies_text,
    rank_body_lines,
    rank_code,
    rank_setup_lines,
    ranks_of,
    start_text,
)
from ci_autotest.program.repro.script_parts import is_floating
from ci_autotest.program.repro.torch_template import END, LEAVE, SAID, SAID_BY_WATCHER, SAID_IF_RUN
from ci_autotest.program.targets import is_function

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.recording import Recording
    from ci_autotest.program.repro.script_facts import ScriptFacts


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


def host_repro_text(recording: Recording, facts: ScriptFacts) -> str:
    """Return the script.

    Args:
        recording: The smallest program, with the results of the reference. Its note has, under ``host``, the program in
            the framework's words and the places of its values.
        facts: What it says of the finding.

    Raises:
        ProgramError: The note has no such program, or a name that is never printed as code.
    """
    host = host_of(recording)
    module = host["module"]
    # Before the values get names, because the adapters bind names of their own.
    adapters = adapters_text(module, host["program"])
    program = without_clashes(host["program"], adapters, module)
    host = {**host, "program": program}
    needs = _host_needs_of(recording, facts, host)
    namespace = NAMESPACES.get(module, module)
    takes = [name for name, _ in inputs(program)]
    given = list(dict.fromkeys([*takes, *leaves(program)]))
    made = rank_setup_lines(program) if needs.ranks else setup_lines(program, namespace)
    calls = rank_body_lines(program) if needs.ranks else body_lines(program, namespace=namespace)
    setup = [*_bindings(recording, program), *made, returned(given)]
    body = [*calls, f"return {output_text(program)}"]
    framework, entry = _framework_texts(needs, module), _host_entry(needs)
    uses_device = any(re.search(r"\bdevice\b", text) for text in [*setup, *body, *framework])
    blocks = [
        _head(recording, facts, host, needs.ranks, has_adapters=bool(adapters)),
        *([f"device = {_device(module, recording)}"] if uses_device else ()),
        f"def inputs():\n{block(setup)}",
        f"def candidate({', '.join(takes)}):\n{block(body)}",
        *([READER] if has_stored(recording) else ()),
        _values(recording, facts, host, needs),
        *([adapters] if adapters else ()),
        *framework,
        *([_observed_text(needs, takes, given)] if entry != "graphed" else ()),
        *_host_comparison_texts(facts, needs),
        _host_main_text(needs, module),
        *([WATCH % {"timeout_s": facts.timeout_s}] if entry == "watched" else ()),
        END % {"usable": "", "entry": entry, "said": _host_last_line(needs), "leave": LEAVE},
    ]
    return "\n\n\n".join(text.strip("\n") for text in blocks if text) + "\n"


def _head(recording: Recording, facts: ScriptFacts, host: Mapping[str, Any], ranks: int, *, has_adapters: bool) -> str:
    module, paths = host["module"], _paths(host["module"], facts)
    libraries = [
        *(["from __future__ import annotations", ""] if has_adapters else ()),
        *(["import json"] if has_stored(recording) else ()),
        "import os",
        "import sys",
        "from pathlib import Path",
    ]
    return template.HEAD % {
        "title": facts.title,
        "message": "\n".join(f"  {line}" if line else "" for line in facts.lines),
        "module": module,
        "libraries": "\n".join(libraries),
        "here": "HERE = Path(__file__).resolve().parent\n" if paths or has_stored(recording) else "",
        "python": str(host["python"]),
        "environment": "".join(f"{line}\n" for line in environment_lines(recording.note)),
        "paths": paths + (start_text(ranks, facts.timeout_s) if ranks else ""),
        "version": _in_text(host["version"]),
        "first": code_of(module).first,
    }


def _values(recording: Recording, facts: ScriptFacts, host: Mapping[str, Any], needs: _HostNeeds) -> str:
    """Return the results of the reference, and the tolerance."""
    program = host["program"]
    named = names(program)
    takes = [name for name, _ in inputs(program)]
    cotangents = recording.program.cotangent_specs if needs.backward else {}
    flags = carried_flags(recording, "output_", range(len(output_refs(program))))
    after_flags = carried_flags(recording, "after_", [named[place] for place in host["moved"]])
    reference = f"torch {_in_text(recording.note.torch or 'of unknown version')}"
    weights = {i: array_pair(recording, cotangent_key(i), spec) for i, spec in cotangents.items()}
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
    settings = template.SETTINGS % {"rtol": facts.rtol, "atol": facts.atol, "versions": facts.versions}
    return "\n".join([*lines, settings])


def host_of(recording: Recording) -> dict[str, Any]:
    """Return the candidate's part of the note, with its program decoded and every name in it checked.

    Raises:
        ProgramError: It is damaged, or has a name that is never printed as code.
    """
    host = recording.note.host
    module = host.get("module") if host is not None else None
    if host is None or not isinstance(module, str) or not is_module(module):
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


def _paths(module: str, facts: ScriptFacts) -> str:
    """Return the line that makes the user's own modules importable; installed frameworks need none."""
    if module in {"torch", "oneflow", *OWN_NAMED}:
        return ""
    folders = ", ".join(f"HERE / {folder!r}" for folder in facts.folders)
    return f"sys.path += map(str, [{folders}, Path.cwd()])\n" if folders else ""


def _device(module: str, recording: Recording) -> str:
    device = repr(recording.note.device.replace("auto", "cpu"))
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


# The parts of a framework's repro that a finding needs: functions, and lines of ``main``.


#: Kinds that the forward pass shows, unless the finding itself is about the backward pass.
_FORWARD: Final = frozenset({"value", "shape", "dtype", "metadata", "nondeterminism"})
#: The exit status if the candidate raises, for kinds where that says something about the finding.
_STATUS_OF_RAISING: Final = {"leniency": 0, "error": 1, "crash": 1, "timeout": 1, "shape": 1, "rank": 1}


class _HostNeeds(NamedTuple):
    """The parts of a framework's repro that its finding needs, besides the values of the outputs.

    Attributes:
        kind: Of the finding.
        graph: The body as one graph.
        backward: The backward pass.
        flags: What is compared of outputs besides their elements.
        after: What inputs and states are after the run.
        refused: How steps were refused.
        plain: Values that are no tensors.
        mixed: Values of other than one floating-point dtype on both sides.
        views: Inputs whose layout is not that of their shape.
        ranks: Number of ranks of the candidate; 0 if it is no group.
    """

    kind: str
    graph: bool
    backward: bool
    flags: bool
    after: bool
    refused: bool
    plain: bool
    mixed: bool
    views: bool
    ranks: int = 0

    @property
    def observed(self) -> list[str]:
        """The names of what ``observed`` returns."""
        return [
            "outputs",
            *(("gradients",) if self.backward else ()),
            *(("output_flags",) if self.flags else ()),
            *(("after", "after_flags") if self.after else ()),
        ]


def _host_needs_of(recording: Recording, facts: ScriptFacts, host: Mapping[str, Any]) -> _HostNeeds:
    """Return the parts that a repro needs for its finding; ``host`` is the candidate's part of the note."""
    kind, program, module = facts.kind, recording.program, host["module"]
    is_graph = kind == "graph" or host.get("graph") is True
    # Without code for graphs the script says that it cannot show the finding.
    has_graph = is_graph and bool(code_of(module).graph)
    # A finding in the forward pass needs no gradients, which keeps the script short.
    is_forward = (kind in _FORWARD and not facts.has_backward) or (is_graph and not code_of(module).has_graph_gradients)
    has_backward = any(program.cotangents) and not is_forward
    has_after = kind in {"mutation", "state"}
    is_plain = any(f"output_{i}" not in recording.expected for i in range(len(output_refs(program))))
    is_float = is_floating(recording, with_inputs=has_after)
    is_array = any(step.target == ARRAY for _, step in program.calls)
    return _HostNeeds(
        kind=kind,
        graph=has_graph,
        backward=has_backward,
        flags=kind == "metadata",
        after=has_after,
        # A translation ends without the mark if the last step is the refused one: its exception ends the candidate.
        refused=bool(refused_outputs(host["program"])),
        plain=is_plain or is_array or has_backward or has_after or kind == "nondeterminism" or has_graph,
        mixed=not is_float or is_plain or is_array or not facts.check_dtype or (has_after and bool(program.setup)),
        ranks=ranks_of(host),
        views=any(not spec.is_contiguous for spec in program.specs.values()),
    )


def _framework_texts(needs: _HostNeeds, module: str) -> list[str]:
    """Return the functions that make, read and differentiate tensors."""
    code = rank_code() if needs.ranks else code_of(module)
    texts = [
        (needs.views and code.tensor_of_view) or code.tensor,
        template.ELEMENTS % {
            "otherwise": ", any other value as it is compared" if needs.plain else "",
            "tensor_class": code.tensor_class,
            "other": "plain(value)" if needs.plain else template.NO_TENSOR,
            "elements": code.elements,
        },
        *([code.flags] if needs.flags or needs.after else ()),
        *([code.run] if needs.backward or (needs.graph and code.has_graph_gradients) else ()),
        *([code.graph] if needs.graph else ()),
    ]  # fmt: skip
    return [text.replace("%(module)s", module) for text in texts]


def _observed_text(needs: _HostNeeds, takes: list[str], given: list[str]) -> str:
    """Return the function that runs the candidate.

    Args:
        needs: What it returns.
        takes: Names of what the program takes, in order.
        given: Names of what ``inputs`` returns: those, then leaves that the program does not take.
    """
    words = {
        "outputs": "its outputs",
        "gradients": "gradients",
        "output_flags": "the flags of outputs",
        "after": "what inputs and states are afterwards",
        "after_flags": "their flags",
    }
    source = "given" if needs.after else "inputs()"
    called = f"**{source}" if takes == given else f"**{{name: {source}[name] for name in TAKES}}"
    weights = "{i: elements(weight) for i, weight in weights.items()}" if needs.backward else "{}"
    forward = template.AS_GRAPH if needs.graph else template.FORWARD % {"given": called}
    lines = [
        template.OBSERVED % {"described": ", ".join(words[name] for name in needs.observed)},
        *([template.BACKWARD] if needs.backward else [*([template.GIVEN] if needs.after else ()), forward]),
        *([template.OUTPUT_FLAGS] if needs.flags else ()),
        *([template.AFTER % {"weights": weights}] if needs.after else ()),
        template.OUTPUTS,
    ]  # fmt: skip
    return f"{''.join(lines)}    return {', '.join(needs.observed)}"


def _host_comparison_texts(facts: ScriptFacts, needs: _HostNeeds) -> list[str]:
    """Return the functions that compare."""
    is_tolerant = facts.strictness == "tolerance"
    strict = template.TOLERANT if is_tolerant else template.STRICT
    limits = {"rtol": "RTOL", "atol": "ATOL"} if is_tolerant else {"rtol": "0", "atol": "0"}
    differs = template.DIFFERS % {
        "plain": template.PLAIN if needs.plain else "",
        "dtype": " or dtype != wanted" if facts.check_dtype else "",
        "unequal": (template.MIXED if needs.mixed else template.FLOATS) % {"strict": strict},
    }
    return [
        *([differs] if needs.kind != "nondeterminism" else ()),
        *([template.SHOWN_PLAIN if needs.plain else template.SHOWN] if needs.kind != "nondeterminism" else ()),
        *([template.PLAIN_VALUES % limits] if needs.plain else ()),
        *([template.FLAGS_DIFFER] if needs.flags or needs.after else ()),
        *([template.MEMBERS] if needs.after else ()),
        *([template.IS_OWN] if needs.kind in _STATUS_OF_RAISING else ()),
    ]


def _host_main_text(needs: _HostNeeds, module: str) -> str:
    """Return the function that runs the candidate and compares it with what the reference gave."""
    if needs.kind == "graph":
        return "" if needs.graph else template.NO_GRAPH
    if needs.kind == "nondeterminism":
        results = "[*outputs, *gradients.values()]" if needs.backward else "outputs"
        return template.REPEATED % {"observed": ", ".join(needs.observed), "results": results}
    names = ", ".join(needs.observed)
    status = _STATUS_OF_RAISING.get(needs.kind)
    observe = template.OBSERVE if status is None else template.OBSERVE_RAISING
    return template.MAIN % {
        "module": module,
        "observe": observe % {"observed": names, "status": status},
        "checks": "".join(_checks(needs)),
    }


def _checks(needs: _HostNeeds) -> list[str]:
    is_accepted = needs.kind == "leniency" and not needs.refused
    weights = "COTANGENTS" if needs.backward else "{}"
    # The reference raised, so that there are no values to compare with.
    if is_accepted and not needs.backward:
        return [template.ACCEPTED]
    return [
        *([template.ACCEPTED_BACKWARD] if is_accepted else ()),
        template.VALUES % {"refused": template.REFUSED if needs.refused else ""},
        *([template.FLAGS] if needs.flags else ()),
        *([template.GRADIENTS] if needs.backward else ()),
        *([template.AFTERWARDS % {"weights": weights}] if needs.after else ()),
    ]


def _host_entry(needs: _HostNeeds) -> str:
    """Return the name of the function that the script begins with."""
    if needs.ranks and needs.kind in {"crash", "timeout"}:
        return "main"  # The process that starts the ranks watches them.
    entries = {"crash": "watched", "timeout": "watched", "nondeterminism": "repeated"}
    return "graphed" if needs.kind == "graph" and needs.graph else entries.get(needs.kind, "main")


def _host_last_line(needs: _HostNeeds) -> str:
    """Return the line that prints what the exit status means."""
    if _host_entry(needs) == "watched":
        return SAID_BY_WATCHER
    return SAID_IF_RUN if needs.kind in {*_STATUS_OF_RAISING, "graph"} else SAID

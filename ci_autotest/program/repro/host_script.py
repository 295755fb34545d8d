"""The repro for a candidate in its own interpreter: the program in that framework's API.

It needs numpy and the framework, but neither torch nor this package, because it carries the results of the reference.
What it calls, it takes from ``repro_functions``.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.program.check import OWN_NAMED
from ci_autotest.program.codegen import body_lines, inputs, names, output_text, setup_lines
from ci_autotest.program.function_source import definitions
from ci_autotest.program.ir import ARRAY, CALL_FUNCTION, Mapping_, Program, cotangent_key, output_refs
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro.candidates import block, environment_lines
from ci_autotest.program.repro.carried_values import leaves, mapping_text, returned
from ci_autotest.program.repro.host_values import (
    OF_FUNCTIONS,
    HostProgram,
    array_pair,
    carried_by_name,
    host_of,
    host_output_texts,
)
from ci_autotest.program.repro.rank_processes import (
    lies_text,
    rank_body_lines,
    rank_setup_lines,
)
from ci_autotest.program.repro.script import Script, import_block, last_lines, of_library, standard

if TYPE_CHECKING:
    from ci_autotest.program.recording import Recording
    from ci_autotest.program.repro.script_facts import ScriptFacts


#: The module of a framework's dtypes and constants, if it is not the framework's own.
NAMESPACES: Final = {"jax": "jax.numpy"}
_ADAPTERS: Final = "adapters."
#: Names that the bodies of the script use, or that a pasted program binds.
_OWN_NAMES: Final = frozenset({
    "np", "json", "os", "sys", "Path", "inputs", "candidate", "tensor", "elements", "run", "stored", "main", "plain",
    "device", "framework", "on_ranks", "expected", "found", "gradient", "pull",
})  # fmt: skip
#: Frameworks with functions of their own in ``repro_functions``; another's module has torch's names.
_OWN_FUNCTIONS: Final = frozenset({"paddle", *OF_FUNCTIONS})
#: Lines that configure a framework. By default JAX turns 64-bit numbers into 32-bit ones.
_FIRST: Final = {
    "jax": """jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")""",
    "mindspore": "mindspore.runtime.launch_blocking()  # an error is raised where it is made",
}
_HEAD: Final = '''"""%(title)s

%(message)s

Run it: python repro.py
It needs numpy and %(module)s. If PYTHON, in which this was found, exists, the script continues there.
Exit status: 1 while misaligned, 0 when fixed, 2 when it cannot run.
"""

%(libraries)s

PYTHON = %(python)r
# An error of this script's own is no finding: it ends with 2.
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.stdout.flush(), os._exit(2))
if Path(PYTHON).exists() and Path(PYTHON).parent.parent != Path(sys.prefix) and not os.environ.get("REPRO_IN_PLACE"):
    os.execve(PYTHON, [PYTHON, *sys.argv], {**os.environ, "REPRO_IN_PLACE": "1"})
%(environment)s%(paths)stry:
    import numpy as np
    import %(module)s
except ImportError as error:
    print(f"cannot run: {error}. Run it with an interpreter that has %(module)s %(version)s and numpy.")
    sys.exit(2)
%(first)s'''
#: A graph that this package makes cannot be made without it.
_NO_GRAPH: Final = """def main():
    print("cannot run: this was found in a graph that ci-autotest makes: ci-autotest replay shows it again")
    return 2"""
#: Kinds that the forward pass shows, unless the finding itself is about the backward pass.
_FORWARD: Final = frozenset({"value", "shape", "dtype", "metadata", "nondeterminism"})
#: The exit status if the candidate raises, where it is not 2: an error of the script itself.
_STATUS_OF_RAISING: Final = {"leniency": 0, "error": 1, "crash": 1, "timeout": 1, "shape": 1, "rank": 1}


class _HostNeeds(NamedTuple):
    """The parts of a framework's repro that its finding needs, besides the values of the outputs.

    Attributes:
        kind: Of the finding.
        graph: The body as one graph.
        backward: The backward pass.
        flags: What is compared of outputs besides their elements.
        after: What inputs and states are after the run.
        refused: Positions of outputs that say how a step was refused.
        accepted: Whether the reference raised at the end, so that there are no values to compare with.
        plain: Outputs that are no tensors.
        views: Inputs whose layout is not that of their shape.
        ranks: Number of ranks of the candidate; 0 if it is no group.
        entry: Name of the function with which the script starts.
    """

    kind: str
    graph: bool
    backward: bool
    flags: bool
    after: bool
    refused: tuple[int, ...]
    accepted: bool
    plain: bool
    views: bool
    ranks: int
    entry: str


def _needs_of(recording: Recording, facts: ScriptFacts, host: HostProgram) -> _HostNeeds:
    """Return the parts that a repro needs for its finding; ``host`` is the candidate's part of the note."""
    kind, module, ranks = facts.kind, host.module, host.ranks
    is_graph = kind == "graph" or host.graph
    # Without functions for graphs the script says that it cannot show the finding.
    has_graph = is_graph and module not in OF_FUNCTIONS
    # A finding in the forward pass needs no gradients, which keeps the script short; of graphs Paddle alone has them.
    is_forward = (kind in _FORWARD and not facts.has_backward) or (is_graph and module != "paddle")
    # A translation ends without the mark if the last step is the refused one: its exception ends the candidate.
    refused = refused_outputs(host.program)
    entries = {"crash": "watched", "timeout": "watched", "nondeterminism": "repeated"}
    entry = "graphed" if kind == "graph" and has_graph else entries.get(kind, "main")
    return _HostNeeds(
        kind=kind,
        graph=has_graph,
        backward=any(recording.program.cotangents) and not is_forward,
        flags=kind == "metadata",
        after=kind in {"mutation", "state"},
        refused=refused,
        accepted=kind == "leniency" and not refused,
        plain=any(f"output_{i}" not in recording.expected for i in range(len(output_refs(recording.program))))
        or any(step.target == ARRAY for _, step in recording.program.calls),
        views=any(not spec.is_contiguous for spec in recording.program.specs.values()),
        ranks=ranks,
        # The process that starts the ranks watches them.
        entry="main" if ranks and entry == "watched" else entry,
    )


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
    module = host.module
    # Before the values get names, because the adapters bind names of their own.
    adapters = adapters_text(module, host.program)
    program = without_clashes(host.program, adapters, module)
    host = host._replace(program=program)
    needs = _needs_of(recording, facts, host)
    namespace = NAMESPACES.get(module, module)
    takes = [name for name, _ in inputs(program)]
    given = list(dict.fromkeys([*takes, *leaves(program)]))
    made = rank_setup_lines(program) if needs.ranks else setup_lines(program, namespace)
    calls = rank_body_lines(program) if needs.ranks else body_lines(program, namespace=namespace)
    setup = [*_bindings(recording, program), *made, returned(given)]
    body = [*calls, f"return {output_text(program)}"]
    sides = [f"def inputs():\n{block(setup)}", f"def candidate({', '.join(takes)}):\n{block(body)}"]
    script = Script(
        modules=_modules_of(needs, facts, module),
        sides=sides,
        values=_values(recording, facts, host, needs),
        between=[adapters] if adapters else [],
        run=_run_text(needs, program),
        end=_end(needs),
        first=f"start_group({needs.ranks}, {60 + 2 * facts.timeout_s})" if needs.ranks else "",
    )
    text = script.text(
        lambda imports, first: _head(recording, facts, host, imports, [*first, script.first] if first else [])
    )
    # A device is named by inputs, steps, or functions of the framework.
    place = f"device = {_device(module, recording)}\n\n\n" if re.search(r"\bdevice\b", text) else ""
    return text.replace("def inputs(", f"{place}def inputs(", 1)


def _modules_of(needs: _HostNeeds, facts: ScriptFacts, module: str) -> list[str]:
    """Return the modules whose functions the script may take; of two that have a name, the first counts."""
    return of_library(
        *(["exact_arrays"] if facts.strictness != "tolerance" else ()),
        *(["host_errors"] if needs.kind in _STATUS_OF_RAISING else ()),
        *(["frameworks.oneflow_ranks"] if needs.ranks else ()),
        *(["frameworks.paddle_views"] if needs.views and module == "paddle" else ()),
        f"frameworks.{module if module in _OWN_FUNCTIONS else 'like_torch'}",
        "arrays", "host_side", "group_start", "process_watch",
    )  # fmt: skip


def _head(recording: Recording, facts: ScriptFacts, host: HostProgram, imports: set[str], start: list[str]) -> str:
    """Return what stands above the program; ``start`` are the lines that start ranks."""
    module, has_adapters = host.module, bool(adapters_text(host.module, host.program))
    libraries = import_block({"import os", "import sys", "from pathlib import Path"} | standard(imports))
    group = "".join(f"{text}\n\n\n" for text in start[:-1])
    group += f'if "REPRO_RANK" not in os.environ:\n    {start[-1]}\n' if start else ""
    first = [*([_FIRST[module]] if module in _FIRST else ()), *_constants(module, is_group=bool(start))]
    return _HEAD % {
        "title": facts.title,
        "message": "\n".join(f"  {line}" if line else "" for line in facts.lines),
        "module": module,
        "libraries": ("from __future__ import annotations\n\n" if has_adapters else "") + libraries,
        "python": host.python,
        "environment": "".join(f"{line}\n" for line in environment_lines(recording.note)),
        "paths": _paths(module, facts) + (f"\n\n{group}" if group else ""),
        "version": _in_text(host.version),
        "first": "\n".join(first),
    }


def _constants(module: str, *, is_group: bool) -> list[str]:
    """Return the lines that bind what the functions of a framework use."""
    of_group = [
        f"RANKS = {module}.env.get_world_size()",
        f'PLACEMENT, EVERYWHERE = {module}.placement("cpu", list(range(RANKS))), [{module}.sbp.broadcast]',
    ]
    return [*([] if module in _OWN_FUNCTIONS else [f"framework = {module}"]), *(of_group if is_group else ())]


def _values(recording: Recording, facts: ScriptFacts, host: HostProgram, needs: _HostNeeds) -> str:
    """Return the results of the reference, and the tolerance."""
    program, named = host.program, names(host.program)
    cotangents = recording.program.cotangent_specs if needs.backward else {}
    weights = {i: array_pair(recording, cotangent_key(i), spec) for i, spec in cotangents.items()}
    expected = _expected(recording, host, needs)
    wanted = list(_gradients(recording, host)) if needs.backward else []
    reference = f"torch {_in_text(recording.note.torch or 'of unknown version')}"
    lines = [
        # A repeated run and a graph are compared with the candidate's own results.
        *([f"# What the reference, {reference}, gave when this was found.", f"EXPECTED = {mapping_text(expected)}"]
          if needs.entry not in {"repeated", "graphed"} else ()),
        *([f"COTANGENTS = {mapping_text(weights)}  # what goes into the backward pass"]
          if needs.backward or needs.graph or needs.after else ()),
        *([f"WANTED = {wanted}  # what the candidate is differentiated for"]
          if needs.backward and host.module in OF_FUNCTIONS else ()),
        *([f"TAKES = {[name for name, _ in inputs(program)]}"] if needs.backward or needs.graph else ()),
        *([f"NAMES = {[named[ref.index] for ref in output_refs(program)]}"] if needs.entry == "graphed" else ()),
        f"FRAMEWORK, RAISES = {host.module!r}, {_STATUS_OF_RAISING[needs.kind]}  # status if the candidate raises"
        if needs.kind in _STATUS_OF_RAISING else f"FRAMEWORK = {host.module!r}",
        f"RTOL, ATOL, CHECK_DTYPE = {facts.rtol}, {facts.atol}, {facts.check_dtype}  "
        "# |candidate - reference| <= ATOL + RTOL * |reference|"
        if facts.strictness == "tolerance" else f"CHECK_DTYPE = {facts.check_dtype}  # every bit counts but a NaN's",
        *([f"TIMEOUT_S = {facts.timeout_s}"] if needs.entry == "watched" else ()),
        f"SEEN_WITH = {facts.versions!r}",
        "",
        "# What follows runs the candidate and compares.",
    ]  # fmt: skip
    return "\n".join(lines)


def _expected(recording: Recording, host: HostProgram, needs: _HostNeeds) -> dict[str, str]:
    """Return the expressions of what the reference gave, by name."""
    program, named = host.program, names(host.program)
    shown = [named[ref.index] for ref in output_refs(program)]
    if needs.accepted and not needs.backward:
        return {"the last call": "'raises'"}
    found = {
        f"value of {shown[i]}": "'raises'" if i in needs.refused else text
        for i, text in host_output_texts(recording).items()
        if i < len(shown)
    }
    has_flags = host.module not in OF_FUNCTIONS
    found |= _flags(recording, "output_", shown) if needs.flags and has_flags else {}
    if needs.accepted:
        return {**found, "the backward pass": "'raises'"}
    found |= (
        {f"gradient of {name}": text for name, text in _gradients(recording, host).items()} if needs.backward else {}
    )
    if needs.after:
        after = carried_by_name(recording, "after_", host, named)
        found |= {f"{name} after the run": text for name, text in after.items()}
        moved = [f"{named[place]} after the run" if place >= 0 else "" for place in host.moved]
        found |= _flags(recording, "after_", moved) if has_flags else {}
    return found


def _gradients(recording: Recording, host: HostProgram) -> dict[str, str]:
    return carried_by_name(recording, "gradient_", host, names(host.program))


def _flags(recording: Recording, prefix: str, named: list[str]) -> dict[str, str]:
    """Return the flags that a framework's tensors have too, by name."""
    flags = ((name, recording.facts.get(f"{prefix}{i}")) for i, name in enumerate(named))
    return {
        f"{flag} of {name}": repr(value)
        for name, fact in flags
        if isinstance(fact, Mapping_) and name
        for flag, value in fact.items
        if flag in {"requires_grad", "is_leaf"}
    }


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
    here = "Path(__file__).resolve().parent"
    folders = ", ".join(f"{here} / {folder!r}" for folder in facts.folders)
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


def _run_text(needs: _HostNeeds, program: Program) -> str:
    """Return the function that runs the candidate."""
    takes = [name for name, _ in inputs(program)]
    given = list(dict.fromkeys([*takes, *leaves(program)]))
    called = "**given" if takes == given else f"**{{name: given[name] for name in {takes}}}"
    shown = [f"value of {names(program)[ref.index]}" for ref in output_refs(program)]
    gradients = '{f"gradient of {name}": elements(each) for name, each in gradients.items()}'
    gradients = gradients if needs.entry in {"repeated", "graphed"} else f"with_zeros({gradients}, EXPECTED)"
    read = "plain(elements(output))" if needs.plain else "elements(output)"
    weights = "weights = {i: tensor(*pair) for i, pair in COTANGENTS.items()}"
    lines = [
        "given = inputs()",
        *([weights] if needs.backward or needs.graph or needs.after else ()),
        *(["differentiated(candidate, inputs(), weights)  # what fails eagerly is not tried as a graph",
           "outputs, gradients = differentiated(as_graph, given, weights)"] if needs.graph
          else ["outputs, gradients = differentiated(candidate, given, weights)"] if needs.backward
          else [f"outputs = candidate({called})"]),
        f"found = {{name: {read} for name, output in zip({shown}, outputs)}}",
        *(f"found[{shown[i]!r}] = 'raises' if outputs[{i}] else 'accepts'" for i in needs.refused),
        *([f"for name, output in zip({[name.removeprefix('value of ') for name in shown]}, outputs):",
           "    found.update(flags_of(name, output))"] if needs.flags else ()),
        *([f"found.update({gradients})"] if needs.backward else ()),
        *(["found.update(after_run(given, weights))"] if needs.after else ()),
        *(["found[\"the last call\"] = \"accepts\""] if needs.accepted and not needs.backward else ()),
        *(['found["the backward pass"] = "accepts" if any(g is not None for g in gradients.values()) else "raises"']
          if needs.accepted and needs.backward else ()),
        "return found",
    ]  # fmt: skip
    return "\n".join(
        ["def run():", '    """Return what the candidate gives, by name."""', *(f"    {line}" for line in lines)]
    )


def _end(needs: _HostNeeds) -> str:
    """Return the lines that run the script."""
    if needs.kind == "graph" and not needs.graph:
        return f"{_NO_GRAPH}\n\n\n{last_lines('main()', may_be_2=True)}"
    main = "main({**untouched(), **EXPECTED})" if needs.after else "main(EXPECTED)"
    calls = {"main": main, "watched": f"watched(lambda: {main})"}
    return last_lines(calls.get(needs.entry, f"{needs.entry}()"), may_be_2=True)

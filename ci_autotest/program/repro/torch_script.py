"""The repro: a script that shows a misalignment without this package.

It needs torch and, for kernels or a device, the module that provides them. Tensors of up to 64 elements are exact
literals; larger ones are read from the file beside it. Its exit status is 1 while misaligned, 0 when fixed, and 2 when
it cannot run. What it calls, it takes from ``repro_functions``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.program.codegen import body_lines, inputs, names, output_text
from ci_autotest.program.expectations import expected_outputs
from ci_autotest.program.ir import (
    ARRAY,
    HOST_DEVICE,
    PLACEHOLDER,
    SAVE,
    cotangent_key,
    is_unpacking,
    output_refs,
)
from ci_autotest.program.note import CompileNote, DTensorNote, Note, OnnxRuntimeNote, SubstituteNote, TrainingNote
from ci_autotest.program.refusal import refused_outputs
from ci_autotest.program.repro.candidates import (
    block,
    candidate_text,
    compile_options,
    environment_lines,
    is_exported,
    is_trained,
)
from ci_autotest.program.repro.carried_values import (
    layout_text,
    leaves,
    mapping_text,
    output_texts,
    returned,
    tensor_texts,
    texts_by_name,
)
from ci_autotest.program.repro.module_ranks import batch_lines, module_imports
from ci_autotest.program.repro.operator_modules import import_lines, operator_modules
from ci_autotest.program.repro.ranks import group_lines, is_on_gpus, mesh_lines, starts_ranks
from ci_autotest.program.repro.replaced_classes import IS_CANDIDATE, class_modules, classes_of, setup_of
from ci_autotest.program.repro.script import Script, import_block, last_lines, of_library, standard
from ci_autotest.program.repro.snippet_checks import LOST
from ci_autotest.program.targets import OPS, last_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ci_autotest.program.ir import Program
    from ci_autotest.program.recording import Recording
    from ci_autotest.program.repro.script_facts import ScriptFacts

#: Kinds that the forward pass shows, unless the finding itself is about the backward pass.
_FORWARD: Final = frozenset({"value", "shape", "dtype", "aliasing", "metadata", "nondeterminism"})
#: Names of functions that the bodies of a script may call.
_USED_BY_BODIES: Final = (
    "stored", "checked", "replicated", "through_onnx", "through_export", "dist", "Replace", "REPLACED", "ResultBands",
)  # fmt: skip
_HEAD: Final = '''"""%(title)s

%(message)s

Run it: python repro.py
Exit status: 1 while misaligned, 0 when fixed, 2 when it cannot run.
"""

%(libraries)s

%(here)s# An error of this script's own is no finding: it ends with 2.
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.stdout.flush(), os._exit(2))
%(imports)s%(devices)s'''
#: Only if a side is not on the CPU; otherwise no tensor is moved.
_DEVICES: Final = """
DEVICE, REFERENCE_DEVICE = torch.device(%(device)s), torch.device(%(reference_device)s)
device = DEVICE"""
_SAME_NUMBERS: Final = "torch._inductor.config.fallback_random = True  # both sides draw the same numbers"
#: For a device: with torch 2.13, autograd threads of a device were seen to abort a process that exits normally.
_USABLE: Final = """try:
    torch.ones(1).to(DEVICE).cpu()
except Exception as error:
    print(f"cannot run: device {DEVICE} cannot be used here ({type(error).__name__}: {error})")
    sys.exit(2)"""
_LEAVE_AT_ONCE: Final = """sys.stdout.flush()
os._exit(status)  # an accelerator's threads may abort a process that exits normally"""


class _TorchNeeds(NamedTuple):
    """The parts of a repro that its finding needs, besides the values of the outputs.

    Attributes:
        backward: The backward pass.
        flags: What is compared of a tensor besides its elements.
        after: What inputs and states are after the run.
        memory: Which outputs share memory with an input.
        refused: Positions of outputs that say how a step was refused.
        layers: A compiler's layers, whose outputs that are indices of extremes are not compared.
        plain: Outputs that are no tensors.
        arrays: Outputs that are arrays of numpy.
        modules: Modules that the setup makes.
        devices: A device other than the CPU on either side.
        classes: Classes of modules that the candidate replaces.
        ranks: A candidate that is a group of ranks on which tensors lie.
        sharing: A candidate whose ranks share the batch of a module.
        processes: A process for each rank, which the script starts.
        entry: Name of the function with which the script starts.
        names_refusals: Whether it counts with which exception a step is refused.
    """

    backward: bool
    flags: bool
    after: bool
    memory: bool
    refused: tuple[int, ...]
    layers: bool
    plain: bool
    arrays: bool
    modules: bool
    devices: bool
    classes: bool
    ranks: bool
    sharing: bool
    processes: bool
    entry: str
    names_refusals: bool


def _needs_of(recording: Recording, facts: ScriptFacts) -> _TorchNeeds:
    """Return the parts that a repro needs for its finding."""
    kind, program, note = facts.kind, recording.program, recording.note
    is_forward = kind in _FORWARD and not facts.has_backward
    # Without gradients, the flags of a compiled body are its own.
    is_compiled = isinstance(note.side, CompileNote) and is_trained(note)
    has_after = kind in {"mutation", "state", "stateful"} and not is_exported(note)
    has_devices = not {note.device, note.reference_device} <= {"cpu", "auto"}
    has_processes = isinstance(note.side, TrainingNote) or starts_ranks(note)
    # Ranks in processes are watched already.
    is_watched = kind in LOST and not has_processes
    return _TorchNeeds(
        backward=any(program.cotangents) and not is_forward and not is_exported(note) and is_trained(note),
        # The search for a compiler's layer compares flags too.
        flags=kind == "metadata" or has_after or is_compiled,
        after=has_after,
        memory=kind == "aliasing",
        refused=refused_outputs(program),
        layers=is_compiled,
        plain=any(f"output_{i}" not in recording.expected for i in range(len(output_refs(program)))),
        arrays=any(step.target == ARRAY for _, step in program.calls),
        modules=any(step.op != PLACEHOLDER for step in program.setup),
        devices=has_devices,
        classes=bool(classes_of(recording)),
        ranks=isinstance(note.side, DTensorNote),
        sharing=isinstance(note.side, TrainingNote),
        processes=has_processes,
        entry="repeated" if kind == "nondeterminism" else "watched" if is_watched else "main",
        names_refusals=kind == "error",
    )


def repro_text(recording: Recording, facts: ScriptFacts) -> str:
    """Return the script.

    Args:
        recording: The smallest program, with what the reference gives and the candidate's note.
        facts: What it says of the finding.
    """
    # Before anything is named, because all parts of the script use the same names.
    recording = _without_clashes(recording)
    program, needs = recording.program, _needs_of(recording, facts)
    takes = [name for name, _ in inputs(program)]
    given = list(dict.fromkeys([*takes, *leaves(program)]))
    literals = tensor_texts(recording)
    setup = [*_bindings(program, literals, needs), *setup_of(recording), returned(given)]
    body = [*body_lines(program), f"return {output_text(program)}"]
    sides = [
        f"def inputs({f'{IS_CANDIDATE}=False' if needs.classes else ''}):\n{block(setup)}",
        f"def reference({', '.join(takes)}):\n{block(body)}",
        candidate_text(recording, takes),
    ]
    script = Script(
        modules=_modules_of(needs, facts),
        taken={path.partition(".")[0] for path in [*_modules(recording), *operator_modules(program)]},
        sides=sides,
        values=_values(recording, facts, literals, needs),
        run=_run_text(recording, needs, given),
        end=_end(needs),
    )
    text = script.text(lambda imports, _: _head(recording, facts, needs, imports))
    has_device = not needs.devices and re.search(r"\bdevice\b", text)
    place = f"device = torch.device({HOST_DEVICE!r})\n\n\n" if has_device else ""
    return text.replace("def inputs(", f"{place}def inputs(", 1)


def _modules_of(needs: _TorchNeeds, facts: ScriptFacts) -> list[str]:
    """Return the modules whose functions the script may take; of two that have a name, the first counts."""
    simulated = ["mesh_processes" if needs.processes else "simulated_mesh", "mesh"]
    found = [
        *(["exact_tensors"] if facts.strictness != "tolerance" else ()),
        *(["strides"] if facts.strictness == "bitwise" else ()),
        *(simulated if needs.ranks else ()),
        *(["shared_batch"] if needs.sharing else ()),
        *(["rank_processes"] if needs.ranks or needs.sharing else ()),
        "tensors", "sides", "repeats", "process_watch", "compiler_layers", "exports", "replacement",
    ]  # fmt: skip
    return [*of_library(*found), "ci_autotest.backends.result_bands"]


def _head(recording: Recording, facts: ScriptFacts, needs: _TorchNeeds, imports: set[str]) -> str:
    """Return what stands above the program; ``imports`` are the statements that the library needs."""
    has_folder = bool(_modules(recording)) or bool(import_lines(recording))
    own = {"import os", "import sys"} | standard(imports)
    own |= {"import io"} if any(step.target == SAVE for step in recording.program.body) else set()
    own |= {"from pathlib import Path"} if has_folder else set()
    return _HEAD % {
        "title": facts.title,
        "message": "\n".join(f"  {line}" if line else "" for line in facts.lines),
        "libraries": import_block(own),
        "here": "HERE = Path(__file__).resolve().parent\n" if has_folder else "",
        "imports": _imports(recording, facts, imports - own - {"import torch"}),
        "devices": _DEVICES % _devices(recording.note) if needs.devices else "",
    }


def _values(recording: Recording, facts: ScriptFacts, literals: Mapping[str, str], needs: _TorchNeeds) -> str:
    """Return what the reference gave, what goes into the backward pass, the tolerance, and the ranks."""
    program, strict = recording.program, facts.strictness != "tolerance"
    cotangents = {i: literals[cotangent_key(i)] for i in program.cotangent_specs} if needs.backward else {}
    expected, of_test = _expected(recording, literals, needs), _expected_by_test(recording, literals)
    lines = [
        *([f"# What the reference gave when this was found.\nEXPECTED = {mapping_text(expected)}"]
          if needs.entry != "repeated" else ()),
        *([f"EXPECTED_BY_TEST = {mapping_text(of_test)}"] if of_test else ()),
        *([f"COTANGENTS = {mapping_text(cotangents)}  # what goes into the backward pass"]
          if needs.backward or needs.sharing else ()),
        *mesh_lines(recording, starts_processes=needs.processes),
        *batch_lines(recording),
        *(group_lines(facts.timeout_s, on_gpus=is_on_gpus(recording.note)) if needs.processes else ()),
        *([f"TIMEOUT_S = {facts.timeout_s}"] if needs.entry == "watched" else ()),
        *([f"OPTIONS = {compile_options(recording.note)!r}", _SAME_NUMBERS] if needs.layers else ()),
        f"CHECK_DTYPE = {facts.check_dtype}  # every bit counts but a NaN's" if strict else
        f"RTOL, ATOL, CHECK_DTYPE = {facts.rtol}, {facts.atol}, {facts.check_dtype}  "
        "# |candidate - reference| <= ATOL + RTOL * |reference|",
        f"SEEN_WITH = {facts.versions!r}",
        "",
        "# What follows runs both sides and compares them.",
    ]  # fmt: skip
    return "\n".join(lines)


def _expected(recording: Recording, literals: Mapping[str, str], needs: _TorchNeeds) -> dict[str, str]:
    """Return the expressions of what the reference gave, by name."""
    program, named = recording.program, names(recording.program)
    refs, left_out = output_refs(program), {*needs.refused, *expected_outputs(program)}
    outputs = {i: text for i, text in output_texts(recording, literals).items() if i not in left_out}
    found = {
        f"value of {named[refs[i].index]}": text if f"output_{i}" in recording.expected else f"plain({text})"
        for i, text in outputs.items()
        if i in _compared_outputs(program, needs)
    }
    gradients = texts_by_name(recording, "gradient_", literals, named) if needs.backward else {}
    found |= {f"gradient of {name}": text for name, text in gradients.items() if text != "None"}
    after = texts_by_name(recording, "after_", literals, named) if needs.after else {}
    return {**found, **{f"{name} after the run": text for name, text in after.items()}}


def _expected_by_test(recording: Recording, literals: Mapping[str, str]) -> dict[str, str]:
    """Return the expressions of what the test expects, which the reference need not give, by name."""
    program, named = recording.program, names(recording.program)
    refs, outputs = output_refs(program), output_texts(recording, literals)
    return {
        f"value of {named[refs[i].index]}": outputs[i]
        if f"output_{i}" in recording.expected
        else f"plain({outputs[i]})"
        for i in expected_outputs(program)
        if i in outputs
    }


def _run_text(recording: Recording, needs: _TorchNeeds, given: list[str]) -> str:
    """Return the function that runs one side.

    Args:
        recording: The program.
        needs: What it returns.
        given: Names of what ``inputs`` returns: what the program takes in order, then leaves that it does not take.
    """
    program = recording.program
    takes = [name for name, _ in inputs(program)]
    source = "given_to(function)" if needs.ranks else f"inputs({'function is candidate' if needs.classes else ''})"
    source = f"moved({source}, device)" if needs.modules and needs.devices and not needs.ranks else source
    head = [
        *(["@on_ranks"] if needs.ranks or needs.sharing else ()),
        "def run(function):",
        '    """Return what a side gives, by name."""',
        *(["    global device", "    device = REFERENCE_DEVICE if function is reference else DEVICE"]
          if needs.devices else ()),
        "    torch.manual_seed(0)",
    ]  # fmt: skip
    shown = _compared_outputs(program, needs)
    is_whole = len(shown) == len(output_refs(program))
    by_name = [f"value of {name}" for name in shown.values()]
    before, after = _plain_lines(needs), _other_lines(recording, needs, shown)
    if takes == given and is_whole and not before and not after:
        return "\n".join([*head, f"    return dict(zip({by_name}, function(*{source}.values())))"])
    # Ties have no order, so no indices are compared.
    found = f"dict(zip({by_name}, {'outputs' if is_whole else f'[outputs[i] for i in {list(shown)}]'}))"
    called = "*given.values()" if takes == given else ", ".join(f"given[{name!r}]" for name in takes)
    lines = [f"given = {source}", f"outputs = list(function({called}))", *before, f"found = {found}", *after]
    return "\n".join([*head, *(f"    {line}" for line in lines), "    return found"])


def _compared_outputs(program: Program, needs: _TorchNeeds) -> dict[int, str]:
    """Return the names of the outputs that are compared, by position: under a compiler no indices of extremes."""
    named = names(program)
    kept = {i: ref.index for i, ref in enumerate(output_refs(program))}
    return {i: named[at] for i, at in kept.items() if not (needs.layers and _holds_indices(program, at))}


def _plain_lines(needs: _TorchNeeds) -> list[str]:
    """Return the lines that make outputs comparable that are no tensors."""
    raises = "f'raises {{outputs[{0}]}}'" if needs.names_refusals else "'raises'"
    arrays = 'outputs = [torch.tensor(o) if type(o).__name__ == "ndarray" else o for o in outputs]'
    return [
        *([arrays] if needs.arrays else ()),
        *(["outputs = [plain(output) for output in outputs]"] if needs.plain else ()),
        *(f"outputs[{i}] = {raises.format(i)} if outputs[{i}] else 'accepts'" for i in needs.refused),
    ]


def _other_lines(recording: Recording, needs: _TorchNeeds, shown: Mapping[int, str]) -> list[str]:
    """Return the lines that add what else is compared, by name."""
    lines = []
    if needs.flags:
        lines += [f"for i, name in {dict(shown)}.items():", "    found.update(flags_of(name, outputs[i]))"]
    # Without modules everything that a side is given is a tensor.
    leaves, states = ("leaves_of(given)", "states_of(given)") if needs.modules else ("given", "dict(given)")
    if needs.backward and not needs.after:
        lines += [f"found.update(gradients_of(roots_of(outputs, COTANGENTS), {leaves}))"]
    elif needs.backward:
        lines += ["roots = roots_of(outputs, COTANGENTS)", f"found.update(gradients_of(roots, {leaves}))"]
    if needs.after:
        put_in = '{f"gradient put into output {i}": weight for i, (_, weight) in enumerate(roots)}'
        lines += [f"after = {states}", *([f"after.update({put_in})"] if needs.backward else ())]
        lines += ['found.update({f"{name} after the run": value for name, value in after.items()})']
        lines += ["for name, value in given.items():", '    found.update(flags_of(f"{name} after the run", value))']
    if needs.memory:
        lines += ['found["inputs that share memory with each output"] = [shared_with(o, given) for o in outputs]']
    if expected_outputs(recording.program):
        lines += ["if function is reference:", "    found.update(EXPECTED_BY_TEST)"]
    return lines


def _end(needs: _TorchNeeds) -> str:
    """Return the lines that run the script."""
    device = "DEVICE.type" if needs.devices else repr("cpu")
    return last_lines(
        "watched(main)" if needs.entry == "watched" else f"{needs.entry}()",
        may_be_2=needs.entry == "watched",
        before=[_USABLE] if needs.devices else [],
        after=[f"if status:\n    ablation({device})"] if needs.layers and needs.entry == "main" else [],
        leave=_LEAVE_AT_ONCE if needs.devices else "sys.exit(status)",
    )


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
        "device",
        *_USED_BY_BODIES,
    }
    # A value of such a name would hide a module or function that later lines use.
    parts = [
        tuple(step._replace(name=f"{step.name}_0") if step.name in roots else step for step in part)
        for part in (recording.program.setup, recording.program.body)
    ]
    return replace(recording, program=replace(recording.program, setup=parts[0], body=parts[1]))


def _bindings(program: Program, literals: Mapping[str, str], needs: _TorchNeeds) -> list[str]:
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


def _imports(recording: Recording, facts: ScriptFacts, of_library: set[str]) -> str:
    """Return the lines that import what the script needs besides the standard library."""
    modules, device = _modules(recording), recording.note.side.device_module
    lines, operators = environment_lines(recording.note), import_lines(recording)
    modules = [module for module in modules if f"import {module}" not in operators]
    if modules or operators:
        folders = ", ".join([*(f"HERE / {folder!r}" for folder in facts.folders), "Path.cwd()"])
        lines.append(f"sys.path += map(str, [{folders}])")
    if isinstance(recording.note.side, OnnxRuntimeNote):
        modules = ["onnxruntime"]
    operators = [*operators, *sorted({*of_library, *module_imports(recording.note)})]
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

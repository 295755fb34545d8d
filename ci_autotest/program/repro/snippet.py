"""The program shown for a finding: pasted into Python, it runs the candidate and ends in a failing assertion.

The program appears once, as the function ``run``. Its argument is what differs between the sides: the kernel instead of
torch's operator, the device, or the compiled function instead of the plain one. A single call needs no function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ci_autotest.errors import ProgramError
from ci_autotest.program.codegen import body_lines, body_statements, inputs, named_outside, names, setup_lines
from ci_autotest.program.expectations import expected_input
from ci_autotest.program.ir import (
    HOST_DEVICE,
    PLACEHOLDER,
    Ref,
    TensorSpec,
    cotangent_key,
    is_unpacking,
    operator_check_of,
    output_refs,
    result_bands_of,
    step_refs,
)
from ci_autotest.program.literals import short_text
from ci_autotest.program.note import CompileNote, ExportNote, OnnxRuntimeNote
from ci_autotest.program.repro.candidates import environment_lines
from ci_autotest.program.repro.host_snippet import host_snippet
from ci_autotest.program.repro.operator_modules import import_lines
from ci_autotest.program.repro.plain_program import is_plain_program
from ci_autotest.program.repro.replaced_classes import IS_CANDIDATE, setup_of
from ci_autotest.program.repro.snippet_checks import LOST, check_lines, compared_lines
from ci_autotest.program.repro.snippet_sides import DEVICE, device_text, free, kernel_names, own_names, sides_of
from ci_autotest.program.targets import is_own, is_path_of_own, makes_module
from ci_autotest.program.written_values import written_values
from ci_autotest.values.dtypes import COMPLEX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ci_autotest.program.ir import Program, Step
    from ci_autotest.program.recording import Recording
    from ci_autotest.program.repro.permissions import Permissions
    from ci_autotest.program.repro.snippet_checks import Facts
    from ci_autotest.program.repro.snippet_sides import SnippetSides
    from ci_autotest.values.finding import NoProgram


_CHECKED: Final = "checked"
_OF_THE_PULL_REQUEST: Final = "# The kernel is of the pull request: run this where that is checked out, and read it."


class Snippet(NamedTuple):
    """The text of a program, or why there is none."""

    text: str = ""
    reason: NoProgram = ""


def snippet(recording: Recording, facts: Facts) -> Snippet:
    """Return the program, or why a few lines cannot run the candidate.

    Args:
        recording: The smallest program, with the candidate's note.
        facts: What the finding is about.

    Raises:
        ProgramError: The note has something that is never printed as code.
    """
    if any(map(result_bands_of, recording.program.steps)):
        return Snippet(reason="bands")
    is_permitted = facts.permissions is None or _is_permitted(recording, facts.permissions)
    if not is_permitted and not (facts.permissions is not None and _has_new_kernels(recording, facts.permissions)):
        return Snippet(reason="unnamed")
    if recording.note.host is not None:
        return _of_host(recording, facts)
    sides = sides_of(recording, facts.kind)
    if sides is None:
        return Snippet(reason="elsewhere")
    checked = [step for step in recording.program.steps if operator_check_of(step)]
    if checked and not _is_checkable(checked, recording, sides):
        return Snippet(reason="checks")
    lines = _checked(recording, sides, facts, checked[0]) if checked else _call_alone(recording, facts, sides)
    if not lines:
        lines = [
            *sides.above,
            *_run(recording, facts, sides),
            "",
            "",
            *check_lines(recording, facts, sides, _expected_text(recording, facts)),
        ]
    if not facts.file and any("stored[" in line for line in lines):
        return Snippet(reason="tensors")
    text = "\n".join([*_head(recording, facts, sides, lines), *lines])
    if is_permitted:
        return Snippet(text)
    return Snippet(f"{_OF_THE_PULL_REQUEST}\n{text}") if is_plain_program(text) else Snippet(reason="unnamed")


def _of_host(recording: Recording, facts: Facts) -> Snippet:
    try:
        text = host_snippet(recording, facts, chosen_outputs(recording.program, facts))
    except ProgramError:
        if facts.permissions is None:
            raise
        return Snippet(reason="unnamed")  # From outside: the program is shown in torch's words, which are checked.
    if not facts.file and "stored(" in text:
        return Snippet(reason="tensors")
    return Snippet(text, "" if text else "elsewhere")


def _is_permitted(recording: Recording, permissions: Permissions) -> bool:
    is_named = own_names(recording.note) <= set(permissions.names) and has_known_operators(recording, permissions)
    return is_named and _has_known_settings(recording, permissions)


def has_known_operators(recording: Recording, permissions: Permissions) -> bool:
    """Whether the configuration names all operators of the user's that a program calls."""
    return all(permissions.is_known(step.target) for step in recording.program.steps if is_own(step.target))


def _has_new_kernels(recording: Recording, permissions: Permissions) -> bool:
    """Whether all that the configuration here does not name are functions and classes that a pull request may add."""
    note = recording.note
    new = own_names(note) - set(permissions.names)
    # Modules that register something, libraries that are loaded and wrappers run code when they are named.
    is_of_kernels = permissions.has_new_kernels and new <= kernel_names(note)
    are_paths = all(map(is_path_of_own, new))
    return is_of_kernels and are_paths and _has_known_settings(recording, permissions)


def _has_known_settings(recording: Recording, permissions: Permissions) -> bool:
    side, env = recording.note.side, recording.note.env
    options = side.options if isinstance(side, CompileNote | OnnxRuntimeNote | ExportNote) else {}
    # Options of a compiler may name programs that it runs, `cpp.cxx`: those of a candidate here are the user's own.
    return (not options or options in permissions.options) and (not env or env in permissions.environs)


def _head(recording: Recording, facts: Facts, sides: SnippetSides, lines: Sequence[str]) -> list[str]:
    """Return the imports, and definitions that the other lines use."""
    is_stored = any("stored[" in line for line in lines)
    reads_device = sides.takes != DEVICE and any(DEVICE in line for line in lines)
    environment = environment_lines(recording.note)
    pythons = [
        *(["io"] if any("io.BytesIO" in line for line in lines) else ()),
        *(["multiprocessing"] if facts.kind in LOST else ()),
        *(["operator"] if any("operator." in line for line in lines) else ()),
        *(["os"] if environment else ()),
        *(["sys"] if facts.folders else ()),
    ]
    first = [*(f"import {module}" for module in pythons), *([""] if pythons else ())]
    paths = [*environment, *([f"sys.path += {list(facts.folders)!r}"] if facts.folders else ())]
    read = [
        *([f"device = {device_text(recording.note.device)}"] if reads_device else ()),
        *([f"stored = load_file({facts.file!r})  # the file beside the repro"] if is_stored else ()),
    ]
    operators = import_lines(recording)
    is_defined = lines[0].startswith(("def ", "class ", "REPLACED"))
    return [
        *first,
        *paths,
        *([""] if paths else ()),
        "import torch",
        *operators,
        *(f"import {module}" for module in sides.imports if f"import {module}" not in operators),
        *(["from safetensors.torch import load_file"] if is_stored else ()),
        "",
        *read,
        *([""] * (2 if read else 1) if is_defined else ()),
    ]


# --- The program


def made_lines(recording: Recording, moved: str = "", *, of_both: bool = False) -> list[str]:
    """Return the lines that create the inputs and the modules.

    Args:
        recording: The program and its data; missing data are read from the tensor file.
        moved: Call that moves a value to the candidate's device.
        of_both: Whether the lines read ``is_candidate``; otherwise the modules are the reference's.
    """
    program, named = recording.program, names(recording.program)
    lines = []
    for index, step in enumerate(program.steps):
        spec = step.spec
        if spec is not None:
            where = "" if spec.device == HOST_DEVICE else moved
            lines.append(f"{named[index]} = {tensor_expression(recording, step.target, spec, where)}")
    lines += setup_of(recording) if of_both else setup_lines(program)
    return [*lines, *(f"{name}{moved}" for name in _modules(program) if moved)]


def tensor_expression(recording: Recording, key: str, spec: TensorSpec, where: str = "", *, grad: bool = True) -> str:
    """Return the expression of a tensor: a literal if it is small and its data are there, else a read from the file.

    Args:
        recording: Has the data.
        key: Of the data.
        spec: Shape and layout.
        where: Call that moves the tensor to a device.
        grad: Whether ``requires_grad_`` is called if the spec requires it.
    """
    shape = spec.shape if spec.is_contiguous else (spec.storage_size,)
    text = short_text(recording.tensors[key], spec.dtype, shape) if key in recording.tensors else ""
    if not text:
        bits = f".view(torch.{spec.dtype})" if spec.dtype in COMPLEX else ""  # The file has pairs of real numbers.
        text = f"stored[{key!r}]{bits}.reshape({shape})"
    layout = "" if spec.is_contiguous else f".as_strided({spec.shape}, {spec.strides}, {spec.offset})"
    asks = ".requires_grad_()" if grad and spec.requires_grad else ""
    return f"{text}{where}{layout}{asks}"


def _moved(recording: Recording, sides: SnippetSides) -> str:
    is_elsewhere = sides.takes == DEVICE or device_text(recording.note.device) != f"torch.device({HOST_DEVICE!r})"
    return ".to(device)" if is_elsewhere else ""


def _modules(program: Program) -> list[str]:
    named = names(program)
    return [named[i] for i, step in enumerate(program.setup) if makes_module(step)]


def _output_names(program: Program) -> list[str]:
    named = named_outside(program)
    return [named[ref.index] for ref in output_refs(program)]


def _call_alone(recording: Recording, facts: Facts, sides: SnippetSides) -> list[str]:
    """Return the kernel's call and the reference's if the program is a single call; else nothing."""
    program, named = recording.program, names(recording.program)
    calls = [step for step in program.body if step.is_call]
    is_plain = facts.kind in {"value", "shape", "dtype"} and not facts.has_backward and not program.setup
    # A value of such a name would hide the module, or be overwritten by a result.
    taken = {"found", "expected", *(module.partition(".")[0] for module in sides.imports)}
    if not is_plain or sides.rename is None or len(calls) != 1 or calls[0].modes or taken & set(named):
        return []
    # An operator of the user's of such a name writes to its input, so that each side needs its own.
    if is_own(calls[0].target) and calls[0].target.endswith("_"):
        return []
    ours, theirs = (body_lines(program, rename=rename) for rename in (sides.rename, None))
    call = ours[0].partition(" = ")[2]
    if len(ours) != 1 or not call.startswith(f"{sides.takes}("):
        return []
    return [
        *made_lines(recording, _moved(recording, sides)),
        f"expected = {theirs[0].partition(' = ')[2]}",
        f"found = {sides.candidate}{call.removeprefix(sides.takes)}",
        *compared_lines(recording, facts, sides),
    ]


def _is_checkable(checked: Sequence[Step], recording: Recording, sides: SnippetSides) -> bool:
    """Whether each checked call has its kernel as an argument of the program."""
    return sides.rename is not None and "," not in sides.takes and len(checked) == len(recording.program.calls)


def _checked(recording: Recording, sides: SnippetSides, facts: Facts, step: Step) -> list[str]:
    """Return the lines in which torch checks the operator that is the kernel; they call nothing of the reference's."""
    check, call, rename = operator_check_of(step), free(_CHECKED, names(recording.program)), sides.rename
    assert rename is not None  # noqa: S101 - `_is_checkable` has seen to it
    how = f"test_utils={check!r}, raise_exception=False"
    return [
        f"def {call}(*args, **kwargs):",
        f"    result = torch.library.opcheck({sides.candidate}, args, kwargs, {how})",
        f'    assert result == {{{check!r}: "SUCCESS"}}, result  # {facts.mark}',
        f"    return {sides.candidate}(*args, **kwargs)",
        "",
        "",
        *made_lines(recording, _moved(recording, sides)),
        *body_lines(recording.program, rename=lambda target: call if rename(target) == sides.takes else target),
    ]


def _run(recording: Recording, facts: Facts, sides: SnippetSides) -> list[str]:
    """Return the function that both sides run; it returns what differs."""
    program = recording.program
    shown, calls = _output_names(program), _body(program, facts, sides)
    if sides.whole:
        outputs = free("outputs", names(program))
        calls = [f"{outputs} = {sides.whole}({', '.join(name for name, _ in inputs(program))})"]
        shown = [f"{outputs}[{i}]" for i in range(len(shown))]
    lines = [
        *made_lines(recording, _moved(recording, sides), of_both=sides.takes == IS_CANDIDATE),
        *calls,
        *(_backward(recording, facts, sides, shown) if facts.has_backward else ()),
        f"return {_observed(recording, facts, sides, shown)}",
    ]
    return [f"def run({sides.takes}):", *(f"    {line}" for line in lines)]


def _body(program: Program, facts: Facts, sides: SnippetSides) -> list[str]:
    """Return the calls; a computed value keeps its gradient from where it is made if that is compared."""
    is_kept = facts.has_backward and _is_of_a_value(facts)
    kept = [i for i in _meant(program, facts, sides) if is_kept and program.steps[i].op != PLACEHOLDER]
    lines, holder = [], _holder(program)
    for index, statements in body_statements(program, rename=sides.rename):
        lines += statements
        if index in kept and _is_overwritten(program, index):
            lines += [f"{holder} = []", f"{names(program)[index]}.register_hook({holder}.append)"]
        elif index in kept:
            lines.append(f"{names(program)[index]}.retain_grad()")
    return lines


def _is_overwritten(program: Program, index: int) -> bool:
    """Whether a later call writes to a computed value: then ``grad`` is that of the new value."""
    steps = program.steps
    if steps[index].op == PLACEHOLDER:
        return False
    return any(Ref(index) in written_values(step, steps) for step in steps[index + 1 :])


def _holder(program: Program) -> str:
    return free("gradients", names(program))


def _backward(recording: Recording, facts: Facts, sides: SnippetSides, shown: Sequence[str]) -> list[str]:
    program = recording.program
    put_in = {
        name: tensor_expression(recording, cotangent_key(i), spec, _moved(recording, sides), grad=False)
        for i, (name, spec) in enumerate(zip(shown, program.cotangents, strict=False))
        if spec is not None
    }
    if facts.aspect == "cotangent":
        weights = f"weights = [{', '.join(put_in.values())}]"
        return [weights, f"torch.autograd.backward([{', '.join(put_in)}], weights)"]
    if _is_of_a_value(facts) and facts.is_absent:  # a side may have an output without a graph
        again = ", retain_graph=True" if len(put_in) > 1 else ""
        return [
            f"for output, weight in [{', '.join(f'({name}, {weight})' for name, weight in put_in.items())}]:",
            "    if output.requires_grad:",
            f"        output.backward(weight{again})",
        ]
    if len(put_in) > 1:  # In one pass, because it frees the graph.
        return [f"torch.autograd.backward([{', '.join(put_in)}], [{', '.join(put_in.values())}])"]
    return [f"{name}.backward({weight})" for name, weight in put_in.items()]


def _is_of_a_value(facts: Facts) -> bool:
    return facts.aspect == "gradient" and not facts.parameter


def _meant(program: Program, facts: Facts, sides: SnippetSides) -> list[int]:
    """Return the step with the finding's name if its value exists inside ``run``."""
    found = [i for i, name in enumerate(names(program)) if name == facts.name]
    return [i for i in found if not sides.whole or program.steps[i].op == PLACEHOLDER]


def _expected_text(recording: Recording, facts: Facts) -> str:
    """Return what the test expects as code; empty if the finding is about the reference's result."""
    program = recording.program
    chosen = [output_refs(program)[i].index for i in chosen_outputs(program, facts)]
    held = expected_input(program.steps, chosen[0]) if len(chosen) == 1 else None
    spec = program.steps[held].spec if held is not None else None
    if held is None or spec is None:
        return ""
    return tensor_expression(recording, program.steps[held].target, spec)


# --- What differs


def _observed(recording: Recording, facts: Facts, sides: SnippetSides, shown: Sequence[str]) -> str:
    program = recording.program
    indices = _meant(program, facts, sides)
    meant = [named_outside(program)[i] for i in indices]
    if facts.kind in LOST or (facts.kind == "leniency" and facts.has_backward):
        return "None"
    if facts.aspect == "gradient":
        return _gradient(program, facts, indices)
    if facts.aspect == "cotangent":
        return f"weights[{sum(spec is not None for spec in program.cotangents[: facts.position])}]"
    if facts.aspect == "state":
        return _listed([f"{module}.state_dict()" for module in _modules(program)])
    if facts.aspect == "end" and meant:
        flags = (".requires_grad", ".is_leaf") if facts.is_absent else ()
        return ", ".join(f"{name}{flag}" for name in meant for flag in ("", *flags))
    return _output(program, facts, [shown[i] for i in chosen_outputs(program, facts)])


def _output(program: Program, facts: Facts, chosen: Sequence[str]) -> str:
    """Return what is compared of outputs: their memory, their flags or their values."""
    if facts.aspect == "memory":
        named = names(program)
        leaves = [named[i] for i in program.inputs]
        storage = "{}.untyped_storage().data_ptr()"
        return _listed([f"{storage.format(one)} == {storage.format(leaf)}" for one in chosen for leaf in leaves])
    if facts.aspect == "metadata":
        # `getattr`, because a kernel may return an array of numpy: the assertion must fail, not the attribute.
        flags = [f'[getattr({one}, flag, None) for flag in ("requires_grad", "is_leaf", "layout")]' for one in chosen]
        strides = [f'getattr({one}, "stride", tuple)()' for one in chosen if facts.is_strict]
        return _listed([*flags, *strides])
    return ", ".join(chosen)


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"[{', '.join(items)}]"


def _gradient(program: Program, facts: Facts, meant: Sequence[int]) -> str:
    """Return the gradient that differs; of a parameter whose module is not there, those of all modules."""
    modules, named = _modules(program), names(program)
    owners = [name for name in modules if name == facts.name] or modules
    if facts.parameter and len(owners) == 1:
        return f"{owners[0]}.get_parameter({facts.parameter!r}).grad"
    if facts.parameter and modules:
        return f"[parameter.grad for module in ({', '.join(modules)}) for parameter in module.parameters()]"
    if meant:
        texts = {i: f"{named_outside(program)[i]}.grad" for i in meant}
        return _listed([_holder(program) if _is_overwritten(program, i) else text for i, text in texts.items()])
    # No value in `run` has the name, so that the gradients of all inputs are compared.
    specs = zip(named, (step.spec for step in program.steps), strict=True)
    return _listed([f"{name}.grad" for name, spec in specs if spec is not None and spec.requires_grad])


def chosen_outputs(program: Program, facts: Facts) -> list[int]:
    """Return the positions of the compared outputs: those that the finding names, or all."""
    found, named = [], names(program)
    for place, ref in enumerate(output_refs(program)):
        step = program.steps[ref.index]
        element = step.args[1] if is_unpacking(step) else None
        maker = step_refs(step)[0].index if is_unpacking(step) else ref.index
        if facts.name in {named[ref.index], named[maker]} and facts.element in {None, element}:
            found.append(place)
    return found or list(range(len(output_refs(program))))

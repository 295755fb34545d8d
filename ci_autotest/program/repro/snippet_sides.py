"""The two sides of a snippet: the arguments of its program for the candidate and for the reference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ci_autotest.program.codegen import GRAPH_OPTIONS, function_text, names
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, CALL_MODULE, HOST_DEVICE, Ref
from ci_autotest.program.note import CompileNote, FxNote, Note, SubstituteNote, TorchNote, TrainingNote
from ci_autotest.program.python_names import is_path, is_pythons
from ci_autotest.program.random_calls import seeds_of
from ci_autotest.program.repro.candidates import compiled_text
from ci_autotest.program.repro.graph_pass import fx_body
from ci_autotest.program.repro.replaced_classes import IS_CANDIDATE, class_modules, classes_of
from ci_autotest.program.roles import VARIADIC
from ci_autotest.program.targets import OPS, is_own, last_name
from ci_autotest.program.written_values import IN_PLACE_AT, is_in_place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ci_autotest.program.ir import Step
    from ci_autotest.program.recording import Recording

#: Functions with a keyword `inplace`, which a kernel does not take.
_ACTIVATIONS: Final = frozenset(f"torch.nn.functional.{name}" for name in IN_PLACE_AT if name.islower())
_RETURNED: Final = ("        return kernel(*args, **kwargs)",)
_WRITTEN: Final = (
    '        is_written = kwargs.pop("inplace", False)',
    "        result = kernel(*args, **kwargs)",
    "        return args[0].copy_(result) if is_written else result",
)
#: Methods whose arguments differ from those of the function of the same name.
_APART: Final = VARIADIC | {"where"}
#: The parameter of a program whose sides differ by device.
DEVICE: Final = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnippetSides:
    """The arguments of a program for each side, and the code around them.

    Attributes:
        candidate: Arguments of ``run`` for the candidate.
        reference: Arguments of ``run`` for the reference.
        takes: Parameters of ``run``.
        imports: Modules.
        above: Lines above ``run``.
        rename: Returns how the program spells a target.
        whole: The parameter that is the whole body as a function; empty if ``run`` has the steps themselves.
        around: The context manager in which the candidate runs.
    """

    candidate: str = ""
    reference: str = ""
    takes: str = ""
    imports: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    rename: Callable[[str], str] | None = None
    whole: str = ""
    around: str = ""


def sides_of(recording: Recording, kind: str) -> SnippetSides | None:
    """Return both sides; ``None`` for a candidate that a few lines cannot run.

    Args:
        recording: The program, with the candidate's note.
        kind: Of the finding.
    """
    match recording.note.side:
        case SubstituteNote() as side:
            sides = _substitute(recording, side)
            return _graph(recording, sides) if kind == "graph" and sides is not None else sides
        case TorchNote():
            return _graph(recording, SnippetSides()) if kind == "graph" else _devices(recording)
        case CompileNote():
            return _compiled(recording)
        case FxNote() as side:
            return _transformed(recording, side)
        case _:
            return None


def own_names(note: Note) -> set[str]:
    """Return the user's functions and modules that a candidate consists of."""
    side = note.side
    return {*side.functions, *side.imports, *side.load, side.device_module} - {""}


def kernel_names(note: Note) -> set[str]:
    """Return the functions and classes that replace operators and modules, and the pass over a graph."""
    return set() if isinstance(note.side, TrainingNote) else {*note.side.functions}


def device_text(device: str) -> str:
    """Return the expression of a side's device."""
    return f"torch.device({device.replace('auto', HOST_DEVICE)[:60]!r})"


def free(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken, by adding underscores."""
    while name in taken:
        name += "_"
    return name


def _substitute(recording: Recording, side: SubstituteNote) -> SnippetSides | None:
    """Return the kernels as arguments of the program if it calls each directly; else a mode that substitutes them."""
    answered = _answered(side)
    if classes_of(recording):
        return _of_classes(recording, side, answered)
    if not answered:
        return None
    modules = tuple(sorted({path.rpartition(".")[0] for path in answered.values() if not path.startswith(OPS)}))
    targets = _targets(recording, side, answered)
    if not targets:
        return SnippetSides(imports=modules, above=_mode(recording, side, answered), around="with Replaced():")
    taken = {*names(recording.program), *(module.partition(".")[0] for module in modules)}
    parameters = {
        target: free("function" if len(targets) == 1 else f"function_{number}", taken)
        for number, target in enumerate(targets, 1)
    }
    return SnippetSides(
        candidate=", ".join(targets.values()), reference=", ".join(targets), takes=", ".join(parameters.values()),
        imports=modules, rename=lambda target: parameters.get(target, target),
    )  # fmt: skip


def _of_classes(recording: Recording, side: SubstituteNote, answered: Mapping[str, str]) -> SnippetSides:
    """Return the flag that says which classes the program constructs; functions are substituted by a mode."""
    modules = class_modules(recording) | {path.rpartition(".")[0] for path in answered.values()}
    sides = SnippetSides(candidate="True", reference="False", takes=IS_CANDIDATE, imports=tuple(sorted(modules)))
    if not answered:
        return sides
    return replace(sides, above=_mode(recording, side, answered), around="with Replaced():")


def _answered(side: SubstituteNote) -> dict[str, str]:
    """Return the kernel for each spelling of an operator."""
    # The note may come from outside, and a function of the standard library is no kernel.
    kernels = [(path, spelled) for path, spelled in side.spellings.items() if not is_pythons(path)]
    return {name: path for path, spelled in kernels for name in spelled if is_path(name)}


def _targets(recording: Recording, side: SubstituteNote, answered: Mapping[str, str]) -> dict[str, str]:
    """Return the kernel for each target that the program calls; nothing if a call reaches its kernel indirectly.

    In-place calls, and calls inside a module, reach a kernel only through torch's dispatch.
    """
    found: dict[str, str] = {}
    for step in recording.program.steps:
        path = _kernel(step, side, answered)
        if step.op == CALL_MODULE or (path is not None and _is_rearranged(step)):
            return {}
        if path is not None:
            found[_spelled(step)] = path
    return found


def _kernel(step: Step, side: SubstituteNote, answered: Mapping[str, str]) -> str | None:
    """Return the kernel that a step's call reaches, in whatever spelling; ``None`` without one."""
    if step.op == CALL_METHOD:
        plain = step.target.removesuffix("_") if is_in_place(step.target) else step.target
        return answered.get(f"torch.Tensor.{plain}")
    path = side.renames.get(step.target) if step.op == CALL_FUNCTION else None
    return path if path in answered.values() else None


def _spelled(step: Step) -> str:
    return f"torch.Tensor.{step.target}" if step.op == CALL_METHOD else step.target


def _is_rearranged(step: Step) -> bool:
    """Whether a call differs from the kernel's by more than its name; one of the user's own operators never does."""
    if is_own(_spelled(step)):
        return False
    is_written = is_in_place(step.target) or any(key == "inplace" for key, _ in step.kwargs)
    return is_written or (step.op == CALL_METHOD and step.target in _APART)


def _dispatched(step: Step, path: str) -> dict[str, str]:
    """Return the function that torch sees for a step whose spelling is not the kernel's, with what is called for it."""
    name = last_name(step.target)
    if step.target.startswith("operator."):
        spelled = f"torch.Tensor.__{name.strip('_')}__"
        # `3 - x` is no method of 3.
        if not isinstance(step.args[0], Ref):
            return {f"torch.Tensor.__r{name.strip('_')}__": f"lambda x, y: {path}(y, x)"}
    else:
        spelled = _spelled(step)
    if is_in_place(step.target):
        # The kernel's backward pass may need its input, which is overwritten afterwards.
        return {spelled: f"lambda x, *args, **how: x.copy_({path}(x.clone(), *args, **how))"}
    if step.op == CALL_METHOD and name == "where":
        return {spelled: f"lambda x, mask, *other: {path}(mask, x, *other)"}
    if step.op == CALL_METHOD and name in _APART and all(type(arg) is int for arg in step.args[1:]):
        return {spelled: f"lambda x, *sizes: {path}(x, sizes)"}
    return {spelled: path}


def _mode(recording: Recording, side: SubstituteNote, answered: Mapping[str, str]) -> tuple[str, ...]:
    """Return a mode that passes calls in any spelling to the kernels; in-place calls copy the result to their input."""
    rows, steps = dict(answered), recording.program.steps
    for step in steps:
        path = _kernel(step, side, answered)
        if path is not None and not is_own(_spelled(step)):
            rows |= _dispatched(step, path)
    may_write = any(step.op == CALL_MODULE or "inplace" in dict(step.kwargs) for step in steps)
    return (
        "REPLACED = {",
        *(f"    {name}: {function}," for name, function in rows.items()),
        "}",
        "",
        "",
        "class Replaced(torch.overrides.TorchFunctionMode):",
        "    def __torch_function__(self, function, types, args=(), kwargs=None):",
        "        kernel, kwargs = REPLACED.get(function), kwargs or {}",
        "        if kernel is None:",
        "            return function(*args, **kwargs)",
        "        # torch's own wrappers add keywords, `_stacklevel=3` and `dtype=None`",
        '        kwargs = {k: v for k, v in kwargs.items() if k[0] != "_" and v is not None}',
        *(_WRITTEN if may_write and any(name in _ACTIVATIONS for name in answered) else _RETURNED),
        "",
        "",
    )


def _devices(recording: Recording) -> SnippetSides:
    note, module = recording.note, recording.note.side.device_module
    return SnippetSides(
        candidate=device_text(note.device),
        reference=device_text(note.reference_device),
        takes=DEVICE,
        imports=(module,) if module else (),
    )


def _compiled(recording: Recording) -> SnippetSides:
    sides = _whole(recording, compiled_text(recording.note, "program"))
    # Without random steps nothing depends on the generator.
    if not seeds_of(recording.program):
        return sides
    draws = "torch._inductor.config.fallback_random = True  # both sides draw the same numbers"
    return replace(sides, imports=("torch._inductor.config",), above=(draws, "", "", *sides.above))


def _graph(recording: Recording, sides: SnippetSides) -> SnippetSides | None:
    """Return the candidate's eager body and the same body as one graph."""
    if sides.around or sides.takes == IS_CANDIDATE:
        return None
    kernels = dict(zip(sides.reference.split(", "), sides.candidate.split(", "), strict=True))
    options = "".join(f", {key}={value!r}" for key, value in GRAPH_OPTIONS)
    whole = _whole(recording, f"torch.compile(program{options})", lambda target: kernels.get(target, target))
    return replace(whole, imports=sides.imports)


def _whole(recording: Recording, candidate: str, rename: Callable[[str], str] | None = None) -> SnippetSides:
    """Return the body as a function, and the candidate that is made of it."""
    function = free("function", names(recording.program))
    above = (*function_text(recording.program, rename=rename).splitlines(), "", "")
    return SnippetSides(candidate=candidate, reference="program", takes=function, whole=function, above=above)


def _transformed(recording: Recording, side: FxNote) -> SnippetSides | None:
    """Return the body, and its graph rewritten by the candidate's pass."""
    path = side.transform
    if path and is_pythons(path):
        return None
    sides = _whole(recording, "transformed")
    *body, head, call = fx_body(recording.program, "program", side)
    # A prompt ends a class at its first empty line, and needs one after it.
    above = (*sides.above, *filter(None, body), "", "", head, call, "", "")
    return replace(sides, imports=(path.rpartition(".")[0],) if path else (), above=above)

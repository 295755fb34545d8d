"""What a snippet runs its program with: on the candidate's side, and on the reference's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ci_autotest.program.codegen import GRAPH_OPTIONS, function_text, names, needs_seed
from ci_autotest.program.ir import CALL_FUNCTION, CALL_METHOD, CALL_MODULE, HOST_DEVICE
from ci_autotest.program.python_names import is_path, is_pythons
from ci_autotest.program.repro.candidates import compile_options, device_module, fx_body, transform_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ci_autotest.program.ir import Program, Recording, Step

#: Methods whose arguments are given in another way than those of the function.
_APART: Final = frozenset({"where", "permute", "flip", "tile", "reshape", "view", "expand", "repeat"})
#: The argument that a program is given of which the device is what differs.
DEVICE: Final = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Hold what a program is run with on each side.

    Attributes:
        candidate: Arguments of ``run`` for the candidate.
        reference: Likewise for the reference.
        takes: The parameters.
        imports: Modules.
        above: Lines above ``run``.
        rename: How a target is spelled in the program.
        whole: The parameter that the whole body is called as; empty where its steps stand in ``run``.
        around: The context in which the candidate runs.
    """

    candidate: str = ""
    reference: str = ""
    takes: str = ""
    imports: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    rename: Callable[[str], str] | None = None
    whole: str = ""
    around: str = ""


def sides_of(recording: Recording, kind: str) -> Sides | None:
    """Return what both sides are, ``None`` for a candidate that no few lines are.

    Args:
        recording: The program, with the candidate's note.
        kind: Of the finding.

    Raises:
        ProgramError: The note holds what is never printed as code.
    """
    backend = recording.note.get("backend")
    if backend == "substitute":
        sides = _substitute(recording)
        return _graph(recording, sides) if kind == "graph" and sides is not None else sides
    if backend == "torch":
        return _graph(recording, Sides()) if kind == "graph" else _devices(recording)
    if backend == "torch.compile":
        return _compiled(recording)
    return _transformed(recording) if backend == "fx" else None


def own_names(note: Mapping[str, object]) -> set[str]:
    """Return the functions and modules of the user's that a candidate is made of."""
    spellings = note.get("spellings")
    paths = {path for path in spellings if isinstance(path, str)} if isinstance(spellings, dict) else set()
    return {*paths, transform_of(note), device_module(note)} - {""}


def device_text(note: Mapping[str, object], key: str = DEVICE) -> str:
    """Return the device of a side as code."""
    return f"torch.device({str(note.get(key, HOST_DEVICE)).replace('auto', HOST_DEVICE)[:60]!r})"


def free(name: str, taken: Collection[str]) -> str:
    """Return a name that is not taken."""
    while name in taken:
        name += "_"
    return name


def _substitute(recording: Recording) -> Sides | None:
    """Return the kernels as arguments where each is called by the program itself, else by a mode around it."""
    answered = _answered(recording.note)
    if not answered:
        return None
    modules = tuple(sorted({path.rpartition(".")[0] for path in answered.values()}))
    targets = _targets(recording, answered)
    if not targets:
        return Sides(imports=modules, above=_mode(recording.program, answered), around="with Replaced():")
    taken = {*names(recording.program), *(module.partition(".")[0] for module in modules)}
    parameters = {
        target: free("function" if len(targets) == 1 else f"function_{number}", taken)
        for number, target in enumerate(targets, 1)
    }
    return Sides(
        candidate=", ".join(targets.values()), reference=", ".join(targets), takes=", ".join(parameters.values()),
        imports=modules, rename=lambda target: parameters.get(target, target),
    )  # fmt: skip


def _answered(note: Mapping[str, object]) -> dict[str, str]:
    """Return the kernel of each spelling of an operator."""
    spellings = note.get("spellings")
    pairs = spellings.items() if isinstance(spellings, dict) else ()
    kernels = [(path, spelled) for path, spelled in pairs if is_path(path) and not is_pythons(path)]
    return {name: path for path, spelled in kernels if isinstance(spelled, list) for name in spelled if is_path(name)}


def _targets(recording: Recording, answered: Mapping[str, str]) -> dict[str, str]:
    """Return the kernel of each target that the program calls; nothing where a call is answered in another way.

    What writes to its input, and what a module calls inside, reach a kernel by torch's dispatch alone.
    """
    told = recording.note.get("renames")
    renames = told.items() if isinstance(told, dict) else ()
    kernels = set(answered.values())
    direct = {target: path for target, path in renames if isinstance(path, str) and path in kernels}
    last = {name.rpartition(".")[2] for name in answered}
    found: dict[str, str] = {}
    for step in recording.program.steps:
        target = _spelled(step)
        path = answered.get(target) if step.op == CALL_METHOD else direct.get(target)
        if path is not None and not _is_unusual(step):
            found[target] = path
        elif step.op == CALL_MODULE or _bare(step) in last:
            return {}
    return found


def _spelled(step: Step) -> str:
    return f"torch.Tensor.{step.target}" if step.op == CALL_METHOD else step.target


def _bare(step: Step) -> str:
    """Return the operator's own name of a call that may be in place, ``mul`` of ``operator.imul``."""
    if step.op not in {CALL_FUNCTION, CALL_METHOD}:
        return ""
    name = step.target.rpartition(".")[2].strip("_")
    return name.removeprefix("i") if step.target.startswith(("operator.i", "__i")) else name


def _is_unusual(step: Step) -> bool:
    """Whether a call is not the kernel's with the same arguments."""
    is_written = step.target.endswith("_") or any(key == "inplace" for key, _ in step.kwargs)
    return is_written or (step.op == CALL_METHOD and step.target in _APART)


def _mode(program: Program, answered: Mapping[str, str]) -> tuple[str, ...]:
    """Return a mode that hands calls to the kernels, however they are spelled; those in place are given the result."""
    rows = dict(answered)
    for step in program.steps:
        is_augmented = step.target.startswith("operator.i")
        spelled = f"torch.Tensor.__{step.target.rpartition('.')[2]}__" if is_augmented else _spelled(step)
        path = answered.get(f"torch.Tensor.{_bare(step)}" if is_augmented else spelled.removesuffix("_"))
        if path is not None and (is_augmented or spelled.endswith("_")):
            rows[spelled] = f"lambda x, *args, **how: x.copy_({path}(x, *args, **how))"
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
        '        return kernel(*args, **{k: v for k, v in kwargs.items() if k[0] != "_" and v is not None})',
        "",
        "",
    )


def _devices(recording: Recording) -> Sides:
    """Return the devices."""
    note, module = recording.note, device_module(recording.note)
    return Sides(
        candidate=device_text(note),
        reference=device_text(note, "reference_device"),
        takes=DEVICE,
        imports=(module,) if module else (),
    )


def _compiled(recording: Recording) -> Sides:
    """Return the body, and the body compiled."""
    options = "".join(f", {key}={value!r}" for key, value in compile_options(recording.note).items())
    sides = _whole(recording, f"torch.compile(program{options})")
    if not any(map(needs_seed, recording.program.steps)):
        return sides
    draws = "torch._inductor.config.fallback_random = True  # both sides draw the same numbers"
    return replace(sides, imports=("torch._inductor.config",), above=(draws, "", "", *sides.above))


def _graph(recording: Recording, sides: Sides) -> Sides | None:
    """Return the candidate's own body, and the same as one graph."""
    if sides.around:
        return None
    kernels = dict(zip(sides.reference.split(", "), sides.candidate.split(", "), strict=True))
    options = "".join(f", {key}={value!r}" for key, value in GRAPH_OPTIONS)
    whole = _whole(recording, f"torch.compile(program{options})", lambda target: kernels.get(target, target))
    return replace(whole, imports=sides.imports)


def _whole(recording: Recording, candidate: str, rename: Callable[[str], str] | None = None) -> Sides:
    """Return the body as a function of its own, and the candidate's that is made of it."""
    function = free("function", names(recording.program))
    above = (*function_text(recording.program, rename=rename).splitlines(), "", "")
    return Sides(candidate=candidate, reference="program", takes=function, whole=function, above=above)


def _transformed(recording: Recording) -> Sides | None:
    """Return the body, and its graph put through the candidate's pass."""
    path = transform_of(recording.note)
    if path and is_pythons(path):
        return None
    sides = _whole(recording, "transformed")
    above = (*sides.above, *filter(None, fx_body(recording.program, "program", path)), "", "")
    return replace(sides, imports=(path.rpartition(".")[0],) if path else (), above=above)
